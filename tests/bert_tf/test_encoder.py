import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import encoder as encoder_module
from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.modeling.dense import LayerNorm
from tests.bert_tf.reference import CONFIG, random_batch, random_pretrainer
from tests.small_configs import small_config


@pytest.fixture(scope="module")
def model():
    return random_pretrainer(CONFIG)


@pytest.fixture(scope="module")
def batch():
    return random_batch(CONFIG, batch=5, length=20, predictions=4)


@pytest.mark.slow
def test_no_table_is_gathered_from_its_variable(model, batch):
    # such a gather makes TensorFlow copy the whole table at each read and assignment in a training step
    graph = tf.function(lambda: model(batch, training=True, seed=tf.constant([1, 2]))).get_concrete_function().graph
    assert not [op.name for op in graph.get_operations() if op.type == "ResourceGather"]


def test_mask_and_segments_have_defaults_and_any_dtype(model, batch):
    ids = batch["input_ids"][:1]
    expected = model.encoder({"input_ids": ids})["pooled_output"]
    for dtype in (tf.int32, tf.bool, tf.int64, tf.float32):
        inputs = {"input_ids": ids, "input_mask": tf.ones(ids.shape, dtype), "segment_ids": tf.zeros_like(ids)}
        np.testing.assert_array_equal(model.encoder(inputs)["pooled_output"], expected)


def test_dropout_depends_on_seed_alone(model, batch):
    def run(seed):
        return model.encoder(batch, training=True, seed=seed)["sequence_output"].numpy()

    np.testing.assert_array_equal(run([1, 2]), run([1, 2]))
    assert np.abs(run([1, 2]) - run([1, 3])).max() > 1e-2
    assert np.abs(run(None) - run(None)).max() > 1e-2
    without = model.encoder(batch, training=False, seed=[1, 2])["sequence_output"]
    np.testing.assert_array_equal(without, model.encoder(batch)["sequence_output"])


def test_no_two_dropouts_have_the_same_site(monkeypatch):
    sites = []

    def recorded(x, rate, seed, site):
        sites.append(int(site))
        return x

    monkeypatch.setattr(encoder_module, "dropout", recorded)
    encoder = BertEncoder(small_config(num_hidden_layers=3), fused=False)
    encoder({"input_ids": tf.ones([1, 4], tf.int32)}, training=True, seed=tf.constant([1, 2]))
    assert sorted(sites) == list(range(1 + 3 * 3))


def test_initial_weights_truncated_normal_and_distinct():
    encoder = BertEncoder(CONFIG)
    for path, variable in variables_by_path(encoder).items():
        value = variable.numpy()
        if path.endswith(("kernel", "embeddings")):
            assert np.abs(value).max() <= 0.04 + 1e-6, path
            # truncation at two deviations changes 0.02 to 0.0176; a small table of 64 numbers may deviate more
            assert abs(value.std() - 0.0176) < 5 * 0.0176 / np.sqrt(2 * value.size), path
        else:
            np.testing.assert_array_equal(value, 1.0 if path.endswith("gamma") else 0.0)
    kernels = [v.numpy() for p, v in variables_by_path(encoder).items() if p.endswith("attention/query/kernel")]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01


def test_layer_norm_has_the_papers_epsilon():
    x = np.array([[1e-5, -1e-5, 3e-5, 0.0]])
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-12)
    np.testing.assert_allclose(LayerNorm(4)(tf.constant(x, tf.float32)), expected, rtol=1e-5)


def test_a_sequence_beyond_the_positions_is_refused(model):
    with pytest.raises(ValueError, match="25 columns, but max_position_embeddings is 24"):
        model.encoder({"input_ids": tf.ones([1, 25], tf.int32)})


@pytest.mark.quick_cases("3-768-12-45691392")
@pytest.mark.parametrize(
    "layers, hidden, heads, expected",
    [
        (3, 768, 12, 45_691_392),
        (6, 768, 3, 66_955_008),
        pytest.param(6, 768, 12, 66_955_008, marks=pytest.mark.slow),
        (12, 768, 12, 109_482_240),
        pytest.param(12, 1024, 16, 183_987_200, marks=pytest.mark.slow),
        pytest.param(24, 1024, 16, 335_141_888, marks=pytest.mark.slow),
    ],
)
def test_weight_counts_of_table_6_equal_formula(layers, hidden, heads, expected):
    embeddings = (30522 + 512 + 2) * hidden + 2 * hidden
    attention = 4 * (hidden + 1) * hidden
    feed_forward = (hidden + 1) * 4 * hidden + (4 * hidden + 1) * hidden
    norms = 2 * 2 * hidden
    pooler = (hidden + 1) * hidden
    assert embeddings + layers * (attention + feed_forward + norms) + pooler == expected
    with tf.Graph().as_default():  # variables without values
        encoder = BertEncoder(BertConfig.named(f"L-{layers}_H-{hidden}_A-{heads}"))
    assert sum(v.shape.num_elements() for v in encoder.trainable_variables) == expected


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": [[1]], "attention_mask": [[1]]}, "unknown input 'attention_mask'; .* names it 'input_mask'"),
        ({"input_ids": [[1]], "token_type_ids": [[0]]}, "unknown input 'token_type_ids'; .* names it 'segment_ids'"),
        ({"input_ids": [[1]], "padding_mask": [[1]]}, "unknown input 'padding_mask'; .* names it 'input_mask'"),
        ({"input_mask": [[1]]}, "input_ids is missing; the inputs are input_mask"),
        ({"input_ids": [1, 2]}, r"input_ids has the shape \(2,\)"),
    ],
)
def test_refuses_unknown_missing_and_misshapen_inputs(inputs, message):
    encoder = BertEncoder(small_config(10, 8, 1, 1, max_position_embeddings=4, intermediate_size=8))
    with pytest.raises(ValueError, match=message):
        encoder.call({name: tf.constant(rows) for name, rows in inputs.items()})
    with pytest.raises(ValueError, match="the inputs are EagerTensor; give a dict of input_ids, input_mask and"):
        encoder.call(tf.constant([[1]]))
    with pytest.raises(ValueError, match=r"input_ids is ragged; pad it with .to_tensor\(\)"):
        encoder.call({"input_ids": tf.ragged.constant([[1], [2, 3]])})


def test_objects_say_what_they_are(vocab_file, tokenizer):
    assert re.fullmatch(
        r"BertEncoder\(bert, 1 layers, hidden size 16, 2 heads: [\d,]+ weights\)", repr(BertEncoder(small_config()))
    )
    size = len(tokenizer.vocabulary)
    assert repr(tokenizer) == f"BertTokenizer('{vocab_file}': {size} tokens, WordPiece, lower-cased)"
