import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import tf1
from bert_tf.pretraining.objective import BertPretrainer
from tests.bert_tf.checkpoint_formats.models import (
    CONFIG,
    assert_same,
    original_values,
    random_values,
    save_original,
    values_of,
)
from tests.kit import refused


@pytest.fixture(scope="module")
def values():
    return random_values()


def with_slots(named):
    slots = {f"{name}/adam_{kind}": np.full_like(value, 2 if kind == "m" else 3)
             for name, value in named.items() for kind in "mv"}  # fmt: skip
    return named | slots | {"global_step": np.int64(9)}


@pytest.mark.core
def test_reads_original_with_heads_and_optimizer_slots(values, tmp_path):
    save_original(tmp_path, with_slots(original_values(values)))
    contents = checkpoints.open_checkpoint(str(tmp_path))
    assert contents.format == "tf1" and contents.config == CONFIG
    assert_same(values_of(contents), values)
    assert contents.left_over == () and contents.optimizer_tensors == 2 * len(values) + 1


def test_averages_of_weights_are_none_of_the_model(values, tmp_path):
    named = original_values(values) | {"output_weights": np.ones([3, 16], np.float32)}
    save_original(tmp_path, named | {f"{name}/ExponentialMovingAverage": value for name, value in named.items()})
    contents = checkpoints.open_checkpoint(str(tmp_path))
    assert contents.tensors.keys() == values.keys() | {"head/dense/kernel"}
    assert contents.left_over == () and contents.optimizer_tensors == len(named)


@pytest.mark.parametrize(
    "given", ["", "bert_model.ckpt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"]
)
def test_the_path_may_be_a_folder_a_prefix_or_a_file(values, tmp_path, given):
    save_original(tmp_path, original_values(values))
    encoder = checkpoints.load_encoder(str(tmp_path / given))
    np.testing.assert_array_equal(encoder.pooler.kernel, values["encoder/pooler/kernel"])


@pytest.mark.parametrize("scope", ["", "module/bert/"])
def test_reads_encoder_without_heads_in_any_scope(values, tmp_path, scope):
    named = {name.replace("bert/", scope): v for name, v in original_values(values).items() if "cls/" not in name}
    save_original(tmp_path, named)
    contents = checkpoints.open_checkpoint(str(tmp_path))
    assert_same(values_of(contents), {path: v for path, v in values.items() if path.startswith("encoder/")})


def test_original_fine_tuning_outputs_become_heads(values, tmp_path):
    rng = np.random.default_rng(0)
    heads = {"output_weights": rng.random([3, 16], np.float32), "output_bias": rng.random(3, np.float32),
             "cls/squad/output_weights": rng.random([2, 16], np.float32),
             "cls/squad/output_bias": rng.random(2, np.float32)}  # fmt: skip
    save_original(tmp_path, original_values(values) | heads)
    tensors = checkpoints.open_checkpoint(str(tmp_path)).tensors
    np.testing.assert_array_equal(tensors["head/dense/kernel"].read(), heads["output_weights"].T)
    np.testing.assert_array_equal(tensors["span_head/dense/kernel"].read(), heads["cls/squad/output_weights"].T)
    np.testing.assert_array_equal(tensors["span_head/dense/bias"].read(), heads["cls/squad/output_bias"])


@pytest.mark.core
def test_what_is_written_has_the_originals_names(values, tmp_path):
    prefix = tf1.write(str(tmp_path), values)
    reader = tf.train.load_checkpoint(prefix)
    expected = original_values(values)
    assert set(reader.get_variable_to_shape_map()) == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value)


def changed(values, change) -> dict:
    named = original_values(values)
    change(named)
    return named


def exchange(a, b):
    def change(named):
        named[a], named[b] = named[b], named[a]

    return change


LAYER = "bert/encoder/layer_{}/"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n.pop("bert/pooler/dense/bias"), r"encoder/pooler/bias \(bert/pooler/dense/bias\) is missing"),
        (lambda n: n.pop("cls/predictions/output_bias"), r"masked_lm/bias \(cls/predictions/output_bias\) is missing"),
        (lambda n: n.pop("bert/embeddings/LayerNorm/beta"), "embeddings/LayerNorm/beta.* is missing"),
        (lambda n: [n.pop(k) for k in list(n) if "layer_0" in k], r"bert/encoder/layer_0/.* is missing"),
        (lambda n: n.update({k.replace("r_1", "r_2"): v for k, v in n.items() if "layer_1" in k}),
         r"bert/encoder/layer_2/.* has no place in the model"),
        (exchange(f"{LAYER}intermediate/dense/kernel".format(0), f"{LAYER}output/dense/kernel".format(0)),
         r"bert/encoder/layer_0/intermediate/dense/kernel\) has shape \[32, 16\], the model needs \[16, 32\]"),
        (exchange("bert/embeddings/word_embeddings", "bert/embeddings/position_embeddings"),
         r"bert/embeddings/word_embeddings\) has shape \[12, 16\], the model needs \[40, 16\].*extended_vocab_file"),
        (lambda n: n.update({"bert/encoder/embedding_hidden_mapping_in/kernel": np.ones([2, 2])}),
         "embedding_hidden_mapping_in/kernel has no place .* architecture is not BERT"),
        (lambda n: n.update({"bert/pooler/dense/bias": np.full([16], np.nan, np.float32)}),
         "bert/pooler/dense/bias has infinite values or NaN"),
        (lambda n: n.update({"bert/pooler/dense/bias": np.ones([16], np.int8)}),
         "bert/pooler/dense/bias has type int8"),
        (lambda n: n.update({f"other/{k}": v for k, v in n.items()}), "holds two encoders"),
    ],
)  # fmt: skip
def test_what_is_not_this_bert_is_refused_by_tensor(values, tmp_path, change, message):
    save_original(tmp_path, changed(values, change))
    model = BertPretrainer(CONFIG)
    before = [w.numpy() for w in model.weights]
    refused(message, checkpoints.initialize, model, str(tmp_path))
    for value, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(value, weight)


def test_a_missing_pooler_is_initialized(values, tmp_path, caplog):
    save_original(tmp_path, changed(values, lambda n: [n.pop(k) for k in list(n) if "pooler" in k]))
    encoder = checkpoints.load_encoder(str(tmp_path))
    assert "has no pooler" in caplog.text
    kernel = values["encoder/blocks/1/intermediate/kernel"]
    np.testing.assert_array_equal(encoder.blocks[1].intermediate.kernel, kernel)


def test_missing_or_truncated_data_is_found_first(values, tmp_path):
    prefix = save_original(tmp_path, original_values(values))
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-200])
    refused(r"truncated \(\d+ bytes instead of at least \d+", checkpoints.open_checkpoint, prefix)
    data.unlink()
    refused("data-00000-of-00001 is missing", checkpoints.open_checkpoint, prefix)
