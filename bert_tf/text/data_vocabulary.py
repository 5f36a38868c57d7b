"""Which vocabulary pre-training data was made with, so that no model learns from two of them.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping

from bert_tf.core.errors import InputError
from bert_tf.core.vocabulary_file import tokens_sha256 as tokens_sha256  # fine-tuning and export compare by it too


@dataclasses.dataclass(frozen=True)
class DataVocabulary:
    """The vocabulary of a file of records.

    Attributes:
      data: the file of records.
      vocab_file: path of the vocabulary when the records were made.
      sha256: of its tokens, see `bert_tf.core.vocabulary_file`.
      do_lower_case: whether the text was lower-cased; None where nothing tells.
    """

    data: str
    vocab_file: str
    sha256: str
    do_lower_case: bool | None

    @classmethod
    def of_manifest(cls, path: str, entries: Mapping) -> "DataVocabulary | None":
        """What the manifest of a file of records says; None where it does not."""
        settings = entries.get("settings", {})
        if not entries.get("vocab_sha256"):
            return None
        lower = settings.get("do_lower_case")
        return cls(path, settings.get("vocab_file", ""), entries["vocab_sha256"], lower)

    @property
    def name(self) -> str:
        """How messages name the vocabulary."""
        return f"{os.path.basename(self.vocab_file)}, SHA-256 {self.sha256[:12]}"

    def refuse(self, other: "DataVocabulary") -> None:
        """Refuses data of another vocabulary or casing.

        Raises:
          InputError: names both files of records, and what differs.
        """
        if self.sha256 != other.sha256:
            raise InputError(
                f"{other.data}: made with another vocabulary ({other.name}) than {self.data} ({self.name}); "
                "make both with the same --vocab_file"
            )
        if None not in (self.do_lower_case, other.do_lower_case) and self.do_lower_case != other.do_lower_case:
            raise InputError(
                f"{other.data}: made with --do_lower_case={flag_value(other.do_lower_case)}, but {self.data} with "
                f"--do_lower_case={flag_value(self.do_lower_case)}; make both alike"
            )


def common(vocabularies: Iterable[DataVocabulary | None]) -> DataVocabulary | None:
    """The vocabulary that all data has; None where it is known of none.

    Raises:
      InputError: there are two; see `DataVocabulary.refuse`.
    """
    # one whose casing is known stands for all, so that each other is compared with it
    known = sorted(filter(None, vocabularies), key=lambda vocabulary: vocabulary.do_lower_case is None)
    for vocabulary in known:
        known[0].refuse(vocabulary)
    return known[0] if known else None


def flag_value(value: bool) -> str:
    """Writes a boolean as the value of a flag."""
    return str(value).lower()
