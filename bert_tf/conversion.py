"""From any checkpoint to one of another format, or of another vocabulary."""

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
# Directions of attention that the code behind a format has.
_DIRECTIONS = {"bert_tf": ("bidi", "ltr", "rtl"), "hugging_face": ("bidi", "ltr")}


def convert_checkpoint(settings: ConversionSettings) -> None:
    """Writes a checkpoint in another format, with its configuration and vocabulary beside it.

    The folder appears under its name only when it is whole.

    Raises:
      InputError: the input cannot be read or is not whole, the output's format cannot hold it, or the output
        folder holds something.
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
    tokenizer = checkpoint_tokenizer.beside(contents, settings.input)
    if not settings.ignore_checkpoint_tokenizer:
        tokenizer.check(settings.do_lower_case, settings.vocab_file)
    vocab_file = settings.vocab_file or contents.vocab_file
    vocabulary = load_vocabulary(vocab_file) if vocab_file else []
    _check_vocabulary(settings, contents, config, vocab_file, len(vocabulary))
    extended = load_vocabulary(settings.extended_vocab_file) if settings.extended_vocab_file else []

    tensors = contents.read(paths)
    if extended:
        tensors, config = _grown(tensors, config, vocabulary, extended)
    with writer.atomic_folder(settings.output) as folder:
        moments, step = (_read_moments(contents), contents.global_step) if settings.keep_optimizer else ({}, None)
        _write(settings.format, folder, tensors, config, moments, step)
        if settings.format == "hugging_face":
            hugging_face.keep_labels(folder, contents)
        _keep_tokenizer(folder, settings, tokenizer, settings.extended_vocab_file or vocab_file, config)
        writer.write_text(os.path.join(folder, "conversion.json"), command_line.to_json(settings))
    kept = dataclasses.replace(contents, optimizer_tensors=0) if settings.keep_optimizer else contents
    kept.report(tensors, [])
    if fresh:
        logging.warning("%s has no pooler, so %s has none either", contents.source, settings.output)
    logging.info("wrote %s (%s)", settings.output, settings.format)


def _keep_tokenizer(
    folder: str, settings: ConversionSettings, tokenizer: CheckpointTokenizer, vocab_file: str, config: BertConfig
) -> None:
    """Puts the vocabulary and the tokenizer's rules beside the weights."""
    if vocab_file:
        tf.io.gfile.copy(vocab_file, os.path.join(folder, checkpoints.VOCABULARY_NAME))
    known = tokenizer_config.read(tokenizer.folder)
    if settings.extended_vocab_file:  # whose ids may be others
        known.pop("added_tokens_decoder", None)
    lower = tokenizer.casing.do_lower_case if settings.do_lower_case is None else settings.do_lower_case
    tokenizer_config.write(folder, lower, config.max_position_embeddings, known)
    if lower is None and settings.format == "hugging_face":
        logging.warning("nothing says whether the tokenizer of %s lower-cases, and transformers takes it that it does; "
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
    """Refuses what the code behind a format would compute otherwise; warns of what it would refuse."""
    if config.directionality not in _DIRECTIONS.get(format, ("bidi",)):
        raise InputError(
            f"--format={format}: its code attends to both sides, {contents.source} has directionality="
            f"{config.directionality} and would silently compute something else there; take --format=bert_tf"
        )
    heads = names.heads_in(contents.tensors)
    if config.directionality == "ltr" and format == "hugging_face" and heads & {"head", "next_sentence"}:
        logging.warning("transformers pools [CLS], a left-to-right model of ours the last piece: the outputs of the "
                        "classification and next-sentence heads will differ there")  # fmt: skip
    if config.hidden_act == "gelu_erf" and format in ("tf1", "tf_models"):
        logging.warning("hidden_act=gelu_erf is written to %s; the code of %s has no such name, and its gelu is "
                        "the tanh form, which differs by up to 5e-4", model_config.ORIGINAL_NAME, format)  # fmt: skip


def _require_moments(contents: Contents, paths: list[str]) -> None:
    missing = [path for path in paths if path not in contents.moments]
    if missing:
        raise InputError(
            f"--keep_optimizer: {contents.source} has no moments of Adam for {contents.describe(missing[0])}; "
            "leave the flag out"
        )


def _read_moments(contents: Contents) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    first, second = (
        dataclasses.replace(contents, tensors={path: pair[number] for path, pair in contents.moments.items()})
        for number in (0, 1)
    )
    first, second = first.read(first.tensors), second.read(second.tensors)
    return {path: (first[path], second[path]) for path in first}


def _check_vocabulary(
    settings: ConversionSettings, contents: Contents, config: BertConfig, vocab_file: str, pieces: int
) -> None:
    if settings.extended_vocab_file and not vocab_file:
        raise InputError(
            f"--extended_vocab_file: no {checkpoints.VOCABULARY_NAME} lies beside {contents.source}; "
            "give --vocab_file, the vocabulary it was made with"
        )
    if pieces > config.vocab_size:
        raise InputError(
            f"{vocab_file}: has {pieces} pieces, {contents.describe(_WORDS)} of {contents.source} has "
            f"{config.vocab_size} rows; give the vocabulary that the checkpoint was made with"
        )


def _grown(tensors: dict, config: BertConfig, vocabulary: list[str], extended: list[str]) -> tuple[dict, BertConfig]:
    """Tensors and configuration for an extended vocabulary."""
    sources = vocabulary_growth.row_sources(vocabulary, extended)
    tensors = tensors | {
        path: vocabulary_growth.grown(tensors[path], sources) for path in (_WORDS, _BIAS) if path in tensors
    }
    known = set(vocabulary)
    lost = [piece for piece in vocabulary if piece not in set(extended) and not piece.startswith("[unused")]
    if lost:
        raise InputError(
            f"--extended_vocab_file lacks {len(lost)} pieces of the checkpoint's vocabulary ({', '.join(lost[:3])}); "
            "give one that extends it, as learn_vocab --extend_vocab writes"
        )
    new = [number for number, piece in enumerate(extended) if piece not in known]
    logging.info("%d pieces are new; each starts from the mean of its old pieces", len(new))
    return tensors, dataclasses.replace(config, vocab_size=len(tensors[_WORDS]))
