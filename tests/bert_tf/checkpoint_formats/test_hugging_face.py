import dataclasses
import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_tf import checkpoints
from bert_tf.checkpoint_formats.model_config import from_hugging_face
from bert_tf.pretraining.objective import BertPretrainer
from tests.bert_tf.checkpoint_formats.models import (
    CONFIG,
    ENTRIES,
    assert_same,
    random_values,
    their_name,
    theirs,
    values_of,
)
from tests.kit import refused


@pytest.fixture(scope="module")
def values():
    return random_values()


def saved(folder, tensors, entries=ENTRIES):
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(entries))
    return str(folder)


def opened(folder, tensors, entries=ENTRIES):
    return checkpoints.open_checkpoint(saved(folder, tensors, entries))


@pytest.mark.core
def test_a_folder_is_read_whole(values, tmp_path):
    contents = opened(tmp_path, theirs(values))
    assert contents.format == "hugging_face" and contents.config == CONFIG and contents.left_over == ()
    assert_same(values_of(contents), values)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_file_of_the_folder_stands_for_it(values, tmp_path, file):
    saved(tmp_path, theirs(values))
    encoder = checkpoints.load_encoder(str(tmp_path / file))
    np.testing.assert_array_equal(encoder.pooler.kernel, values["encoder/pooler/kernel"])


@pytest.mark.parametrize("scope", ["", "0.auto_model."])
def test_an_encoder_alone_may_stand_in_any_scope(values, tmp_path, scope):
    encoder = {path: value for path, value in values.items() if path.startswith("encoder/")}
    contents = opened(tmp_path, {name.replace("bert.", scope): value for name, value in theirs(encoder).items()})
    assert_same(values_of(contents), encoder)


def test_old_names_ties_and_buffers_are_understood(values, tmp_path):
    tensors = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for name, value in theirs(values).items()}  # fmt: skip
    del tensors["cls.predictions.bias"]
    tensors |= {
        "bert.embeddings.position_ids": np.arange(12, dtype=np.int64)[None],
        "cls.predictions.decoder.weight": values["encoder/embeddings/word_embeddings"].copy(),
        "cls.predictions.decoder.bias": values["masked_lm/bias"].copy(),
    }
    contents = opened(tmp_path, tensors)
    assert_same(values_of(contents), values)
    assert contents.left_over == ()


def sharded(folder, tensors):
    """Writes two files and an index; returns the path of the index."""
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(ENTRIES))
    return folder / "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["", "model.safetensors.index.json"])
def test_sharded_files_with_index_are_one_checkpoint(values, tmp_path, name):
    sharded(tmp_path, theirs(values))
    assert_same(values_of(checkpoints.open_checkpoint(str(tmp_path / name))), values)


def test_refuses_index_that_does_not_match_files(values, tmp_path):
    index = sharded(tmp_path, theirs(values))
    second = max(json.loads(index.read_text())["weight_map"].values())
    (tmp_path / second).unlink()
    refused(f"{second}: no such file; copy all files of the model", checkpoints.load_encoder, str(tmp_path))
    index.write_text("{}")
    refused("is not an index of safetensors", checkpoints.load_encoder, str(tmp_path))


def test_architectures_entry_selects_kind_of_head(values, tmp_path):
    weights = {"classifier.weight": np.ones([3, 16], np.float32), "classifier.bias": np.ones([3], np.float32)}
    for name, head in [("BertForSequenceClassification", "head"), ("BertForTokenClassification", "token_head")]:
        contents = opened(tmp_path, theirs(values) | weights, ENTRIES | {"architectures": [name]})
        assert contents.tensors[f"{head}/dense/kernel"].shape == (16, 3)
        assert contents.describe(f"{head}/dense/kernel") == f"{head}/dense/kernel (classifier.weight)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("bert.encoder.layer.1.output.LayerNorm.bias"),
         r"blocks/1/output_norm/beta \(bert.encoder.layer.1.output.LayerNorm.bias\) is missing"),
        (lambda t: t.update({"bert.pooler.dense.bias": np.ones([16], np.int8)}), "pooler.dense.bias has type I8"),
        (lambda t: t.pop("bert.embeddings.word_embeddings.weight"), "holds no BERT encoder"),
    ],
)  # fmt: skip
def test_what_is_not_this_bert_is_refused_by_tensor(values, tmp_path, change, message):
    tensors = theirs(values)
    change(tensors)
    refused(message, checkpoints.initialize, BertPretrainer(CONFIG), saved(tmp_path, tensors))


@pytest.mark.parametrize(
    ("name", "shape", "shared"),
    [
        ("cls.predictions.decoder.weight", [40, 16], "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.weight", [48, 16], "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", [40], "cls.predictions.bias"),
    ],
)
def test_untied_masked_lm_output_is_left_out(values, tmp_path, caplog, name, shape, shared):
    contents = opened(tmp_path, theirs(values) | {name: np.ones(shape, np.float32)})
    assert f"the tensor {name} differs from {shared}, but must equal it in BERT; the masked-LM" in caplog.text
    assert_same(values_of(contents), {path: v for path, v in values.items() if not path.startswith("masked_lm/")})
    their_head = {their_name(path) for path in values if path.startswith("masked_lm/")}
    assert set(contents.left_over) == their_head | {name}


def test_only_weights_must_be_of_a_type_for_weights(values, tmp_path):
    contents = opened(tmp_path, theirs(values) | {"num_batches_tracked": np.int64([3]), "a.mask": np.ones([2], bool)})
    assert_same(values_of(contents), values)
    assert set(contents.left_over) == {"num_batches_tracked", "a.mask"}
    quantized = theirs(values) | {"cls.predictions.decoder.bias": np.ones([40], np.uint8)}
    refused("decoder.bias has type U8, .* before quantization", opened, tmp_path, quantized)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("classifier.bias"),
         r"head/dense/bias \(classifier.bias\) is missing; .*; give the task that .*, or copy the checkpoint again$"),
        (lambda t: t.pop("classifier.weight"), r"head/dense/kernel \(classifier.weight\) is missing"),
        (lambda t: t.update({"classifier.weight": np.ones([3, 99], np.float32)}),
         r"\(classifier.weight\) has shape \[99, 3\], the model needs \[16, 3\]; give the task that the"),
        (lambda t: t.update({"classifier.bias": np.ones([2], np.float32)}), r"has shape \[2\], the model needs \[3\]"),
        (lambda t: t.update({"classifier.weight": np.ones([3], np.float32)}), r"the model needs \[16, 3\]"),
        (lambda t: t.update({"qa_outputs.weight": np.ones([3, 16], np.float32),
                             "qa_outputs.bias": np.ones([3], np.float32)}), r"the model needs \[16, 2\]"),
    ],
)  # fmt: skip
def test_a_task_s_head_must_be_whole_and_fit(values, tmp_path, change, message):
    head = {"classifier.weight": np.ones([3, 16], np.float32), "classifier.bias": np.ones([3], np.float32)}
    contents = opened(tmp_path, theirs(values) | head)
    assert contents.check_pretrained(CONFIG) == []
    change(head)
    refused(message, opened(tmp_path, theirs(values) | head).check_pretrained, CONFIG)


def test_an_original_configuration_gives_a_warning(values, tmp_path, caplog):
    saved(tmp_path, theirs(values))
    os.rename(tmp_path / "config.json", tmp_path / "other.json")
    for activation in ("gelu_erf", "gelu"):
        (tmp_path / "bert_config.json").write_text(dataclasses.replace(CONFIG, hidden_act=activation).to_json_string())
        assert "tanh form" not in caplog.text
        assert checkpoints.open_checkpoint(str(tmp_path)).config.hidden_act == activation
    assert f"{tmp_path}/bert_config.json: hidden_act=gelu means the original's tanh form" in caplog.text


@pytest.mark.parametrize("size", [4, 300, -10])
def test_a_truncated_file_is_refused(values, tmp_path, size):
    saved(tmp_path, theirs(values))
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    refused("model.safetensors: cannot be read as .*; copy it again", checkpoints.load_encoder, str(tmp_path))


def test_refuses_other_model_types_and_configurations(values, tmp_path):
    for change, message in [
        ({"model_type": "roberta"}, "config.json: model_type='roberta' is not BERT"),
        ({"layer_norm_eps": 0}, "layer_norm_eps=0: must be above 0"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key': BERT only supports 'absolute'",
        ),
        ({"num_attention_heads": 3}, "config.json: hidden_size=16 is not a multiple of num_attention_heads=3"),
        ({"hidden_act": ["gelu"]}, r"config.json: hidden_act=\['gelu'\]: must be one of"),
        ({"vocab_size": 41}, r"word_embeddings.weight\) has shape \[40, 16\], the model needs \[41, 16\]"),
    ]:
        refused(message, checkpoints.load_encoder, saved(tmp_path, theirs(values), ENTRIES | change))


def test_their_gelu_is_exact_without_a_model_type(values, tmp_path):
    plain = {key: ENTRIES[key] for key in ENTRIES if key not in ("architectures", "model_type", "transformers_version")}
    path = saved(tmp_path, theirs(values), plain | {"hidden_act": "gelu"})
    assert checkpoints.load_encoder(path).config.hidden_act == "gelu_erf"
    assert checkpoints.read_config(f"{path}/config.json").hidden_act == "gelu_erf"
    assert from_hugging_face(ENTRIES | {"is_decoder": True}).directionality == "ltr"
