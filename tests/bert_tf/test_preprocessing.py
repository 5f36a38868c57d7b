"""`BertPreprocessor` in Keras models, in tf.data and in saved models."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf import checkpoint_tokenizer
from bert_tf.encoder import BertEncoder
from bert_tf.preprocessing import BertPreprocessor
from bert_tf.text import tokenizer_files, tokenizer_rules
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer, load_vocabulary
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.kit import refused
from tests.small_configs import small_config

TEXTS = ["the man said", "Ünïcödé 中文", "", "very " * 40]
PAIRS = ["he was there", "", "word", "long " * 40]


def expected(vocab_file, *columns):
    tokenizer = BertTokenizer(vocab_file)
    segments = [tokenizer.encode(texts) for texts in (*columns, None)[:2] if texts]
    ids = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
    return pack(segments[0], segments[1] if len(segments) > 1 else None, max_seq_length=16, **ids)


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].shape[1] == 16
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.core
def test_texts_and_pairs_become_the_rows_of_training(vocab_file):
    layer = BertPreprocessor(vocab_file, sequence_length=16)
    assert_equal(layer(tf.constant(TEXTS)), expected(vocab_file, TEXTS))
    assert_equal(layer([tf.constant(TEXTS), tf.constant(PAIRS)]), expected(vocab_file, TEXTS, PAIRS))
    assert_equal(layer.pack([layer.tokenize(TEXTS)]), expected(vocab_file, TEXTS))
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4).map(layer)
    assert_equal(next(iter(dataset)), expected(vocab_file, TEXTS))
    assert_equal(layer(TEXTS), expected(vocab_file, TEXTS))
    assert_equal(layer(TEXTS[:2]), expected(vocab_file, TEXTS[:2]))
    assert_equal(layer((TEXTS, PAIRS)), expected(vocab_file, TEXTS, PAIRS))
    assert_equal(layer(np.array(TEXTS)), expected(vocab_file, TEXTS))
    with pytest.raises(ValueError, match="texts has 3 parts"):
        layer((tf.constant(TEXTS),) * 3)
    with pytest.raises(ValueError, match=r"texts has the shape \(4, 2\); give a tuple of two tensors"):
        layer(tf.stack([TEXTS, PAIRS], 1))


def make_model(vocab_file):
    text = keras.Input([], dtype=tf.string)
    inputs = BertPreprocessor(vocab_file, sequence_length=16)(text)
    encoder = BertEncoder(small_config(400, max_position_embeddings=16))
    model = keras.Model(text, keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_a_list_of_scalars_is_a_batch(vocab_file):
    preprocess = BertPreprocessor(vocab_file, 8)
    texts = ["the man", "was"]
    for name, rows in preprocess(list(map(tf.constant, texts))).items():
        np.testing.assert_array_equal(rows, preprocess(texts)[name])
    assert preprocess([])["input_ids"].shape == (0, 8)


def test_columns_of_unknown_shape_are_refused(vocab_file):
    preprocess = BertPreprocessor(vocab_file, 8)
    for shape in (None, [None, None]):
        traced = tf.function(
            lambda texts: preprocess(texts)["input_ids"], input_signature=[tf.TensorSpec(shape, tf.string)]
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="texts has several columns; give a tuple of two"):
            traced(tf.constant([["the", "man"], ["was", "it"]]))
        np.testing.assert_array_equal(traced(tf.constant([["the"], ["man"]])), preprocess(["the", "man"])["input_ids"])


def test_single_texts_of_a_dataset_are_refused(vocab_file):
    preprocess = BertPreprocessor(vocab_file, 8)
    dataset = tf.data.Dataset.from_tensor_slices((["the", "man"], ["was", "it"]))
    for given in (lambda a, b: [a, b], lambda a, b: (a, b), lambda a, b: a):
        with pytest.raises(ValueError, match=r"single text; give batches, for example with dataset\.batch before the"):
            dataset.map(lambda a, b, given=given: preprocess(given(a, b)))
    pairs = next(iter(dataset.batch(2).map(lambda a, b: preprocess([a, b]))))
    np.testing.assert_array_equal(pairs["input_ids"], preprocess((["the", "man"], ["was", "it"]))["input_ids"])


def test_a_stored_layer_keeps_the_form_of_rows(vocab_file):
    form = {"special_tokens": ("[PAD]", "[UNK]", "[MASK]", "[SEP]", "[CLS]"), "truncation_side": "left"}
    rules = tokenizer_rules.of_tokens(load_vocabulary(vocab_file), **form, has_token_types=False)
    layer = BertPreprocessor(list(rules.vocabulary), 8, **rules.form)
    again = BertPreprocessor.from_config(layer.get_config())
    assert again.tokenizer.rules.form == layer.tokenizer.rules.form == rules.form
    rows = again((["the man was here and there again"], ["it"]))
    assert rows["segment_ids"].numpy().max() == 0 and rows["input_ids"][0, 0] == rules.vocabulary.index("[MASK]")
    assert "has_token_types" not in BertPreprocessor(vocab_file, 8).get_config()


def test_a_model_is_fitted_on_strings(vocab_file):
    keras.utils.set_random_seed(0)
    model = make_model(vocab_file)
    model.optimizer.learning_rate = 1e-2
    texts = tf.constant(["the man said so", "not one of these"] * 16)
    losses = model.fit(texts, np.array([0, 1] * 16), epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.quick_cases("model.keras")
@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_a_saved_model_needs_no_vocabulary_file(vocab_file, tmp_path, name):
    own = tmp_path / "vocab.txt"
    own.write_bytes(open(vocab_file, "rb").read())
    model = make_model(str(own))
    model.save(str(tmp_path / name))
    own.unlink()
    np.save(tmp_path / "expected.npy", model(tf.constant(TEXTS)))
    program = (
        "import sys, numpy, tensorflow as tf, tf_keras, bert_tf\n"
        f"model = tf_keras.models.load_model({str(tmp_path / name)!r})\n"
        f"found = model(tf.constant({TEXTS!r}))\n"
        f"numpy.testing.assert_allclose(found, numpy.load({str(tmp_path / 'expected.npy')!r}), atol=1e-5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_checkpoint_gives_its_vocabulary_and_casing(vocab_file, tmp_path):
    model = write_pretrained(tmp_path / "cased", vocab_file, vocab_size=400)
    checkpoint_tokenizer.write(str(tmp_path / "cased"), model.config, tokenizer_files.read(vocab_file, False))
    layer = BertPreprocessor(str(tmp_path / "cased"), sequence_length=16)
    assert layer.tokenizer.do_lower_case is False
    again = BertPreprocessor.from_config(layer.get_config())
    assert_equal(again(tf.constant(TEXTS)), layer(tf.constant(TEXTS)))
    assert BertPreprocessor(str(tmp_path / "cased"), do_lower_case=True).tokenizer.do_lower_case is True
    (tmp_path / "cased/vocab.txt").unlink()
    refused("cased: the folder has no vocabulary", BertPreprocessor, str(tmp_path / "cased"))
    with pytest.raises(ValueError, match="sequence_length=2: must be at least 3"):
        BertPreprocessor(vocab_file, sequence_length=2)


def test_tensors_of_keras_3_are_named(vocab_file):
    import keras as keras_3

    with pytest.raises(TypeError, match="belongs to Keras 2, but the model to Keras 3; .* `import tf_keras as keras`"):
        BertPreprocessor(vocab_file, 16)(keras_3.Input([], dtype="string"))
    ids = keras_3.Input([16], dtype="int32")
    with pytest.raises(TypeError, match="belongs to Keras 2"):
        BertEncoder(small_config())({"input_ids": ids})

    class Classifier(keras_3.Model):  # its tensors do not tell, and it would neither train nor save the encoder
        def __init__(self):
            super().__init__()
            self.encoder, self.head = BertEncoder(small_config()), keras_3.layers.Dense(1)

        def call(self, ids):
            return self.head(self.encoder({"input_ids": ids})["pooled_output"])

    model = Classifier()
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="belongs to Keras 2"):
        model.fit(tf.ones([2, 4], tf.int32), tf.ones([2, 1]), verbose=0)
    assert BertEncoder(small_config())({"input_ids": tf.ones([2, 4], tf.int32)})
