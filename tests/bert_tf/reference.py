"""tf-models-official's BERT with the weights of ours: an independent implementation to compare with."""

import numpy as np
import tensorflow as tf
from official.nlp.modeling import layers, models, networks

from bert_tf.config import BertConfig
from bert_tf.pretraining import BertPretrainer

_BLOCK = {
    "self_attention/query": "attention/query",
    "self_attention/key": "attention/key",
    "self_attention/value": "attention/value",
    "self_attention/attention_output": "attention/output_dense",
    "self_attention_layer_norm": "attention_norm",
    "intermediate": "intermediate",
    "output": "output_dense",
    "output_layer_norm": "output_norm",
}
_REST = {
    "word_embeddings/embeddings": "encoder/embeddings/word_embeddings",
    "position_embedding/embeddings": "encoder/embeddings/position_embeddings",
    "type_embeddings/embeddings": "encoder/embeddings/segment_embeddings",
    "embeddings/layer_norm": "encoder/embeddings/layer_norm",
    "pooler_transform": "encoder/pooler",
    "next_sentence/logits": "next_sentence/dense",
    "predictions/output_bias": "masked_lm",
    "predictions/transform/dense": "masked_lm/transform",
    "predictions/transform/LayerNorm": "masked_lm/layer_norm",
}


def our_path(reference_name: str) -> str:
    """The path of our variable for the name of one of theirs."""
    name = reference_name.split(":")[0]
    for theirs, ours in _REST.items():
        if name.endswith(theirs):
            return ours
        if name.rsplit("/", 1)[0].endswith(theirs):
            return f"{ours}/{name.rsplit('/', 1)[1]}"
    layer, rest = name.split("/layer_")[1].split("/", 1)
    part, weight = rest.rsplit("/", 1)
    return f"encoder/blocks/{layer}/{_BLOCK[part]}/{weight}"


def official_pretrainer(config: BertConfig, weights: dict[str, tf.Variable]) -> models.BertPretrainerV2:
    """Their pre-trainer: tanh GELU in the MLM head, the NSP head without an inner layer."""
    encoder = networks.BertEncoderV2(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        inner_dim=config.intermediate_size,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        output_dropout=0.0,
        attention_dropout=0.0,
    )
    head = layers.ClassificationHead(inner_dim=0, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder, mlm_activation=lambda x: tf.nn.gelu(x, approximate=True), classification_heads=[head]
    )
    ones = np.ones([1, 4], np.int32)
    model({"input_word_ids": ones, "input_mask": ones, "input_type_ids": ones, "masked_lm_positions": ones})
    used = set()
    for variable in model.trainable_variables:
        path = our_path(variable.name)
        variable.assign(tf.reshape(weights[path], variable.shape))
        used.add(path)
    assert used == set(weights), "every weight of ours has one of theirs"
    return model


def random_pretrainer(config: BertConfig, seed: int = 0) -> BertPretrainer:
    """Our pre-trainer with every weight, biases and norms included, set to something that matters."""
    rng = np.random.default_rng(seed)
    model = BertPretrainer(config)
    for variable in model.trainable_variables:
        noise = 0.2 * rng.standard_normal(variable.shape)
        variable.assign(noise + (1.0 if "gamma" in variable.name else 0.0))
    return model


def random_batch(config: BertConfig, batch: int, length: int, predictions: int, seed: int = 0) -> dict:
    """Rows of different lengths, two segments, masked positions within the rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(predictions + 2, length + 1, batch)
    lengths[0] = length
    column = np.arange(length)[None, :]
    mask = column < lengths[:, None]
    segments = (column >= (lengths // 2)[:, None]) & mask
    positions = np.stack([np.sort(rng.permutation(n)[:predictions]) for n in lengths])
    features = {
        "input_ids": rng.integers(0, config.vocab_size, (batch, length)) * mask,
        "input_mask": mask,
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": rng.integers(0, config.vocab_size, (batch, predictions)),
        "next_sentence_labels": rng.integers(0, 2, batch),
    }
    weights = (rng.random((batch, predictions)) < 0.8).astype(np.float32)
    return {k: tf.constant(v, tf.int32) for k, v in features.items()} | {"masked_lm_weights": tf.constant(weights)}


def relative_error(a, b) -> float:
    """max|a - b| / max|b|."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    return np.abs(a - b).max() / np.abs(b).max()
