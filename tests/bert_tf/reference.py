"""tf-models-official's BERT with our weights: an independent implementation for comparisons."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from official.nlp.modeling import layers, models, networks
from official.nlp.tasks import masked_lm

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective

# Shapes of comparisons: sizes that are not multiples of each other, one head, many layers and heads, long rows.
CONFIG = BertConfig(97, 48, 3, 4, 80, max_position_embeddings=24, type_vocab_size=2)
ONE_HEAD = BertConfig(50, 32, 1, 1, 128, max_position_embeddings=16, type_vocab_size=16)
DEEP = BertConfig(211, 64, 6, 16, 64, max_position_embeddings=70, type_vocab_size=2)
LONG = BertConfig(400, 128, 2, 2, 512, max_position_embeddings=128, type_vocab_size=2)

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
    "next_sentence/pooler_dense": "encoder/pooler",
    "next_sentence/logits": "next_sentence/dense",
    "predictions/output_bias": "masked_lm",
    "predictions/transform/dense": "masked_lm/transform",
    "predictions/transform/LayerNorm": "masked_lm/layer_norm",
}


def our_path(reference_name: str) -> str:
    """Returns the path of our variable for one of their names."""
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
    """Returns the pre-trainer of their pre-training script, with tanh GELU in the MLM head.

    The NSP head has its own pooler in addition to the encoder's; both get our pooler's weights.
    """
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
        return_word_embeddings=True,
    )
    head = layers.ClassificationHead(inner_dim=config.hidden_size, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder, mlm_activation=lambda x: tf.nn.gelu(x, approximate=True), classification_heads=[head]
    )
    ones = np.ones([1, 4], np.int32)
    model({"input_word_ids": ones, "input_mask": ones, "input_type_ids": ones, "masked_lm_positions": ones})
    variables = _official_variables(model)
    assert variables.keys() == weights.keys(), "every weight of ours has one of theirs"
    for path, theirs in variables.items():
        for variable in theirs:
            variable.assign(tf.reshape(weights[path], variable.shape))
    return model


def _official_variables(theirs: models.BertPretrainerV2) -> dict[str, list[tf.Variable]]:
    """Returns their variables by our paths; two for the pooler."""
    variables = {}
    for variable in theirs.trainable_variables:
        variables.setdefault(our_path(variable.name), []).append(variable)
    return variables


def official_outputs_and_gradients(theirs: models.BertPretrainerV2, batch: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns their outputs by our names, and the gradients of their pre-training loss by our paths."""
    their_batch = {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch.get("segment_ids", tf.zeros_like(batch["input_ids"])),
        "masked_lm_positions": batch["masked_lm_positions"],
    }
    metrics = [keras.metrics.Mean(name=name) for name in ("lm_example_loss", "next_sentence_loss")]
    variables = _official_variables(theirs)
    with tf.GradientTape() as tape:
        outputs = theirs(their_batch)
        loss = masked_lm.MaskedLMTask(masked_lm.MaskedLMConfig()).build_losses(batch, outputs, metrics)
    # their loss does not depend on the encoder's pooler
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    renamed = {
        "embedding_output": outputs["word_embeddings"],
        "encoder_outputs": outputs["encoder_outputs"],
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        "masked_lm_logits": outputs["mlm_logits"],
        "next_sentence_logits": outputs["next_sentence"],
        "loss": loss,
    }
    return renamed, {path: sum(map(_dense, parts)) for path, parts in gradients.items()}


def outputs_and_gradients(
    model: BertPretrainer, batch: dict, next_sentence: bool = True, training: bool = False
) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns our outputs, the joint loss of training, and its gradients by path, without variables that have none."""
    variables = variables_by_path(model)
    with tf.GradientTape() as tape:
        loss = loss_of(PretrainingObjective(model, next_sentence), batch, training=training)
    gradients = tape.gradient(loss, variables)
    return {**model(batch), "loss": loss}, {p: _dense(g) for p, g in gradients.items() if g is not None}


def loss_of(objective, batch: dict, training: bool = False, seed=None) -> tf.Tensor:
    """Returns the loss of a batch, float32 []."""
    return objective.loss(objective.numerators(batch, training, seed)["loss"], objective.denominators(batch)["loss"])


def means_of(objective, batch: dict, training: bool = False, seed=None) -> dict[str, tf.Tensor]:
    """Returns the loss terms and metrics of a batch by name, float32 []."""
    numerators, denominators = objective.numerators(batch, training, seed), objective.denominators(batch)
    assert numerators.keys() == denominators.keys()
    return {n: value / denominators[kind][n] for kind, part in numerators.items() for n, value in part.items()}


def _dense(gradient) -> np.ndarray:
    """Returns a gradient as an array; gradients of tables are slices."""
    return tf.convert_to_tensor(gradient).numpy().astype(np.float64)


def assert_outputs_equal(ours: dict, theirs: dict) -> None:
    """Asserts max|a - b| <= 1e-5 max|b| for each output at all positions, including padding."""
    assert theirs.keys() <= ours.keys()
    for name, reference in theirs.items():
        parts = zip(ours[name], reference, strict=True) if isinstance(reference, list) else [(ours[name], reference)]
        for index, (a, b) in enumerate(parts):
            error = relative_error(a, b)
            assert error <= 1e-5, f"{name} {index}: {error:.1e}"


def assert_gradients_equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Asserts norm(a - b) <= 1e-4 norm(b) for each tensor.

    The gradient of a key's bias is zero, since the bias adds a constant to all scores of a row; it has 1e-6 absolute.
    """
    assert ours.keys() == theirs.keys()
    for path, reference in theirs.items():
        gradient = ours[path].reshape(reference.shape)
        if path.endswith("attention/key/bias"):
            error = max(np.abs(gradient).max(), np.abs(gradient - reference).max())
            assert error <= 1e-6, f"{path}: {error:.1e}"
            continue
        error = np.linalg.norm(gradient - reference) / np.linalg.norm(reference)
        assert error <= 1e-4, f"{path}: {error:.1e}"


def randomize(layer, seed: int = 0, stddev: float = CONFIG.hidden_size**-0.5):
    """Sets all weights, including biases and norms, to values with an effect, by default of unit gain for `CONFIG`."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        noise = stddev * rng.standard_normal(variable.shape)
        variable.assign(noise + (1.0 if "gamma" in variable.name else 0.0))
    return layer


def random_pretrainer(config: BertConfig, seed: int = 0, stddev: float = 0.2) -> BertPretrainer:
    return randomize(BertPretrainer(config), seed, stddev)


def random_batch(
    config: BertConfig, batch: int, length: int, predictions: int, seed: int = 0, padded: bool = True
) -> dict:
    """Returns rows of two segments with masked positions, by default of different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(predictions + 2, length + 1, batch)
    lengths[0 if padded else slice(None)] = length
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
    """Returns max|a - b| / max|b|."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    return np.abs(a - b).max() / np.abs(b).max()
