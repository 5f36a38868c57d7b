"""Converts checkpoints to another format or a larger vocabulary."""

import dataclasses
import os

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints, command_line
from bert_tf.checkpoint_formats import (
    hugging_face,
    model_config,
    names,
    native,
    tf1,
    tf_models,
    tokenizer_config,
    vocabulary_growth,
)
from bert_tf.checkpoint_formats.contents import HEAD_POOLERS, Contents, trained_pooler
from bert_tf.config import BertConfig
from bert_tf.runs import checkpoint_tokenizer
from bert_tf.runs.checkpoint_tokenizer import CheckpointTokenizer
from bert_tf.settings import ConversionSettings
from bert_tf.tokenization import load_vocabulary
from tfrecords import writer
from tfrecords.errors import InputError

_WORDS, _BIAS = "encoder/embeddings/word_embeddings", "masked_lm/bias"
# Attention directions that each format's own code supports.
_DIRECTIONS = {"bert_tf": ("bidi", "ltr", "rtl"), "hugging_face": ("bidi", "ltr")}


def convert_checkpoint(settings: ConversionSettings) -> None:
    """Writes a checkpoint in another format, together with its configuration and vocabulary.

    The output folder appears only when it is complete.

    Raises:
      InputError: the input cannot be read or is incomplete, the output format cannot represent it, or the output
        folder is not empty.
    """
    writer.check_new_folder(settings.output, "output")
    contents = checkpoints.open_checkpoint(settings.input, settings.bert_config_file)
    if settings.format != "tf_models":
        contents = trained_pooler(contents)
    config = contents.require_config()
    fresh = contents.check_pretrained(config)
    _check_format(settings.format, contents, config)
    paths = [path for path in contents.tensors if names.row_of(path) or path.startswith(HEAD_POOLERS)]
    if settings.keep_optimizer:
        _require_moments(contents, paths)
    tokenizer = checkpoint_tokenizer.find(contents, settings.input)
    if not settings.ignore_checkpoint_tokenizer:
        tokenizer.check(settings.do_lower_case, settings.vocab_file)
    vocab_file = settings.vocab_file or contents.vocab_file
    vocabulary = load_vocabulary(vocab_file) if vocab_file else []
    _check_vocabulary(settings, contents, config, vocab_file, len(vocabulary))
    extended = load_vocabulary(settings.extended_vocab_file) if settings.extended_vocab_file else []

    tensors = contents.read(paths)
    if extended:
        tensors, config = _extend_vocabulary(tensors, config, vocabulary, extended)
    with writer.atomic_folder(settings.output) as folder:
        moments, step = (_read_moments(contents), contents.global_step) if settings.keep_optimizer else ({}, None)
        _write(settings.format, folder, tensors, config, moments, step)
        if settings.format == "hugging_face":
            hugging_face.keep_labels(folder, contents)
        _write_tokenizer(folder, settings, tokenizer, settings.extended_vocab_file or vocab_file, config)
        writer.write_text(os.path.join(folder, "conversion.json"), command_line.to_json(settings))
    kept = dataclasses.replace(contents, optimizer_tensors=0) if settings.keep_optimizer else contents
    kept.report(tensors, [])
    if fresh:
        logging.warning("%s has no pooler, so %s has none", contents.source, settings.output)
    logging.info("wrote %s (%s)", settings.output, settings.format)


def _write_tokenizer(
    folder: str, settings: ConversionSettings, tokenizer: CheckpointTokenizer, vocab_file: str, config: BertConfig
) -> None:
    """Writes the vocabulary and the tokenizer's rules."""
    if vocab_file:
        tf.io.gfile.copy(vocab_file, os.path.join(folder, checkpoints.VOCABULARY_NAME))
    known = tokenizer_config.read(tokenizer.folder)
    if settings.extended_vocab_file:  # its ids may differ
        known.pop("added_tokens_decoder", None)
    lower = tokenizer.casing.do_lower_case if settings.do_lower_case is None else settings.do_lower_case
    tokenizer_config.write(folder, lower, config.max_position_embeddings, known)
    if lower is None and settings.format == "hugging_face":
        logging.warning("%s does not say whether its tokenizer lower-cases, and transformers assumes that it does; "
                        "give --do_lower_case", tokenizer.source)  # fmt: skip


def _write(format: str, folder: str, tensors, config: BertConfig, moments, global_step: int | None) -> None:
    if format == "hugging_face":
        hugging_face.write(folder, tensors, config)
        return
    writer.write_text(os.path.join(folder, model_config.ORIGINAL_NAME), config.to_json_string())
    if format == "tf_models":
        tf_models.write(folder, tensors, config)
    else:
        (tf1 if format == "tf1" else native).write(folder, tensors, moments, global_step)


def _check_format(format: str, contents: Contents, config: BertConfig) -> None:
    """Refuses a model that the format's own code would compute differently; warns about what that code refuses."""
    if config.directionality not in _DIRECTIONS.get(format, ("bidi",)):
        raise InputError(
            f"--format={format}: its code attends to both sides, so it would compute other outputs; {contents.source} "
            f"has directionality={config.directionality}; give --format=bert_tf"
        )
    heads = names.heads_in(contents.tensors)
    if config.directionality == "ltr" and format == "hugging_face" and heads & {"head", "next_sentence"}:
        logging.warning("transformers pools [CLS], our left-to-right models the last token: the outputs of the "
                        "classification and next-sentence heads will differ in transformers")  # fmt: skip
    if config.hidden_act == "gelu_erf" and format in ("tf1", "tf_models"):
        logging.warning("hidden_act=gelu_erf is written to %s; the code of %s has no such name, and its gelu is "
                        "the tanh form, which differs by up to 5e-4", model_config.ORIGINAL_NAME, format)  # fmt: skip


def _require_moments(contents: Contents, paths: list[str]) -> None:
    missing = [path for path in paths if path not in contents.moments]
    if missing:
        raise InputError(
            f"--keep_optimizer: {contents.source} lacks Adam's moments for {contents.describe(missing[0])}; "
            "remove the flag"
        )


def _read_moments(contents: Contents) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    first, second = (
        dataclasses.replace(contents, tensors={path: pair[number] for path, pair in contents.moments.items()})
        for number in (0, 1)
    )
    first, second = first.read(first.tensors), second.read(second.tensors)
    return {path: (first[path], second[path]) for path in first}


def _check_vocabulary(
    settings: ConversionSettings, contents: Contents, config: BertConfig, vocab_file: str, tokens: int
) -> None:
    if settings.extended_vocab_file and not vocab_file:
        raise InputError(
            f"--extended_vocab_file: the folder of {contents.source} has no {checkpoints.VOCABULARY_NAME}; "
            "give its vocabulary as --vocab_file"
        )
    if tokens > config.vocab_size:
        raise InputError(
            f"{vocab_file}: has {tokens} tokens, but {contents.describe(_WORDS)} of {contents.source} has "
            f"{config.vocab_size} rows; give the vocabulary that the checkpoint was trained with"
        )


def _extend_vocabulary(
    tensors: dict, config: BertConfig, vocabulary: list[str], extended: list[str]
) -> tuple[dict, BertConfig]:
    """Returns the tensors and the configuration for an extended vocabulary."""
    sources = vocabulary_growth.find_row_sources(vocabulary, extended)
    tensors = tensors | {
        path: vocabulary_growth.extend_rows(tensors[path], sources) for path in (_WORDS, _BIAS) if path in tensors
    }
    known = set(vocabulary)
    lost = [token for token in vocabulary if token not in set(extended) and not token.startswith("[unused")]
    if lost:
        raise InputError(
            f"--extended_vocab_file lacks {len(lost)} tokens of the checkpoint's vocabulary ({', '.join(lost[:3])}); "
            "give a file that extends it, as learn_vocab --extend_vocab writes"
        )
    new = [token for token in extended if token not in known]
    logging.info("%d tokens are new; each starts from the mean of the old tokens that spell it", len(new))
    return tensors, dataclasses.replace(config, vocab_size=len(tensors[_WORDS]))
