"""Freezes the lower layers of the encoder in fine-tuning, or trains them with lower learning rates.

The lower layers represent general knowledge of language from pre-training, so they need less training than the head.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.encoder import BertEncoder
from bert_tf.settings import FineTuningSettings
from bert_tf.training import flops

# The value of `--frozen_layers` that freezes the whole encoder, so that only the head is trained.
WHOLE_ENCODER = -1


def check(config: BertConfig, settings: FineTuningSettings) -> None:
    """Refuses settings that freeze or transfer more layers than the model has."""
    for layers in (settings.transfer_layers, *(settings.transferred if settings.sweep else ())):
        if layers is not None and layers > config.num_hidden_layers:
            raise InputError(
                f"--transfer_layers={layers}: the model has {config.num_hidden_layers} layers; give at most this number"
            )
    if settings.frozen_layers > config.num_hidden_layers:
        raise InputError(
            f"--frozen_layers={settings.frozen_layers}: the model has {config.num_hidden_layers} layers; give at most "
            f"this number, or {WHOLE_ENCODER} to train only the head"
        )


def freeze(encoder: BertEncoder, frozen_layers: int) -> None:
    """Freezes the embeddings and the lowest layers of an encoder. Frozen weights have no gradients, and the optimizer
    keeps no moments for frozen weights. Dropout is still applied.
    `frozen_layers`: number of layers to freeze, in addition to the embeddings. 0 freezes nothing, not even the
      embeddings. -1 freezes the whole encoder with its pooler."""
    if frozen_layers == WHOLE_ENCODER:
        encoder.trainable = False
    elif frozen_layers:
        for each in encoder.encoders:
            for layer in (each.embeddings, *each.blocks[:frozen_layers]):
                layer.trainable = False


def flops_saved(config: BertConfig, frozen_layers: int, length: int) -> int:
    """Computes the FLOPs that frozen layers save in the backward pass of a row. The result is two thirds of the FLOPs
    for training these layers.
    `length`: length of the row, in tokens."""
    if not frozen_layers:
        return 0
    frozen = config.num_hidden_layers if frozen_layers == WHOLE_ENCODER else frozen_layers
    layers = dataclasses.replace(config, num_hidden_layers=frozen)
    return flops.training_flops(layers, length) * 2 // 3


def rate_factor(encoder: BertEncoder, decay: float) -> Callable[[tf.Variable], float] | None:
    """Returns a function that maps a weight to the factor of its learning rate. The layers are numbered from 0 (the
    lowest layer) to L - 1. Layer l has the factor decay^(L - l). The embeddings have the factor decay^(L + 1). The
    pooler and the head have the factor 1.
    `decay`: ratio of a layer's factor to the factor of the next higher layer; above 0 and at most 1.
    The result is the function; None if all factors are 1."""
    if decay == 1.0:
        return None
    factors = {
        id(weight): decay**power
        for each in encoder.encoders
        for power, layer in enumerate([*reversed(each.blocks), each.embeddings], start=1)
        for weight in layer.weights
    }
    return lambda weight: factors.get(id(weight), 1.0)
