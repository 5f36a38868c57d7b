"""Finds the tokenizer of a command: from its flags, its run's folder or its checkpoint; refuses one that does not fit.

Paper: section 3 ("Input/Output Representations").
"""

import itertools
import os

from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig, read_json_if_exists
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.runs import run_folder, run_record
from bert_tf.text import tokenizer_files
from bert_tf.text.data_vocabulary import DataVocabulary
from bert_tf.text.tokenizer_rules import UNUSED, TokenizerRules, flag_value, log_casing
from bert_tf.tokenization import BertTokenizer

# A conversion writes its settings, and data that the output format cannot store, to this file in its output folder.
CONVERSION_NAME = "conversion.json"
_OVERRIDE = "or give --ignore_checkpoint_tokenizer to skip this check"


def stated_rules(contents: OpenCheckpoint, strict: bool = True) -> TokenizerRules | None:
    """Returns the rules of a checkpoint's tokenizer; None if its folder has no vocabulary."""
    return tokenizer_files.read(contents.vocab_file, strict=strict) if contents.vocab_file else None


def known_rules(settings) -> TokenizerRules | None:
    """Returns the rules of the run, or of its initial checkpoint; None if neither folder has a vocabulary."""
    if own := tokenizer_files.find_vocabulary(settings.output_dir):
        return tokenizer_files.read(own, strict=False)
    starts_from = run_folder.initial_checkpoint(settings)
    return stated_rules(checkpoints.open_checkpoint(starts_from), strict=False) if starts_from else None


def resolve(settings, contents: OpenCheckpoint, default_vocab_file: str = "") -> TokenizerRules:
    """Finds the rules for a script that uses a checkpoint: from the script's flags, else from the checkpoint's files.
    `settings`: settings with `vocab_file`, `do_lower_case`, `strip_accents` and `ignore_checkpoint_tokenizer`.
    `default_vocab_file`: the vocabulary if the flag does not give it; "" for the checkpoint's."""
    strict = not settings.ignore_checkpoint_tokenizer
    vocab_file = settings.vocab_file or default_vocab_file or contents.vocab_file
    if not vocab_file:
        raise InputError(f"--vocab_file is missing, and the folder of {contents.source} has no vocab.txt; give one")
    stated = stated_rules(contents, strict)
    rules = tokenizer_files.read(vocab_file, settings.do_lower_case, settings.strip_accents, stated, strict)
    if stated and strict:
        check(stated, rules, contents.source)
    log_casing(rules, settings.do_lower_case)
    if contents.config:
        contents.config.check_vocabulary(len(rules.vocabulary), vocab_file, contents.config_file)
    return rules


def of_run(settings, vocab_file: str) -> TokenizerRules:
    """Returns the rules of a run's tokenizer: from the flags, else from the run's folder, else from --init_checkpoint.
    `vocab_file`: the vocabulary; see `checkpoints.model_files`."""
    flags, strict = (settings.do_lower_case, settings.strip_accents), not settings.ignore_checkpoint_tokenizer
    if run_record.read_phases(settings.output_dir):
        # No check is needed here: a run that resumes compares its facts, and refuses a different tokenizer.
        return tokenizer_files.read(vocab_file, *flags, known_rules(settings), strict)
    if starts_from := run_folder.initial_checkpoint(settings):
        return resolve(settings, checkpoints.open_checkpoint(starts_from), vocab_file)
    rules = tokenizer_files.read(vocab_file, *flags, strict=strict)
    log_casing(rules, settings.do_lower_case)
    return rules


def rules_of(settings) -> TokenizerRules:
    """Returns the rules that resolved settings state."""
    strict = not settings.ignore_checkpoint_tokenizer
    return tokenizer_files.read(settings.vocab_file, settings.do_lower_case, settings.strip_accents, strict=strict)


def tokenizer(settings) -> BertTokenizer:
    """Returns the tokenizer of resolved settings."""
    return BertTokenizer(rules_of(settings))


def check(stated: TokenizerRules, rules: TokenizerRules, source: str, data: str = "") -> None:
    """Refuses a tokenizer that contradicts a checkpoint's.
    `stated`: the rules of the checkpoint.
    `rules`: the rules of the command.
    `source`: the checkpoint.
    `data`: the pre-training data that was made with `rules`; "" if the command's flags give them."""
    where, remedy = (f"{data}, made with ", "make the data with") if data else ("", "give")
    for name in ("do_lower_case", "strip_accents"):
        wanted, value = getattr(stated, name), getattr(rules, name)
        if stated.source and wanted != value:
            flag = f"--{name}={flag_value(wanted)}"
            raise InputError(
                f"{where}--{name}={flag_value(value)}: {stated.source} says that {source} needs {flag}; {remedy} "
                f"{flag}, {_OVERRIDE}"
            )
    where += f"--vocab_file={rules.vocab_file}"
    _check_vocabulary(stated, rules, source, where, remedy)
    if rules.added_tokens != stated.added_tokens or rules.form != stated.form:
        raise InputError(
            f"{where}: {stated.vocab_file} of {source} has other added tokens, scores or rows; "
            f"{remedy} the checkpoint's vocabulary, {_OVERRIDE}"
        )


def _check_vocabulary(stated: TokenizerRules, rules: TokenizerRules, source: str, where: str, remedy: str) -> None:
    """Refuses a different vocabulary, unless it only adds tokens at the end or in place of [unusedN] tokens."""
    ours, theirs = rules.vocabulary, stated.vocabulary
    pairs = itertools.zip_longest(ours[: len(theirs)], theirs)
    changed = [id_ for id_, (our, their) in enumerate(pairs) if our != their]
    for id_ in changed:
        if not UNUSED.fullmatch(theirs[id_]):
            fault = f"is {ours[id_]!r} instead of" if id_ < len(ours) else "is missing:"
            raise InputError(
                f"{where}: not the vocabulary that {source} was trained with, {stated.vocab_file} (token {id_} {fault} "
                f"{theirs[id_]!r}); {remedy} the checkpoint's vocabulary, {_OVERRIDE}"
            )
    if changed or len(ours) != len(theirs):
        logging.info(
            "%s has %d tokens, and the checkpoint's %s has %d tokens; %d tokens replace [unusedN]; the embeddings of "
            "new tokens are untrained", where, len(ours), stated.vocab_file, len(theirs),
            sum(id_ < len(ours) for id_ in changed),
        )  # fmt: skip


def check_data(contents: OpenCheckpoint, vocabulary: DataVocabulary | None, rules: TokenizerRules | None) -> None:
    """Refuses pre-training data that was made with another tokenizer than a checkpoint's.
    `vocabulary`: the vocabulary in the data's manifest; None if absent.
    `rules`: the data's rules; None if the vocabulary's file was not found."""
    stated = stated_rules(contents)
    if not vocabulary or not stated:
        return
    if rules:
        check(stated, rules, contents.source, vocabulary.data)
    elif stated.facts["vocab_sha256"] != vocabulary.sha256:
        raise InputError(
            f"{vocabulary.data}: made with another vocabulary ({vocabulary.name}) than {stated.vocab_file} of "
            f"{contents.source}; make the data with the checkpoint's vocabulary, or give --vocab_file if the data's "
            f"vocabulary extends it, {_OVERRIDE}"
        )


def read_conversion(folder: str) -> dict:
    """Reads the record that a conversion wrote into its output folder; returns {} for other folders."""
    return read_json_if_exists(os.path.join(folder, CONVERSION_NAME))


def write(folder: str, config: BertConfig, rules: TokenizerRules | None) -> None:
    """Writes the model's configuration and the tokenizer's files into a run's folder; `rules` is None if unknown."""
    storage.write_text(os.path.join(folder, checkpoints.CONFIG_NAME), config.to_json_string())
    if rules:
        tokenizer_files.write(folder, rules, config.max_position_embeddings)
