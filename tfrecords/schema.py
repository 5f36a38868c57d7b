"""Defines the names, dtypes and lengths of the features of a record.

Paper: section 3.1 (the masked language model and the next-sentence task).

Letters: S sequence length, P predictions per sequence.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Feature:
    """One fixed-length feature of a record.

    Attributes:
      name: the key in the `tf.train.Example`.
      kind: "int64" or "float", the type of its list in the Example.
      length: number of values.
    """

    name: str
    kind: str
    length: int


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int, *, masked: bool = True, next_sentence: bool = True
) -> tuple[Feature, ...]:
    """Returns the features of a pre-training record, with the original's names.

    Args:
      max_seq_length: S.
      max_predictions_per_seq: P.
      masked: whether the rows are masked; False for rows that are masked when they are read, or never.
      next_sentence: whether the rows are pairs with a label.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [S]; for masked rows `masked_lm_positions`, `masked_lm_ids`,
      `masked_lm_weights` [P]; for pairs `next_sentence_labels` [1], where 1 means that B is random.
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
