"""Computes precision, recall and F1 of entities in the same way as CoNLL's official scorer (conlleval).

Paper: section 5.3 (Table 7).

An entity is right if its type, its first word and its last word are right.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from bert_tf.tasks.tagging import tag_schemes

# Tables show this type for entities without a type.
NO_TYPE = "_"


@dataclasses.dataclass(frozen=True)
class EntityCounts:
    """Numbers of entities."""

    true: int = 0  # number of entities in the data
    predicted: int = 0  # number of predicted entities
    right: int = 0  # number of predicted entities that are right

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right; 0 if there are no predicted entities."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the entities in the data that are predicted; 0 if the data has no entities."""
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if no entity is right."""
        return 2 * self.right / (self.true + self.predicted) if self.right else 0.0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of comparing predicted tags with true tags."""

    words: int  # number of words
    right_words: int  # number of words with the right tag
    types: Mapping[str, EntityCounts]  # maps each type of entity to its counts; the types are sorted

    @property
    def total(self) -> EntityCounts:
        """The sums of the counts over all types."""
        return EntityCounts(*map(sum, zip(*map(dataclasses.astuple, self.types.values()), strict=True)))

    @property
    def scores(self) -> dict[str, float]:
        """The metrics of a run; the main metric, F1, comes first."""
        total = self.total
        accuracy = self.right_words / self.words if self.words else 0.0
        return {"f1": total.f1, "precision": total.precision, "recall": total.recall, "accuracy": accuracy}

    def describe(self) -> str:
        total = self.total
        lines = [
            f"processed {self.words} tokens with {total.true} phrases; found: {total.predicted} phrases; correct: "
            f"{total.right}.",
            f"accuracy: {100 * self.scores['accuracy']:6.2f}%; {_figures(total)}",
            *(f"{type_ or NO_TYPE:>17}: {_figures(c)}  {c.predicted}" for type_, c in self.types.items()),
        ]
        return "".join(f"{line}\n" for line in lines)


def _figures(counts: EntityCounts) -> str:
    return (
        f"precision: {100 * counts.precision:6.2f}%; recall: {100 * counts.recall:6.2f}%; FB1: {100 * counts.f1:6.2f}"
    )


def compare(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Comparison:
    """Compares the predicted tags of sentences with the true tags. The tags may have any scheme. Tag sequences may be
    invalid; see `tag_schemes.entities`.
    Raises ValueError: `true` and `predicted` have different numbers of sentences or words."""
    counters = [Counter() for _ in dataclasses.fields(EntityCounts)]
    words = right_words = 0
    for tags, answers in zip(true, predicted, strict=True):
        words += len(tags)
        right_words += sum(tag == answer for tag, answer in zip(tags, answers, strict=True))
        entities = [set(tag_schemes.entities(sequence)) for sequence in (tags, answers)]
        for counter, counted in zip(counters, (*entities, set.intersection(*entities)), strict=True):
            counter.update(entity.type for entity in counted)
    types = sorted(counters[0].keys() | counters[1].keys())
    return Comparison(words, right_words, {type_: EntityCounts(*(c[type_] for c in counters)) for type_ in types})
