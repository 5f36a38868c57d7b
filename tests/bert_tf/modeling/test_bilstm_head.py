"""`--bilstm_head`, and fine-tuning of models whose attention has one direction (Table 5)."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.classifier import TextClassifier
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.modeling.bilstm import BiLstm, BiLstmHead
from bert_tf.modeling.heads import FEATURES, ClassificationHead, layers_of
from bert_tf.modeling.precision import policy
from bert_tf.run_classifier import main as run_classifier
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.finetuning.word_task import TokenHead
from tests.bert_tf.tasks.classification import mrpc_run
from tests.kit import refused
from tests.small_configs import small_config

CONFIG = small_config(50, 12, hidden_dropout_prob=0.0, max_position_embeddings=16, intermediate_size=16)
LENGTHS = [7, 3, 1, 5]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    mrpc_run.write_inputs(folder)
    return folder


def keras_bilstm(head: BiLstmHead, return_sequences: bool) -> keras.layers.Layer:
    layer = keras.layers.Bidirectional(keras.layers.LSTM(CONFIG.hidden_size, return_sequences=return_sequences))
    layer.build((None, None, CONFIG.hidden_size))
    ours = [getattr(way, n) for way in (head.lstm.forward, head.lstm.backward)
            for n in ("kernel", "recurrent_kernel", "bias")]  # fmt: skip
    layer.set_weights([value.numpy() for value in ours])
    return layer


@pytest.mark.parametrize("is_pooled", [True, False])
def test_a_bilstm_head_reads_only_the_tokens(is_pooled):
    make = (lambda config: ClassificationHead(config, 3)) if is_pooled else (lambda c: TokenHead(c.hidden_size, 3, c))
    head = BiLstmHead(CONFIG, make)
    mask = np.arange(8) < np.array(LENGTHS)[:, None]
    x = np.random.default_rng(0).normal(size=(4, 8, CONFIG.hidden_size)).astype(np.float32)
    logits = head(tf.constant(x), tf.constant(mask, tf.int32)).numpy()
    states = keras_bilstm(head, not is_pooled)(x, mask=tf.constant(mask)).numpy()
    dense = head.head.dense if is_pooled else head.head
    expected = states @ dense.kernel.numpy() + dense.bias.numpy()
    assert logits.shape == ((4, 3) if is_pooled else (4, 8, 3))
    valid = slice(None) if is_pooled else mask
    np.testing.assert_allclose(logits[valid], expected[valid], atol=1e-5)
    x[~mask] = 9.0
    again = head(tf.constant(x), tf.constant(mask, tf.int32)).numpy()
    np.testing.assert_array_equal(logits[valid], again[valid], err_msg="padding is not read")


def test_bilstm_head_trains_in_mixed_precision():
    with policy("mixed_bfloat16"):
        head = BiLstmHead(CONFIG, lambda config: ClassificationHead(config, 3))
        x, mask = tf.random.normal([2, 8, CONFIG.hidden_size], dtype=tf.bfloat16), tf.ones([2, 8], tf.int32)
        with tf.GradientTape() as tape:
            logits = head(x, mask, training=True, seed=tf.constant([0, 1]))
            loss = tf.reduce_sum(logits**2)
    gradients = tape.gradient(loss, head.trainable_variables)
    assert logits.dtype == tf.float32 and all(variable.dtype == tf.float32 for variable in head.trainable_variables)
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() and np.any(tf.convert_to_tensor(g)) for g in gradients)


@pytest.fixture(scope="module")
def trained(inputs, vocab_file, tmp_path_factory):
    """A classifier with a BiLSTM on a unidirectional model; its folder, flags and metrics."""
    output = tmp_path_factory.mktemp("trained")
    config = json.loads((inputs / "config.json").read_text()) | {"directionality": "ltr"}
    (output / "config.json").write_text(json.dumps(config))
    flags = [f"--bert_config_file={output}/config.json"]
    do = ["--do_train", "--do_eval", "--do_predict", "--bilstm_head"]
    run = output / "run"
    return run, flags, run_classifier(mrpc_run.settings(inputs, vocab_file, run, *flags, *do))


@pytest.mark.slow
def test_later_command_restores_bilstm_and_direction(inputs, vocab_file, trained):
    run, flags, scores = trained
    assert scores["accuracy"] > 0.9
    assert description.read(str(run)).bilstm_head
    for more in ([], ["--nopack_sequences"]):
        again = run_classifier(mrpc_run.settings(inputs, vocab_file, run, *flags, "--do_eval", *more))
        np.testing.assert_allclose([again[name] for name in scores], list(scores.values()), rtol=1e-5)
    with pytest.raises(InputError, match="bilstm_head"):
        run_classifier(mrpc_run.settings(inputs, vocab_file, run, *flags, "--do_eval", "--nobilstm_head"))


@pytest.mark.slow
def test_served_model_and_library_agree_with_the_run(inputs, trained, tmp_path):
    run, _, _ = trained
    expected = np.loadtxt(run / "test_results.tsv", delimiter="\t")
    pairs = [(a, b) for a, b, _ in mrpc_run.ROWS[:5]]
    np.testing.assert_allclose(TextClassifier.load(str(run)).probabilities(pairs), expected, atol=1e-5)
    export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=str(tmp_path / "served")))
    serve = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    _, specs = serve.structured_input_signature
    texts = dict(zip(sorted(specs), map(tf.constant, zip(*pairs, strict=True)), strict=True))
    np.testing.assert_allclose(serve(**texts)["probabilities"], expected, atol=1e-5)


@pytest.mark.slow
def test_a_model_without_bilstm_says_so(inputs, vocab_file, trained, tmp_path, caplog):
    run, flags, _ = trained
    start = [*flags, f"--init_checkpoint={run}", "--do_train", "--num_train_epochs=1"]
    with caplog.at_level(logging.WARNING, "absl"):
        run_classifier(mrpc_run.settings(inputs, vocab_file, tmp_path / "plain", *start))
    assert caplog.text.count("head has a BiLSTM, which the new model lacks; only the encoder is loaded") == 1
    assert not description.read(str(tmp_path / "plain")).bilstm_head
    start = [*flags, f"--init_checkpoint={tmp_path / 'plain'}", "--do_train", "--num_train_epochs=1", "--bilstm_head"]
    refused("--reinitialize_head", run_classifier, mrpc_run.settings(inputs, vocab_file, tmp_path / "other", *start))
    run_classifier(mrpc_run.settings(inputs, vocab_file, tmp_path / "other", *start, "--reinitialize_head"))


def test_outputs_and_gradients_are_those_of_keras():
    ours = BiLstm(5, 7)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(7, return_sequences=True))
    x = tf.random.normal([3, 6, 5])
    lengths = tf.constant([6, 1, 4])
    mask = tf.sequence_mask(lengths, 6)
    theirs(x, mask=mask)
    weights = [w for d in (ours.forward, ours.backward) for w in (d.kernel, d.recurrent_kernel, d.bias)]
    theirs.set_weights(weights)
    results = []
    for call, variables in (
        (lambda: ours(x, lengths), weights),
        (lambda: theirs(x, mask=mask), theirs.trainable_variables),
    ):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = call() * tf.cast(mask, tf.float32)[:, :, tf.newaxis]
            loss = tf.reduce_sum(tf.square(outputs))
        results.append([outputs, *tape.gradient(loss, [x, *variables])])
    for mine, reference in zip(*results, strict=True):
        np.testing.assert_allclose(mine, reference, atol=2e-6)


def test_forget_gates_start_open_and_cells_are_float32():
    lstm, low = BiLstm(4, 3), BiLstm(4, 3, dtype=keras.mixed_precision.Policy("mixed_bfloat16"))
    np.testing.assert_array_equal(lstm.forward.bias, [0.0] * 3 + [1.0] * 3 + [0.0] * 6)
    low.set_weights(lstm.get_weights())
    x, lengths = tf.random.normal([2, 50, 4]), tf.constant([50, 50])
    found = low(x, lengths)
    assert found.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(found, tf.float32), lstm(x, lengths), atol=0.03)


def test_the_layers_of_table_7():
    assert tuple(FEATURES) == FEATURE_LAYERS
    expected = [(0,), (11,), (12,), (9, 10, 11, 12), (9, 10, 11, 12), tuple(range(1, 13)),
                tuple(range(13))]  # fmt: skip
    assert [layers_of(name, 12) for name in FEATURES] == expected
    assert layers_of("weighted_sum_all", 2) == (1, 2) and layers_of("second_to_last_hidden", 2) == (1,)
    for name, layers in (("concat_last_four", 3), ("weighted_sum_last_four", 1), ("second_to_last_hidden", 1)):
        with pytest.raises(ValueError, match=rf"{name} reads . hidden layers from the top, but .* has {layers}"):
            layers_of(name, layers)
