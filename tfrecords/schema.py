"""Defines the names, dtypes and lengths of the features of a record.

Paper: section 3.1 (masked language model and next sentence prediction).
"""

import dataclasses

# The features of the predictions of a masked record, and their types.
PREDICTIONS = {"masked_lm_positions": "int64", "masked_lm_ids": "int64", "masked_lm_weights": "float"}


@dataclasses.dataclass(frozen=True)
class Feature:
    """One fixed-length feature of a record."""

    name: str  # the key in the `tf.train.Example`
    kind: str  # "int64" or "float", the type of the feature's list in the Example
    length: int  # number of values


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int, *, masked: bool = True, next_sentence: bool = True
) -> tuple[Feature, ...]:
    """Returns the features of a pre-training record, with the names of google-research/bert.
    `max_seq_length`: number of tokens in a record, S.
    `max_predictions_per_seq`: number of predictions in a record, P.
    `masked`: whether the record is masked. False if the masking happens during training, or not at all.
    `next_sentence`: whether the record is a pair of segments with a label.
    Returns:
    `input_ids`, `input_mask`, `segment_ids`: int64 [S].
    `masked_lm_positions`, `masked_lm_ids`: int64 [P], only if `masked`.
    `masked_lm_weights`: float [P], only if `masked`.
    `next_sentence_labels`: int64 [1], only if `next_sentence`; 1 means that segment B is random."""
    s, p = max_seq_length, max_predictions_per_seq
    features = [Feature("input_ids", "int64", s), Feature("input_mask", "int64", s), Feature("segment_ids", "int64", s)]
    if masked:
        features += [Feature(name, kind, p) for name, kind in PREDICTIONS.items()]
    if next_sentence:
        features.append(Feature("next_sentence_labels", "int64", 1))
    return tuple(features)
