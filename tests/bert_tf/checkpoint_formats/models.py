"""Small models, and their checkpoints in the original's format with names listed in full, and in Hugging Face's."""

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from tests.bert_tf.reference import random_pretrainer
from tests.small_configs import small_config

CONFIG = small_config(40, 16, 2, max_position_embeddings=12)
PARTS = {
    "attention/query": "attention/self/query",
    "attention/key": "attention/self/key",
    "attention/value": "attention/self/value",
    "attention/output_dense": "attention/output/dense",
    "attention_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output_dense": "output/dense",
    "output_norm": "output/LayerNorm",
}
REST = {
    "encoder/embeddings/word_embeddings": "bert/embeddings/word_embeddings",
    "encoder/embeddings/position_embeddings": "bert/embeddings/position_embeddings",
    "encoder/embeddings/segment_embeddings": "bert/embeddings/token_type_embeddings",
    "encoder/embeddings/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "encoder/embeddings/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "encoder/pooler/kernel": "bert/pooler/dense/kernel",
    "encoder/pooler/bias": "bert/pooler/dense/bias",
    "masked_lm/transform/kernel": "cls/predictions/transform/dense/kernel",
    "masked_lm/transform/bias": "cls/predictions/transform/dense/bias",
    "masked_lm/layer_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
    "masked_lm/layer_norm/beta": "cls/predictions/transform/LayerNorm/beta",
    "masked_lm/bias": "cls/predictions/output_bias",
    "next_sentence/dense/kernel": "cls/seq_relationship/output_weights",
    "next_sentence/dense/bias": "cls/seq_relationship/output_bias",
}


def original_name(path: str) -> str:
    """Returns google-research/bert's name for one of our variables."""
    if path in REST:
        return REST[path]
    _, _, layer, rest = path.split("/", 3)
    part, weight = rest.rsplit("/", 1)
    return f"bert/encoder/layer_{layer}/{PARTS[part]}/{weight}"


def random_values(config: BertConfig = CONFIG) -> dict[str, np.ndarray]:
    """Returns the weights of a pre-trainer by our paths."""
    return {path: v.numpy() for path, v in variables_by_path(random_pretrainer(config)).items()}


def original_values(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the same weights with the original's names and shapes."""
    return {original_name(p): v.T if "seq_relationship/output_w" in original_name(p) else v for p, v in values.items()}


def save_original(folder, named: dict[str, np.ndarray], config: BertConfig | None = CONFIG, name="bert_model.ckpt"):
    """Writes named values in the format of TensorFlow 1's Saver; returns the prefix."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {key: tf.compat.v1.Variable(value) for key, value in named.items()}
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        prefix = saver.save(session, str(folder / name), write_meta_graph=False, write_state=False)
    if config is not None:
        (folder / "bert_config.json").write_text(config.to_json_string())
    return prefix


def values_of(contents) -> dict[str, np.ndarray]:
    """Returns all tensors of a checkpoint."""
    return contents.read(contents.tensors)


def assert_same(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert ours.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(ours[path], value, err_msg=path)


ENTRIES = {
    "architectures": ["BertForPreTraining"], "model_type": "bert", "vocab_size": 40, "hidden_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 12,
    "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
    "use_cache": True, "classifier_dropout": None, "transformers_version": "4.57.0",
}  # fmt: skip


def their_name(path: str) -> str:
    """Returns the name in a state_dict of theirs for one of our paths."""
    if path == "masked_lm/bias":
        return "cls.predictions.bias"
    if path.startswith("head/dense/"):
        return "classifier.weight" if path.endswith("kernel") else "classifier.bias"
    name = original_name(path).replace("output_weights", "weight").replace("output_bias", "bias")
    name = name.replace("kernel", "weight").replace("gamma", "weight").replace("beta", "bias")
    name = name.replace("/", ".").replace("layer_", "layer.")
    return name + ".weight" if name.endswith("_embeddings") else name


def theirs(values) -> dict[str, np.ndarray]:
    return {
        their_name(path): np.ascontiguousarray(value.T if path.endswith("kernel") else value)
        for path, value in values.items()
    }  # fmt: skip
