"""Describes the tokenizer of pre-training data, and checks that a model never learns from two tokenizers.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.core.errors import InputError
from bert_tf.text import tokenizer_rules
from bert_tf.text.tokenizer_rules import FORM, TokenizerRules

_FACTS = ("vocab_sha256", "do_lower_case", "strip_accents", "added_tokens", *FORM)


@dataclasses.dataclass(frozen=True)
class DataVocabulary:
    """The tokenizer of a file of records."""

    data: str
    vocab_file: str  # path of the vocabulary when the records were made
    facts: Mapping[str, Any]  # see `TokenizerRules.facts`; unknown facts are absent

    @classmethod
    def of_manifest(cls, path: str, entries: Mapping) -> "DataVocabulary | None":
        """Returns the tokenizer in the manifest of a file of records; None if absent."""
        if not entries.get("vocab_sha256"):
            return None
        facts = {name: entries[name] for name in _FACTS if name in entries}
        return cls(path, entries.get("settings", {}).get("vocab_file", ""), facts)

    @property
    def sha256(self) -> str:
        return self.facts["vocab_sha256"]

    @property
    def name(self) -> str:
        return f"{os.path.basename(self.vocab_file)}, SHA-256 {self.sha256[:12]}"

    def rules_of(self, vocabulary: TokenizerRules) -> TokenizerRules:
        """Returns the data's rules, with what is unknown from the rules of the vocabulary's file."""
        stated = {name: self.facts[name] for name in _FACTS[1:] if name in self.facts}
        if not stated:
            return vocabulary
        of_file = {"vocab_file": vocabulary.vocab_file, "source": vocabulary.source}
        return tokenizer_rules.of_tokens(vocabulary.vocabulary, **of_file, **vocabulary.form | stated)

    def refuse(self, other: "DataVocabulary") -> None:
        """Refuses data of another tokenizer."""
        if difference := tokenizer_rules.difference(other.facts, self.facts):
            raise InputError(
                f"{other.data}: made with another tokenizer than {self.data}: {difference}; make both with the same one"
            )


def common(vocabularies: Iterable[DataVocabulary | None]) -> DataVocabulary | None:
    """Returns the common tokenizer of all data; None if it is unknown."""
    # Prefer the tokenizer with the most known facts, so that these facts of all others are compared with it.
    candidates = sorted(filter(None, vocabularies), key=lambda vocabulary: -len(vocabulary.facts))
    for vocabulary in candidates:
        candidates[0].refuse(vocabulary)
    return candidates[0] if candidates else None
