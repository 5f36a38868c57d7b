"""Describes the vocabulary of pre-training data, and checks that a model never learns from two vocabularies.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping

from bert_tf.core.errors import InputError
from bert_tf.core.vocabulary_file import tokens_sha256 as tokens_sha256  # other modules import this function from here


@dataclasses.dataclass(frozen=True)
class DataVocabulary:
    """The vocabulary of a file of records.

    Attributes:
      vocab_file: path of the vocabulary when the records were made.
      sha256: SHA-256 of the tokens; see `bert_tf.core.vocabulary_file`.
      do_lower_case: whether the text was lower-cased; None if unknown.
    """

    data: str
    vocab_file: str
    sha256: str
    do_lower_case: bool | None

    @classmethod
    def of_manifest(cls, path: str, entries: Mapping) -> "DataVocabulary | None":
        """Returns the vocabulary in the manifest of a file of records; None if absent."""
        settings = entries.get("settings", {})
        if not entries.get("vocab_sha256"):
            return None
        lower = settings.get("do_lower_case")
        return cls(path, settings.get("vocab_file", ""), entries["vocab_sha256"], lower)

    @property
    def name(self) -> str:
        return f"{os.path.basename(self.vocab_file)}, SHA-256 {self.sha256[:12]}"

    def refuse(self, other: "DataVocabulary") -> None:
        """Refuses data of another vocabulary or casing."""
        if self.sha256 != other.sha256:
            raise InputError(
                f"{other.data}: made with another vocabulary ({other.name}) than {self.data} ({self.name}); "
                "make both with the same --vocab_file"
            )
        if None not in (self.do_lower_case, other.do_lower_case) and self.do_lower_case != other.do_lower_case:
            raise InputError(
                f"{other.data}: made with --do_lower_case={flag_value(other.do_lower_case)}, but {self.data} was made "
                f"with --do_lower_case={flag_value(self.do_lower_case)}; make both with the same value"
            )


def common(vocabularies: Iterable[DataVocabulary | None]) -> DataVocabulary | None:
    """Returns the common vocabulary of all data; None if no vocabulary is known."""
    # Prefer a vocabulary with known casing, so that the casing of all others is compared with it.
    known = sorted(filter(None, vocabularies), key=lambda vocabulary: vocabulary.do_lower_case is None)
    for vocabulary in known:
        known[0].refuse(vocabulary)
    return known[0] if known else None


def flag_value(value: bool) -> str:
    return str(value).lower()
