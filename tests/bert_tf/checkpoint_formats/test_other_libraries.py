"""Files of Hugging Face's TensorFlow classes, of KerasHub and of TF Hub, in the layouts that these libraries write."""

import json

import h5py
import numpy as np
import pytest
import tensorflow as tf
from official.legacy.bert import configs
from official.nlp.tools import export_tfhub_lib

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import names
from bert_tf.checkpoints import variables_by_path
from bert_tf.classifier import TextClassifier
from bert_tf.core.errors import InputError
from tests.bert_tf.classification import make_classifier
from tests.kit import refused
from tests.small_configs import small_config

CONFIG = small_config(60, 16, 2, 2, dropout=0.0, max_position_embeddings=20)
INPUTS = {"input_ids": tf.constant([[2, 5, 6, 3, 0]]), "input_mask": tf.constant([[1, 1, 1, 1, 0]])}


@pytest.fixture(scope="module")
def model():
    return make_classifier(CONFIG, 3)


def values_of(model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in variables_by_path(model).items()}


def tensorflow_name(path: str) -> str:
    """Returns the name in Hugging Face's .h5 files for one of our paths."""
    inner = names.row_of(path).original.replace("/layer_", "/layer_._")
    if path.startswith("head/"):
        inner = path.replace("head/dense", "classifier")
    if path.endswith("word_embeddings"):
        inner += "/weight"
    elif path.endswith("_embeddings"):
        inner += "/embeddings"
    return f"{inner.split('/')[0]}/tf_bert_for_sequence_classification/{inner}:0"


def write_hugging_face(folder, model) -> None:
    folder.mkdir()
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for path, value in values_of(model).items():
            file[tensorflow_name(path)] = value
    entries = CONFIG.to_dict() | {"model_type": "bert", "hidden_act": "gelu_new", "id2label": dict(enumerate("abc"))}
    del entries["directionality"]
    (folder / "config.json").write_text(json.dumps(entries | {"architectures": ["BertForSequenceClassification"]}))


def test_an_h5_file_that_names_another_file_is_refused(model, tmp_path):
    write_hugging_face(tmp_path / "theirs", model)
    (tmp_path / "secret").write_bytes(b"x" * 64)
    with h5py.File(tmp_path / "theirs/tf_model.h5", "a") as file:
        file.create_dataset("classifier/x:0", (16,), "f4", external=[(str(tmp_path / "secret"), 0, 64)])
    with pytest.raises(InputError, match="tf_model.h5: the tensor classifier/x:0 is in another file"):
        checkpoints.open_checkpoint(str(tmp_path / "theirs"))


def test_transformers_h5_file_loads_weights_and_head(model, tmp_path):
    write_hugging_face(tmp_path / "theirs", model)
    (tmp_path / "theirs/pytorch_model.bin").write_bytes(b"\x80\x02")  # is not chosen
    again = make_classifier(checkpoints.open_checkpoint(str(tmp_path / "theirs")).config, 3)
    checkpoints.initialize(again, str(tmp_path / "theirs/tf_model.h5"))
    for path, value in values_of(model).items():
        np.testing.assert_array_equal(variables_by_path(again)[path], value, err_msg=path)


def test_keras_hub_presets_keep_head_and_casing(model, tmp_path):
    attention = {"query": "query_dense", "key": "key_dense", "value": "value_dense", "output_dense": "output_dense"}
    parts = {f"attention/{ours}": f"_self_attention_layer/{theirs}" for ours, theirs in attention.items()}
    parts |= {
        "attention_norm": "_self_attention_layer_norm", "intermediate": "_feedforward_intermediate_dense",
        "output_dense": "_feedforward_output_dense", "output_norm": "_feedforward_layer_norm",
    }  # fmt: skip
    layers = {
        "encoder/pooler": "dense", "encoder/embeddings/layer_norm": "layer_normalization",
        "encoder/embeddings/word_embeddings": "reversible_embedding",
        "encoder/embeddings/position_embeddings": "position_embedding",
        "encoder/embeddings/segment_embeddings": "embedding", "head/dense": "dense",
    }  # fmt: skip
    with h5py.File(tmp_path / "model.weights.h5", "w") as file, h5py.File(tmp_path / "task.weights.h5", "w") as task:
        for path, value in values_of(model).items():
            ours, weight = (path, "kernel") if path.endswith("_embeddings") else path.rsplit("/", 1)
            layer = layers.get(ours, "")
            if ours.startswith("encoder/blocks/"):
                _, _, number, part = ours.split("/", 3)
                layer = f"transformer_encoder{f'_{number}' if number != '0' else ''}/{parts[part]}"
                if "attention/output" in part and weight == "kernel":
                    value = value.reshape(2, 8, 16)
                elif part.startswith("attention/") and "output" not in part:
                    value = value.reshape(*value.shape[:-1], 2, 8)
            target = task if ours.startswith("head") else file
            target[f"layers/{layer}/vars/{int(weight in ('bias', 'beta'))}"] = value
    sizes = {"vocabulary_size": 60, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32,
             "dropout": 0.0, "max_sequence_length": 20, "num_segments": 2}  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"registered_name": "keras_hub>BertBackbone", "config": sizes}))
    casing = {"lowercase": True, "strip_accents": False}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"registered_name": "keras_hub>BertTokenizer", "config": casing})
    )
    (tmp_path / "assets/tokenizer").mkdir(parents=True)
    (tmp_path / "assets/tokenizer/vocabulary.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nman\n")
    contents = checkpoints.open_checkpoint(str(tmp_path))
    again = make_classifier(contents.config, 3)
    checkpoints.initialize(again, str(tmp_path))
    for path, value in values_of(model).items():
        np.testing.assert_array_equal(variables_by_path(again)[path], value, err_msg=path)
    row = {"input_ids": [[2, 5, 6, 3]], "input_mask": [[1] * 4], "segment_ids": [[0] * 4]}
    expected = tf.nn.softmax(again({name: tf.constant(value) for name, value in row.items()})["logits"])
    found = TextClassifier.load(str(tmp_path), has_pairs=False).probabilities(["The man"])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    config.write_text(json.dumps({"registered_name": "keras_hub>RobertaBackbone", "config": sizes}))
    refused("keras_hub>RobertaBackbone is not BERT", checkpoints.open_checkpoint, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_tf_hub_model_outputs_vocabulary_and_casing(tmp_path, vocab_file, lower):
    config = configs.BertConfig(60, 16, 2, 2, 32, max_position_embeddings=20, type_vocab_size=2)
    encoder = export_tfhub_lib.get_bert_encoder(config)
    for variable in encoder.trainable_variables:
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.2, seed=3))
    prefix = tf.train.Checkpoint(encoder=encoder).save(str(tmp_path / "theirs/ckpt"))
    folder = str(tmp_path / "hub")
    export_tfhub_lib.export_model(
        folder, bert_config=config, encoder_config=None, model_checkpoint_path=prefix, with_mlm=False,
        vocab_file=vocab_file, do_lower_case=lower,
    )  # fmt: skip
    names = {"input_word_ids": "input_ids", "input_mask": "input_mask"}
    theirs = {their: INPUTS[ours] for their, ours in names.items()}
    expected = tf.saved_model.load(folder)(theirs | {"input_type_ids": tf.zeros_like(INPUTS["input_ids"])})
    ours = checkpoints.load_encoder(folder)(INPUTS)
    np.testing.assert_allclose(ours["pooled_output"], expected["pooled_output"], atol=2e-5)
    np.testing.assert_allclose(ours["sequence_output"][:, :4], expected["sequence_output"][:, :4], atol=2e-5)
    rules = checkpoint_tokenizer.stated_rules(checkpoints.open_checkpoint(folder))
    assert (rules.do_lower_case, rules.source) == (lower, f"{folder}/saved_model.pb")
    assert rules.vocab_file.endswith(".txt")
