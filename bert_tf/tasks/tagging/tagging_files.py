"""Reads the tagged sentences of a run's splits, and checks their tags."""

import dataclasses
from collections.abc import Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.tasks.tagging import conll_files, tag_schemes
from bert_tf.tasks.tagging.conll_files import Layout, Sentence

AUTO = "auto"
# A sentence with more words causes a warning; the longest sentence of CoNLL-2003 has 124 words.
_LONGEST_SENTENCE = 200


@dataclasses.dataclass(frozen=True)
class TaggedFiles:
    """The layout of tagged files.

    Attributes:
      layout: columns of the files.
      scheme: scheme of the tags; "auto" to recognize the scheme of each file.
      repairs: whether invalid sequences of tags are read as the official scorer reads them. If false, invalid sequences
        are refused.
      test_has_tags: whether to read the tags of a test file that has more than one column.
    """

    layout: Layout
    scheme: str = AUTO
    repairs: bool = False
    test_has_tags: bool = True

    def scheme_of(self, sentences: Sequence[Sentence]) -> str:
        """Returns the tag scheme of the sentences."""
        if self.scheme != AUTO:
            return self.scheme
        return tag_schemes.recognize(sentence.tags for sentence in sentences if sentence.tags)

    def read(self, path: str, split: str) -> list[Sentence]:
        """Reads the sentences of a file; sentences of the test data may lack tags.

        Raises:
          InputError: the file is invalid (see `conll_files.read_sentences`), or a tag violates the scheme. The message
            names the file and the line.
        """
        with_tags = split != "test" or (self.test_has_tags and conll_files.count_columns(path) != 1)
        sentences = conll_files.read_sentences(path, self.layout, with_tags)
        scheme = self.scheme_of(sentences)
        _warn_of_long(path, sentences)
        if with_tags:
            self._check_tags(path, sentences, scheme)
        logging.info("%s: %d sentences, %d words%s", path, len(sentences), sum(len(s.words) for s in sentences),
                     f", {scheme.upper()} tags" if with_tags else "")  # fmt: skip
        return sentences

    def _check_tags(self, path: str, sentences: Sequence[Sentence], scheme: str) -> None:
        faults = []
        for sentence in sentences:
            if fault := tag_schemes.find_fault(sentence.tags, scheme):
                faults.append((sentence.line + fault[0], fault[1]))
        if not faults:
            return
        (line, reason), more = faults[0], f" (and {len(faults) - 1} more sentences)" if faults[1:] else ""
        if not self.repairs:
            raise InputError(
                f"{path}, line {line}: the tag {reason}{more}; fix the tags, give their --tag_scheme, or give "
                "--repair_tags to read invalid tags as the official scorer reads them"
            )
        logging.warning("%s: %d sentences have tags that %s does not allow; these tags are read as the official "
                        "scorer reads them; the first such tag is on line %d: %s",
                        path, len(faults), scheme.upper(), line, reason)  # fmt: skip


def check_types(sentences: Sequence[Sentence], types: Sequence[str], split: str) -> None:
    """Raises InputError if a tag has a type that is not in `types`; the message names the file and the line."""
    for sentence in sentences:
        for number, tag in enumerate(sentence.tags or ()):
            prefix, type_ = tag_schemes.split_tag(tag)
            if prefix != tag_schemes.OUTSIDE and type_ not in types:
                remedy = ", or give --notest_has_tags" if split == "test" else ""
                raise InputError(
                    f"{sentence.path}, line {sentence.line + number}: the tag {tag!r} has an unknown type; known "
                    f"types: {', '.join(types)}; fix the tag, or list all types in --entity_types{remedy}"
                )


def _warn_of_long(path: str, sentences: Sequence[Sentence]) -> None:
    """Warns if a sentence is so long that a blank line is probably missing."""
    longest = max(sentences, key=lambda sentence: len(sentence.words))
    if len(longest.words) > (_LONGEST_SENTENCE if len(sentences) > 1 else _LONGEST_SENTENCE // 4):
        logging.warning("%s, line %d: a sentence of %d words; a blank line must end each sentence", path, longest.line,
                        len(longest.words))  # fmt: skip
