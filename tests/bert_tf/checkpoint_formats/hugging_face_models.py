"""The small model in Hugging Face's format."""

import numpy as np

from tests.bert_tf.checkpoint_formats.models import original_name

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
