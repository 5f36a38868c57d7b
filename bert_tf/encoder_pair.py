"""ELMo's pair of encoders, and the encoder that belongs to a configuration."""

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.modeling.dropout import dropout_seed, fold_in


class EncoderPair(keras.Model):
    """A left-to-right and a right-to-left encoder, with the outputs of both joined along the last axis.
    Paper: section 5.1 (the last paragraph) and Figure 3, ELMo.
    `config`: the configuration of the pair; H is the size of both encoders together.
    `recompute_activations`: see `BertEncoder`.
    `ltr`: the encoder that reads from left to right, with the hidden size H / 2.
    `rtl`: the encoder that reads from right to left, with the hidden size H / 2."""

    def __init__(self, config: BertConfig, recompute_activations: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.ltr, self.rtl = (BertEncoder(half, recompute_activations) for half in config.encoders.values())

    @property
    def encoders(self) -> list[BertEncoder]:
        """The two encoders."""
        return [self.ltr, self.rtl]

    def get_config(self) -> dict:
        raise ValueError("Keras cannot store a pair of encoders; use save_weights, or a checkpoint of TensorFlow")

    def call(self, inputs, training=False, seed=None, positions=None):
        """Encodes a batch; see `BertEncoder.call` for the arguments and the result."""
        seed = dropout_seed(training, seed)
        seeds = [None, None] if seed is None else [seed, fold_in(seed, 1)]
        outputs = [
            encoder(inputs, training=training, seed=seed, positions=positions)
            for encoder, seed in zip(self.encoders, seeds, strict=True)
        ]
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=-1), *outputs)


def make_encoder(config: BertConfig, recompute_activations: bool = False) -> BertEncoder | EncoderPair:
    """Returns a new encoder, or a pair of encoders if the configuration says so."""
    return (EncoderPair if len(config.encoders) > 1 else BertEncoder)(config, recompute_activations)
