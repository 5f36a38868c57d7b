"""Finds the tokenizer that a checkpoint was trained with, and refuses other tokenizers.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import os
import re

import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import tokenizer_config
from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.checkpoint_formats.tokenizer_config import Casing
from bert_tf.config import BertConfig, read_json
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.core.vocabulary_file import tokens_sha256
from bert_tf.runs import run_folder, run_record
from bert_tf.text.data_vocabulary import DataVocabulary, flag_value
from bert_tf.tokenization import TOKENIZER_JSON, load_vocabulary

# A conversion writes its settings, and data that the output format cannot store, to this file in its output folder.
CONVERSION_NAME = "conversion.json"
_UNUSED = re.compile(r"\[unused\d+\]")
_OVERRIDE = "or give --ignore_checkpoint_tokenizer to skip this check"


@dataclasses.dataclass(frozen=True)
class CheckpointTokenizer:
    """The tokenizer of a checkpoint.

    Attributes:
      source: prefix or file of the checkpoint; messages use it as the checkpoint's name.
      vocab_file: the vocabulary in the checkpoint's folder; "" if the folder has no vocabulary.
      casing: what the checkpoint's files say about the casing and other rules of the tokenizer.
    """

    source: str
    vocab_file: str
    casing: Casing

    @property
    def folder(self) -> str:
        return os.path.dirname(self.source.split(",")[0]) or "."

    def check(
        self, do_lower_case: bool | None, vocab_file: str, default: bool = True, data: str = "", rules: bool = True
    ) -> bool:
        """Refuses a casing or a vocabulary that contradicts the checkpoint, and rules that are not implemented.

        Args:
          do_lower_case: the given casing; None if it is not given.
          vocab_file: the given vocabulary; "" if it is not given.
          default: the casing if neither the argument nor the checkpoint states it.
          data: the pre-training data that was made with these values; "" if a user gives them as flags.
          rules: whether to refuse rules that `BertTokenizer` does not implement.

        Returns:
          Whether the tokenizer lower-cases text.
        """
        known = self.casing.do_lower_case
        lower = _first(do_lower_case, known, default)
        where, remedy = (f"{data}, made with ", "make the data with") if data else ("", "give")
        if known not in (None, lower):
            flag = f"--do_lower_case={flag_value(known)}"
            raise InputError(
                f"{where}--do_lower_case={flag_value(lower)}: {self.casing.source} says that {self.source} needs "
                f"{flag}; {remedy} {flag}, {_OVERRIDE}"
            )
        if vocab_file:
            self._check_vocabulary(vocab_file, f"{where}--vocab_file={vocab_file}", remedy)
        if rules and (rule := self.casing.other_rule(lower)):
            file = os.path.join(self.folder, tokenizer_config.NAME)
            raise InputError(
                f"{file}: bert_tf's tokenizer does not support {rule} with --do_lower_case={flag_value(lower)}; give "
                f"another checkpoint, {_OVERRIDE}"
            )
        return lower

    def _check_vocabulary(self, vocab_file: str, given: str, remedy: str) -> None:
        """Refuses a different vocabulary, unless it only adds tokens at the end or in place of [unusedN] tokens."""
        if not self.vocab_file or os.path.abspath(vocab_file) == os.path.abspath(self.vocab_file):
            return
        ours, theirs = load_vocabulary(vocab_file), load_vocabulary(self.vocab_file)
        changed = [id_ for id_, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1]
        for id_ in changed:
            if not _UNUSED.fullmatch(theirs[id_]):
                raise InputError(
                    f"{given}: not the vocabulary that {self.source} was trained with, {self.vocab_file} (token {id_} "
                    f"is {ours[id_]!r} instead of {theirs[id_]!r}); {remedy} the checkpoint's vocabulary, {_OVERRIDE}"
                )
        if changed or len(ours) != len(theirs):
            logging.info(
                "%s has %d tokens, and the checkpoint's %s has %d tokens; %d tokens replace [unusedN]; the embeddings "
                "of new tokens are untrained", given, len(ours), self.vocab_file, len(theirs), len(changed),
            )  # fmt: skip

    def check_data(self, vocabulary: DataVocabulary | None, vocab_file: str) -> None:
        """Refuses pre-training data that was made with another tokenizer.

        Args:
          vocabulary: the vocabulary in the data's manifest; None if absent.
          vocab_file: path of this vocabulary; "" if it was not found.
        """
        if not vocabulary:
            return
        if not vocab_file and self.vocab_file and tokens_sha256(load_vocabulary(self.vocab_file)) != vocabulary.sha256:
            raise InputError(
                f"{vocabulary.data}: made with another vocabulary ({vocabulary.name}) than {self.vocab_file} of "
                f"{self.source}; make the data with the checkpoint's vocabulary, or give --vocab_file if the data's "
                f"vocabulary extends it, {_OVERRIDE}"
            )
        self.check(vocabulary.do_lower_case, vocab_file, data=vocabulary.data)


def find(contents: Contents, path: str) -> CheckpointTokenizer:
    return CheckpointTokenizer(contents.source, contents.vocab_file, tokenizer_config.find(contents.folder, path))


def resolve(settings, contents: Contents) -> tuple[str, bool]:
    """Finds the vocabulary and the casing for a script: from the script's flags, else from the checkpoint.

    Args:
      settings: settings with `init_checkpoint`, `vocab_file`, `do_lower_case` and `ignore_checkpoint_tokenizer`.

    Returns:
      vocab_file: path of the vocabulary.
      do_lower_case: whether the tokenizer lower-cases text.
    """
    lower = _casing(settings, find(contents, settings.init_checkpoint))
    vocab_file = settings.vocab_file or contents.vocab_file
    if not vocab_file:
        raise InputError(f"--vocab_file is missing, and the folder of {contents.source} has no vocab.txt; give one")
    config = contents.require_config()
    config.check_vocabulary(len(load_vocabulary(vocab_file)), vocab_file, contents.config_file)
    return vocab_file, lower


def of(path: str) -> CheckpointTokenizer:
    """Returns the tokenizer of the checkpoint at a path; see `checkpoints.open_checkpoint`."""
    return find(checkpoints.open_checkpoint(path), path)


def read_conversion(folder: str) -> dict:
    """Reads the record that a conversion wrote into its output folder; returns {} for other folders."""
    path = os.path.join(folder, CONVERSION_NAME)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def lower_case(settings, default: bool = True) -> bool:
    """Returns whether a run lower-cases its texts.

    Args:
      settings: the run's settings. The value comes from the flag, else from the run's folder, else from the folder of
        --init_checkpoint.
      default: the value if none of these three sources has a value.
    """
    if phases := run_record.read_phases(settings.output_dir):
        # No check is needed here: a run that resumes compares its settings, and refuses a different casing.
        return _first(settings.do_lower_case, phases[-1].model.get("do_lower_case"), default)
    if starts_from := run_folder.initial_checkpoint(settings):
        return _casing(settings, of(starts_from), default)
    return _first(settings.do_lower_case, default)


def _casing(settings, tokenizer: CheckpointTokenizer, default: bool = True) -> bool:
    """Returns the casing from the flag, else from the checkpoint; checks both unless a flag turns off the check."""
    casing = tokenizer.casing
    if settings.do_lower_case is None and casing.do_lower_case is not None:
        logging.info("--do_lower_case=%s, as %s says", flag_value(casing.do_lower_case), casing.source)
    if not settings.ignore_checkpoint_tokenizer:
        return tokenizer.check(settings.do_lower_case, settings.vocab_file, default)
    return _first(settings.do_lower_case, casing.do_lower_case, default)


def _first(*values: bool | None) -> bool:
    return next(value for value in values if value is not None)


def copy_vocabulary(vocab_file: str, target: str) -> None:
    """Copies a vocabulary to a `vocab.txt`. A `tokenizer.json` is converted; any other file is copied unchanged."""
    if os.path.basename(vocab_file) == TOKENIZER_JSON:
        storage.write_text(target, "".join(f"{token}\n" for token in load_vocabulary(vocab_file)))
        return
    with storage.atomic_path(target) as temporary:
        tf.io.gfile.copy(vocab_file, temporary)


def keep(folder: str, config: BertConfig, vocab_file: str, do_lower_case: bool | None) -> None:
    """Writes the model's configuration into a run's folder; also writes the vocabulary and the casing if known.

    Args:
      vocab_file: the vocabulary; "" if unknown.
      do_lower_case: whether the tokenizer lower-cases text; None if unknown.
    """
    storage.write_text(os.path.join(folder, checkpoints.CONFIG_NAME), config.to_json_string())
    target = os.path.join(folder, checkpoints.VOCABULARY_NAME)
    if vocab_file and os.path.abspath(vocab_file) != os.path.abspath(target):
        copy_vocabulary(vocab_file, target)
    if do_lower_case is not None:
        tokenizer_config.write(folder, do_lower_case, config.max_position_embeddings)
