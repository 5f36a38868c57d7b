"""Finds the checkpoint and the tokenizer for `VectorSettings`, and loads the encoder up to the highest requested layer.

Paper: section 5.3.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import names, sentence_transformers
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.encoder import BertEncoder
from bert_tf.features.pooling import Pooling
from bert_tf.settings.features import VectorSettings

_DEFAULT_LENGTH = 128


def resolve(settings: VectorSettings) -> VectorSettings:
    """Returns the settings; missing values come from the checkpoint's folder."""
    contents = checkpoints.open_checkpoint(settings.init_checkpoint, settings.bert_config_file)
    rules = checkpoint_tokenizer.resolve(settings, contents)
    layer_indices(settings, contents.require_config())
    folder = contents.folder
    changes = {
        "init_checkpoint": contents.source,
        "bert_config_file": contents.config_file,
        "vocab_file": rules.vocab_file,
        "do_lower_case": rules.do_lower_case,
        "strip_accents": rules.strip_accents,
        "max_seq_length": _length(settings, contents),
    }
    if settings.sentence_vectors:
        sentence_transformers.check_texts(folder, rules.do_lower_case)
        changes |= {
            "pooling": settings.pooling or sentence_transformers.pooling_mode(folder),
            "dimensions": settings.dimensions or sentence_transformers.stated_dimensions(folder),
        }
    sentence_transformers.check_pooling(changes.get("pooling") or settings.pooling, contents.require_config())
    if settings.is_pooled and settings.prompt is None:
        changes["prompt"] = sentence_transformers.prompt_of(folder, settings.prompt_name)
    pooling_of(settings, folder)
    size = contents.require_config().hidden_size
    if (settings.dimensions or 0) > size:
        raise InputError(
            f"--dimensions={settings.dimensions}: the model's vectors have {size} numbers; give at most this"
        )
    return dataclasses.replace(settings, layers=",".join(map(str, settings.layer_numbers)), **changes)


def pooling_of(settings: VectorSettings, folder: str) -> Pooling:
    """Returns how the vectors of tokens are pooled. As in sentence-transformers, the module Normalize is applied before
    `dimensions`, and the flag --normalize afterwards.
    `settings`: the result of `resolve`.
    `folder`: the checkpoint's folder."""
    by_module = settings.sentence_vectors and settings.normalize is None
    normalize = sentence_transformers.is_normalized(folder) if by_module else bool(settings.normalize)
    return Pooling(settings.pooling or "", normalize, settings.dimensions, cuts_first=not by_module)


def _length(settings: VectorSettings, contents: OpenCheckpoint) -> int:
    config = contents.require_config()
    if settings.max_seq_length is None:
        positions = config.max_position_embeddings
        if settings.sentence_vectors:
            return min(sentence_transformers.longest_sentence(contents.folder) or positions, positions)
        return min(_DEFAULT_LENGTH, positions)
    config.check_length(settings.max_seq_length, contents.config_file)
    return settings.max_seq_length


def layer_indices(settings: VectorSettings, config: BertConfig) -> tuple[int, ...]:
    """Returns the indices of the requested layers; index 0 means the embeddings."""
    depth = config.num_hidden_layers
    for number in settings.layer_numbers:
        if not -depth <= number <= depth:
            raise InputError(
                f"--layers: the encoder has no layer {number}; give -{depth} to {depth}, where -1 is the top layer and "
                "0 the embeddings"
            )
    return tuple(number if number >= 0 else depth + 1 + number for number in settings.layer_numbers)


def encoder_sha256(settings: VectorSettings) -> str:
    """Hashes the configuration and the weights of the encoder; see `OpenCheckpoint.sha256`."""
    contents = checkpoints.open_checkpoint(settings.init_checkpoint, settings.bert_config_file)
    return contents.sha256(path for path in names.encoder_shapes(contents.require_config()) if path in contents.tensors)


def stack_layers(outputs: Mapping[str, Any], layers: Sequence[int]) -> tf.Tensor:
    """Returns layers of an encoder's outputs, float32 [B, S, L, H]; index 0 means the embeddings."""
    every = [outputs["embedding_output"], *outputs["encoder_outputs"]]
    return tf.stack([tf.cast(every[layer], tf.float32) for layer in layers], axis=2)


def load(settings: VectorSettings) -> BertEncoder:
    """Loads the encoder without the layers above the highest requested layer."""
    encoder = checkpoints.load_encoder(settings.init_checkpoint, settings.bert_config_file)
    for each in encoder.encoders:
        each.blocks = each.blocks[: max(layer_indices(settings, encoder.config))]
    encoder.trainable = False
    return encoder
