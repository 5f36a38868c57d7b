import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import encoder as encoder_module
from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.modeling.dense import LayerNorm
from bert_tf.modeling.dropout import dropout
from tests.bert_tf.reference import CONFIG, random_batch, random_pretrainer, relative_error
from tests.small_configs import small_config


@pytest.fixture(scope="module")
def model():
    return random_pretrainer(CONFIG)


@pytest.fixture(scope="module")
def batch():
    return random_batch(CONFIG, batch=5, length=20, predictions=4)


def test_padding_changes_nothing(model, batch):
    shorter = {k: v[1:2, :9] if v.shape[1:] == [20] else v[1:2] for k, v in batch.items()}
    shorter["input_mask"] = tf.ones([1, 9], tf.int32)
    shorter["masked_lm_positions"] = tf.constant([[1, 3, 5, 8]])
    longer = {
        k: tf.pad(v, [[0, 0], [0, 11]], constant_values=7 if k == "input_ids" else 0) if v.shape[1:] == [9] else v
        for k, v in shorter.items()
    }
    a, b = model(shorter), model(longer)
    assert relative_error(b["sequence_output"][:, :9], a["sequence_output"]) <= 1e-6
    assert relative_error(b["pooled_output"], a["pooled_output"]) <= 1e-6
    assert relative_error(b["masked_lm_logits"], a["masked_lm_logits"]) <= 1e-6


def test_every_weight_matters(model, batch):
    key_biases = {p for p in variables_by_path(model) if p.endswith("attention/key/bias")}
    assert len(key_biases) == CONFIG.num_hidden_layers

    @tf.function
    def run():
        outputs = model(batch)
        return tf.concat([tf.reshape(outputs[k], [-1]) for k in ("masked_lm_logits", "next_sentence_logits")], 0)

    before = run()
    rng = np.random.default_rng(1)
    for path, variable in variables_by_path(model).items():
        value = variable.numpy()
        variable.assign(value + rng.standard_normal(value.shape))
        change = np.abs(run() - before).max()
        variable.assign(value)
        # a key's bias adds a constant to all scores of a row, which softmax removes
        assert (change < 1e-3) if path in key_biases else (change > 1e-3), path


@pytest.mark.slow
def test_no_table_is_gathered_from_its_variable(model, batch):
    # such a gather makes TensorFlow copy the whole table at each read and assignment in a training step
    graph = tf.function(lambda: model(batch, training=True, seed=tf.constant([1, 2]))).get_concrete_function().graph
    assert not [op.name for op in graph.get_operations() if op.type == "ResourceGather"]


def test_positions_and_segments_are_told_apart(model, batch):
    inputs = {k: batch[k][:1] for k in ("input_ids", "input_mask", "segment_ids")}
    base = model.encoder(inputs)["sequence_output"]
    reversed_ids = model.encoder(inputs | {"input_ids": inputs["input_ids"][:, ::-1]})["sequence_output"]
    assert np.abs(reversed_ids[:, ::-1] - base).max() > 1e-2
    other_segment = model.encoder(inputs | {"segment_ids": 1 - inputs["segment_ids"]})["sequence_output"]
    assert np.abs(other_segment - base).max() > 1e-2


def test_missing_mask_and_segments_have_defaults(model, batch):
    ids = batch["input_ids"][:1]
    explicit = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    np.testing.assert_array_equal(
        model.encoder({"input_ids": ids})["pooled_output"], model.encoder(explicit)["pooled_output"]
    )


@pytest.mark.parametrize("dtype", [tf.bool, tf.int64, tf.float32])
def test_a_mask_may_have_another_dtype(model, batch, dtype):
    other = {**batch, "input_mask": tf.cast(batch["input_mask"], dtype)}
    np.testing.assert_array_equal(*(model.encoder(inputs)["pooled_output"] for inputs in (other, batch)))


def test_dropout_depends_on_seed_alone(model, batch):
    def run(seed):
        return model.encoder(batch, training=True, seed=seed)["sequence_output"].numpy()

    np.testing.assert_array_equal(run([1, 2]), run([1, 2]))
    assert np.abs(run([1, 2]) - run([1, 3])).max() > 1e-2
    assert np.abs(run(None) - run(None)).max() > 1e-2
    without = model.encoder(batch, training=False, seed=[1, 2])["sequence_output"]
    np.testing.assert_array_equal(without, model.encoder(batch)["sequence_output"])


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = tf.ones([400, 500])
    y = dropout(x, 0.1, tf.constant([3, 4]), site=0).numpy()
    assert set(np.unique(y).round(5)) == {0.0, np.float32(1 / 0.9).round(5)}
    # 200,000 draws: the share's standard deviation is 0.0007
    assert abs((y == 0).mean() - 0.1) < 0.004
    other_site = dropout(x, 0.1, tf.constant([3, 4]), site=1).numpy()
    assert abs(((y == 0) & (other_site == 0)).mean() - 0.01) < 0.0015


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


@pytest.mark.quick_cases("ltr")
@pytest.mark.parametrize("direction", ["bidi", "ltr", "rtl"])
def test_gradients_follow_attention_direction(direction):
    """Row 1 ends in padding, to which no token attends."""
    encoder = BertEncoder(dataclasses.replace(CONFIG, directionality=direction))
    mask = tf.constant([[1] * 7, [1] * 5 + [0] * 2])
    column = np.arange(7)
    seen = {
        "bidi": np.ones([7, 7]),
        "ltr": column[None, :] <= column[:, None],
        "rtl": column[None, :] >= column[:, None],
    }
    for position in range(7):
        with tf.GradientTape() as tape:
            # a separate word table for each position, so that its gradient identifies the position
            rows = tf.Variable(np.random.default_rng(0).normal(size=[2, 7, 48]), dtype=tf.float32)
            output = sequence_output(encoder, rows, mask)
            total = tf.reduce_sum(output[:, position] ** 2 * tf.range(48.0))
        reached = np.abs(tape.gradient(total, rows)).max(axis=-1) > 0
        expected = np.tile(seen[direction][position], [2, 1]).astype(bool) & np.asarray(mask, bool)
        if position < 5:  # a padded position depends on itself through the residual, but its output is never read
            np.testing.assert_array_equal(reached[1], expected[1], err_msg=str(position))
        np.testing.assert_array_equal(reached[0], expected[0], err_msg=str(position))


def sequence_output(encoder, rows, mask):
    """Returns the encoder's last outputs for word vectors [B, S, H] instead of ids."""
    embed = encoder.embeddings.call
    ids = tf.zeros(mask.shape, tf.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder.embeddings, "call", lambda *args, **kwargs: embed(*args, **kwargs) + rows)
        return encoder({"input_ids": ids, "input_mask": mask})["sequence_output"]


@pytest.mark.parametrize("direction, place", [("bidi", 0), ("rtl", 0), ("ltr", 4)])
def test_the_pooler_reads_the_whole_row(direction, place):
    encoder = BertEncoder(dataclasses.replace(CONFIG, directionality=direction))
    mask = tf.constant([[1] * 5 + [0] * 2])
    outputs = encoder({"input_ids": tf.constant([[3, 1, 4, 1, 5, 0, 0]]), "input_mask": mask})
    expected = tf.tanh(encoder.pooler(outputs["sequence_output"][:, place]))
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": [[1]], "attention_mask": [[1]]}, "unknown input 'attention_mask'; .* names it 'input_mask'"),
        ({"input_ids": [[1]], "token_type_ids": [[0]]}, "unknown input 'token_type_ids'; .* names it 'segment_ids'"),
        ({"input_mask": [[1]]}, "input_ids is missing; the inputs are input_mask"),
        ({"input_ids": [1, 2]}, r"input_ids has the shape \(2,\)"),
    ],
)
def test_refuses_unknown_missing_and_misshapen_inputs(inputs, message):
    encoder = BertEncoder(small_config(10, 8, 1, 1, max_position_embeddings=4, intermediate_size=8))
    with pytest.raises(ValueError, match=message):
        encoder.call({name: tf.constant(rows) for name, rows in inputs.items()})
    with pytest.raises(ValueError, match=r"input_ids is ragged; pad it with .to_tensor\(\)"):
        encoder.call({"input_ids": tf.ragged.constant([[1], [2, 3]])})
