"""The value of a metric that a model reaches without having learned anything, as a line beside the metric's curve."""

from collections.abc import Mapping, Sequence

from bert_tf.pretraining.objective import RANDOM_NEXT_SHARE


def majority_of_pairs(entries: Sequence[Mapping]) -> float | None:
    """Returns the share of the more frequent next-sentence label in a split, as far as it was trained on or evaluated.

    Args:
      entries: of the split, see `metrics_file.read`.

    Returns:
      A fraction from 0.5 to 1; None if the entries do not say.
    """
    shares = [entry[RANDOM_NEXT_SHARE] for entry in entries if RANDOM_NEXT_SHARE in entry]
    if not shares:
        return None
    random = sum(shares) / len(shares)
    return max(random, 1 - random)
