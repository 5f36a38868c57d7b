"""The tokenizer that a checkpoint was trained with, and refusing another one.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import os
import re
from typing import TypeVar

import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import tokenizer_config
from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.checkpoint_formats.tokenizer_config import Casing
from bert_tf.runs import run_folder
from bert_tf.text.data_vocabulary import DataVocabulary, flag_value
from bert_tf.tokenization import load_vocabulary
from tfrecords import writer
from tfrecords.errors import InputError
from tfrecords.vocabulary import file_sha256

_UNUSED = re.compile(r"\[unused\d+\]")
_OVERRIDE = "or --ignore_checkpoint_tokenizer if you know better"
_Settings = TypeVar("_Settings")


@dataclasses.dataclass(frozen=True)
class CheckpointTokenizer:
    """What lies beside a checkpoint.

    Attributes:
      source: the checkpoint, as messages name it.
      vocab_file: its vocabulary; "" for none.
      casing: what is known of its rules.
    """

    source: str
    vocab_file: str
    casing: Casing

    @property
    def folder(self) -> str:
        """The folder of the checkpoint's files."""
        return os.path.dirname(self.source) or "."

    def check(self, do_lower_case: bool | None, vocab_file: str) -> None:
        """Refuses another casing or vocabulary than the checkpoint's, where one is given.

        Raises:
          InputError: names the flag, and what contradicts it.
        """
        if do_lower_case is not None:
            self._check_casing(do_lower_case, f"--do_lower_case={flag_value(do_lower_case)}", "give")
        if vocab_file:
            self._check_vocabulary(vocab_file, f"--vocab_file={vocab_file}", "give")

    def check_rules(self, do_lower_case: bool) -> None:
        """Refuses rules that `BertTokenizer` does not have.

        Raises:
          InputError: names the rule.
        """
        if rule := self.casing.other_rule(do_lower_case):
            file = os.path.join(self.folder, tokenizer_config.NAME)
            raise InputError(
                f"{file}: {rule} with --do_lower_case={flag_value(do_lower_case)} is a rule that bert_tf's tokenizer "
                f"lacks; take another checkpoint, {_OVERRIDE}"
            )

    def _check_casing(self, do_lower_case: bool, given: str, mend: str) -> None:
        known = self.casing.do_lower_case
        if known not in (None, do_lower_case):
            flag = f"--do_lower_case={flag_value(known)}"
            raise InputError(
                f"{given}: {self.casing.source} says that {self.source} needs {flag}; {mend} {flag}, {_OVERRIDE}"
            )

    def _check_vocabulary(self, vocab_file: str, given: str, mend: str) -> None:
        """Tokens at the end and in place of [unusedN] may be others: all the rest keeps its ids and rows."""
        if not self.vocab_file or os.path.abspath(vocab_file) == os.path.abspath(self.vocab_file):
            return
        ours, theirs = load_vocabulary(vocab_file), load_vocabulary(self.vocab_file)
        changed = [id_ for id_, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1]
        for id_ in changed:
            if not _UNUSED.fullmatch(theirs[id_]):
                raise InputError(
                    f"{given}: not the vocabulary that {self.source} was trained with, {self.vocab_file} (token {id_} "
                    f"is {ours[id_]!r}, the checkpoint's is {theirs[id_]!r}); {mend} that one, {_OVERRIDE}"
                )
        if changed or len(ours) != len(theirs):
            logging.info(
                "%s has %d tokens, %s of the checkpoint %d, and %d tokens in place of [unused]; all others keep their "
                "rows, and new ones have untrained rows", given, len(ours), self.vocab_file, len(theirs), len(changed),
            )  # fmt: skip

    def check_data(self, vocabulary: DataVocabulary | None, vocab_file: str) -> None:
        """Refuses pre-training data that was made with another tokenizer.

        Args:
          vocabulary: what the data says; None where it says nothing.
          vocab_file: the file of that vocabulary; "" where it was not found.

        Raises:
          InputError: names the data, and what differs.
        """
        if vocab_file:
            given = f"{vocabulary.data}, made with {vocab_file}"
            self._check_vocabulary(vocab_file, given, "make the data with")
        elif vocabulary and self.vocab_file and file_sha256(self.vocab_file) != vocabulary.sha256:
            raise InputError(
                f"{vocabulary.data}: made with another vocabulary ({vocabulary.name}) than {self.vocab_file} of "
                f"{self.source}; make it with that one, give --vocab_file if the data's extends it, {_OVERRIDE}"
            )
        if vocabulary and vocabulary.do_lower_case is not None:
            lower = vocabulary.do_lower_case
            given = f"{vocabulary.data}, made with --do_lower_case={flag_value(lower)}"
            self._check_casing(lower, given, "make the data with")
            self.check_rules(lower)


def beside(contents: Contents, path: str) -> CheckpointTokenizer:
    """What is known of the tokenizer of a checkpoint that was opened by a path.

    Raises:
      InputError: its `tokenizer_config.json` is damaged.
    """
    casing = tokenizer_config.find(os.path.dirname(contents.source) or ".", path)
    return CheckpointTokenizer(contents.source, contents.vocab_file, casing)


def of(path: str) -> CheckpointTokenizer:
    """The same by the path alone, see `checkpoints.open_checkpoint`."""
    return beside(checkpoints.open_checkpoint(path), path)


def with_casing(settings: _Settings) -> _Settings:
    """Settings with `do_lower_case` from the run's folder or --init_checkpoint where it was left out; else true.

    Raises:
      InputError: --init_checkpoint was trained with another casing or vocabulary than the one given.
    """
    lower = settings.do_lower_case
    casing = Casing()
    if phases := run_folder.read_phases(settings.output_dir):
        # another one than the run's is refused with all else that makes it another run
        source = os.path.join(settings.output_dir, run_folder.NAME)
        casing = Casing(phases[-1].model.get("do_lower_case"), source)
    elif starts_from := run_folder.initial_checkpoint(settings):
        tokenizer = of(starts_from)
        casing = tokenizer.casing
        if not settings.ignore_checkpoint_tokenizer:
            tokenizer.check(lower, settings.vocab_file)
            tokenizer.check_rules(_first(lower, casing.do_lower_case, True))
    if lower is None and casing.do_lower_case is not None:
        logging.info("--do_lower_case=%s, as %s says", flag_value(casing.do_lower_case), casing.source)
    return dataclasses.replace(settings, do_lower_case=_first(lower, casing.do_lower_case, True))


def _first(*values: bool | None) -> bool:
    return next(value for value in values if value is not None)


def keep(folder: str, vocab_file: str, do_lower_case: bool | None, max_length: int) -> None:
    """Keeps a vocabulary and its casing in a run's folder, as far as they are known.

    Args:
      folder: of the run.
      vocab_file: "" where it is not known.
      do_lower_case: None where it is not known.
      max_length: tokens that the model has positions for.
    """
    kept = os.path.join(folder, checkpoints.VOCABULARY_NAME)
    if vocab_file and os.path.abspath(vocab_file) != os.path.abspath(kept):
        with writer.atomic_path(kept) as temporary:
            tf.io.gfile.copy(vocab_file, temporary)
    if do_lower_case is not None:
        tokenizer_config.write(folder, do_lower_case, max_length)
