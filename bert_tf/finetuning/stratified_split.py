"""Divides examples into training data and held-out data by their content.

The division depends only on the examples and the seed, not on the order of the examples, the process or the machine.
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
    """The data that is held out of the training data."""

    share: float  # share of the examples to hold out, above 0 and below 1
    seed: int = 0  # seed that selects the examples
    # whether the held-out examples are the dev data. If false, the dev data has its own files; the held-out examples
    # are still left out of training.
    is_dev: bool = True


def content_of(*texts: str | None) -> str:
    """Returns the identity of an example's texts; case and the amount of white space have no effect."""
    return "\0".join(" ".join((text or "").casefold().split()) for text in texts)


def held_out(contents: Sequence[str], classes: Sequence[Hashable], share: float, seed: int) -> np.ndarray:
    """Chooses the examples to hold out. The same share of each class is held out. Examples with equal content stay
    together.
    `contents`: contents of N examples; see `content_of`.
    `classes`: class of each example. For a tuple of classes, only the rarest of these classes counts. If all values are
      equal, for example None, the split is not stratified.
    `share`: share of the examples to hold out, above 0 and below 1. At least one example is held out.
    `seed`: seed that selects the examples.
    Returns bool [N], True for the examples to hold out."""
    members = defaultdict(list)
    for number, content in enumerate(contents):
        members[content].append(number)
    main = _main_classes(classes)
    strata = defaultdict(list)
    for content in sorted(members, key=lambda text: _draw(text, seed)):
        counts = Counter(main[number] for number in members[content])
        strata[min(counts, key=lambda name: (-counts[name], repr(name)))].append(members[content])
    is_held = np.zeros(len(contents), bool)
    for name, quota in _quotas({name: sum(map(len, groups)) for name, groups in strata.items()}, share).items():
        for group in strata[name][: len(strata[name]) - 1]:  # at least one content of each class stays for training
            if len(group) <= quota:
                is_held[group] = True
                quota -= len(group)
    if not is_held.any():
        raise InputError(
            f"a dev share of {share:g} holds out none of {len(contents)} examples: examples with the same text stay "
            "together, and each class keeps an example for training; give more examples, or separate dev data"
        )
    return is_held


def _main_classes(classes: Sequence[Hashable]) -> list[Hashable]:
    """Returns one class for each example; if an example has several classes, returns the rarest of these classes."""
    counts = Counter(name for each in classes for name in _several(each))
    return [min(_several(each), key=lambda name: (counts[name], repr(name)), default=()) for each in classes]


def _several(classes: Hashable) -> Iterable[Hashable]:
    return classes if isinstance(classes, tuple) else (classes,)


def _draw(content: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{content}".encode("utf-8", "surrogatepass")).digest()


def _quotas(sizes: dict[Hashable, int], share: float) -> dict[Hashable, int]:
    """Returns the number of examples to hold out from each class; the total is the rounded share of all examples."""
    exact = {name: Fraction(str(share)) * size for name, size in sizes.items()}
    quotas = {name: math.floor(value) for name, value in exact.items()}
    missing = max(1, round(sum(exact.values()))) - sum(quotas.values())
    by_remainder = sorted(exact, key=lambda name: (quotas[name] - exact[name], sizes[name], repr(name)))
    for name in by_remainder[:missing]:
        quotas[name] += 1
    return quotas
