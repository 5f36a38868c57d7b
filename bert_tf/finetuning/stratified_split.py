"""Divides examples into a part to train on and a part to hold out, by their content.

The same examples give the same parts in any process and on any machine, whatever their order.

Letters: N examples.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from bert_tf.core.errors import InputError


class HeldOut(NamedTuple):
    """What is held out of the training data.

    Attributes:
      share: of the examples.
      seed: draws them.
      is_dev: whether they are the dev data; else that has files of its own, and they are just not trained on.
    """

    share: float
    seed: int = 0
    is_dev: bool = True


def content_of(*texts: str | None) -> str:
    """Returns what identifies the texts of an example; case and white space do not count."""
    return "\0".join(" ".join((text or "").casefold().split()) for text in texts)


def held_out(contents: Sequence[str], classes: Sequence[Hashable], share: float, seed: int) -> np.ndarray:
    """Chooses which examples to hold out: of each class the same share, and examples of equal content together.

    Args:
      contents: of N examples; see `content_of`.
      classes: of the examples; a tuple has any number of them, of which the rarest counts. Equal values, such as None,
        give a split that is not stratified.
      share: of the examples to hold out, above 0 and below 1. One example is held out at least.
      seed: draws the examples.

    Returns:
      True for an example to hold out, bool [N].

    Raises:
      InputError: one of the parts would be empty.
    """
    members = defaultdict(list)
    for number, content in enumerate(contents):
        members[content].append(number)
    main = _main_classes(classes)
    strata = defaultdict(list)
    for content in sorted(members, key=lambda text: _draw(text, seed)):
        counts = Counter(main[number] for number in members[content])
        strata[min(counts, key=lambda name: (-counts[name], repr(name)))].append(members[content])
    found = np.zeros(len(contents), bool)
    for name, quota in _quotas({name: sum(map(len, groups)) for name, groups in strata.items()}, share).items():
        for group in strata[name][: len(strata[name]) - 1]:  # one content of each class stays to be trained on
            if len(group) <= quota:
                found[group] = True
                quota -= len(group)
    if not found.any():
        raise InputError(
            f"a dev share of {share:g} holds out none of {len(contents)} examples: examples of one text stay together, "
            "and each class keeps one to train on; give more examples, or dev data of their own"
        )
    return found


def _main_classes(classes: Sequence[Hashable]) -> list[Hashable]:
    """Returns one class for each example: of several, the one that the fewest examples have."""
    counts = Counter(name for each in classes for name in _several(each))
    return [min(_several(each), key=lambda name: (counts[name], repr(name)), default=()) for each in classes]


def _several(classes: Hashable) -> Iterable[Hashable]:
    return classes if isinstance(classes, tuple) else (classes,)


def _draw(content: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{content}".encode("utf-8", "surrogatepass")).digest()


def _quotas(sizes: dict[Hashable, int], share: float) -> dict[Hashable, int]:
    """Returns how many examples of each class to hold out, so that the sum is the share of all, rounded."""
    exact = {name: Fraction(str(share)) * size for name, size in sizes.items()}
    quotas = {name: math.floor(value) for name, value in exact.items()}
    missing = max(1, round(sum(exact.values()))) - sum(quotas.values())
    by_remainder = sorted(exact, key=lambda name: (quotas[name] - exact[name], sizes[name], repr(name)))
    for name in by_remainder[:missing]:
        quotas[name] += 1
    return quotas
