"""The only place where feature names, dtypes and lengths of the records stand.

Paper: section 3.1 (the masked language model and the next-sentence task that a record describes).

Letters: S sequence length, P predictions per sequence.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Feature:
    """One fixed-length feature of a record.

    Attributes:
      name: its key in the `tf.train.Example`.
      kind: "int64" or "float", the list of the Example that holds it.
      length: number of values.
    """

    name: str
    kind: str
    length: int


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int, *, masked: bool = True, next_sentence: bool = True
) -> tuple[Feature, ...]:
    """Features of one pre-training record, the original's names.

    Args:
      max_seq_length: S.
      max_predictions_per_seq: P.
      masked: whether the rows are masked; False for those that are masked when they are read, or not at all.
      next_sentence: whether the rows are pairs with a label.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [S]; `masked_lm_positions`, `masked_lm_ids`,
      `masked_lm_weights` [P] where masked; `next_sentence_labels` [1] for pairs: 1 means that B is a random
      sentence.
    """
    s, p = max_seq_length, max_predictions_per_seq
    features = [Feature("input_ids", "int64", s), Feature("input_mask", "int64", s), Feature("segment_ids", "int64", s)]
    if masked:
        features += [
            Feature("masked_lm_positions", "int64", p),
            Feature("masked_lm_ids", "int64", p),
            Feature("masked_lm_weights", "float", p),
        ]
    if next_sentence:
        features.append(Feature("next_sentence_labels", "int64", 1))
    return tuple(features)
