"""The training steps that the benchmark writes and times, and the batches of these steps.

Letters: L layers, H hidden, A heads, V vocabulary; B batch, S sequence length, P predictions.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """One training step.

    Attributes:
      layers: L.
      hidden: H.
      heads: A.
      vocabulary: V.
      length: S.
      predictions: P.
      batch_size: the default for B.
      packed: whether a row contains two examples of half the length.
      dtype: compute dtype.
      checked_steps: number of steps that TensorFlow runs and records for comparison.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int
    predictions: int
    batch_size: int
    packed: bool = False
    dtype: str = "bfloat16"
    checked_steps: int = 0

    @property
    def examples(self) -> int:
        """Number of examples in a row."""
        return 2 if self.packed else 1


_BASE, _LARGE, _TINY = (12, 768, 12, 30522), (24, 1024, 16, 30522), (2, 32, 2, 500)
CASES = {
    "tiny_float32": Case(*_TINY, 32, 5, 8, dtype="float32", checked_steps=5),
    "tiny": Case(*_TINY, 32, 5, 8, checked_steps=5),
    "base_128": Case(*_BASE, 128, 20, 256),
    "base_512": Case(*_BASE, 512, 80, 64),
    "base_512_packed": Case(*_BASE, 512, 80, 64, packed=True),
    "large_128": Case(*_LARGE, 128, 20, 128),
    "large_512": Case(*_LARGE, 512, 80, 32),
    "large_512_packed": Case(*_LARGE, 512, 80, 32, packed=True),
}


def batch(case: Case, batch_size: int, seed: int) -> dict[str, np.ndarray]:
    """Returns a batch of random tokens without padding, with random masked positions and all columns of training data.

    Args:
      case: the case, which gives V, S and P.
      batch_size: B.
      seed: seed of the random numbers.

    Returns:
      `input_ids`, `input_mask`, `segment_ids`: int32 [B, S].
      `masked_lm_positions`, `masked_lm_ids`: int32 [B, P].
      `masked_lm_weights`: float32 [B, P].
      `next_sentence_labels`: int32 [B], or [B, 2] for packed rows.
      `data_position`: int32 [B, 3].
      `position_ids`, `sequence_ids`: int32 [B, S], only for packed rows.
      `cls_positions`: int32 [B, 2], only for packed rows.
      `next_sentence_weights`: float32 [B, 2], only for packed rows.
    """
    rng = np.random.default_rng(seed)
    rows, length = batch_size, case.length
    each = length // case.examples
    columns = {
        "input_ids": rng.integers(0, case.vocabulary, (rows, length)),
        "input_mask": np.ones((rows, length)),
        "segment_ids": np.tile(np.arange(length) % each // (each // 2), (rows, 1)),
        "masked_lm_positions": np.sort(rng.random((rows, length)).argsort(1)[:, : case.predictions], 1),
        "masked_lm_ids": rng.integers(0, case.vocabulary, (rows, case.predictions)),
        "next_sentence_labels": rng.integers(0, 2, (rows, 2) if case.packed else rows),
        "data_position": np.full((rows, 3), seed),
    }
    floats = {"masked_lm_weights": np.ones((rows, case.predictions), np.float32)}
    if case.packed:
        columns["position_ids"] = np.tile(np.arange(length) % each, (rows, 1))
        columns["sequence_ids"] = np.tile(np.arange(length) // each + 1, (rows, 1))
        columns["cls_positions"] = np.tile([0, each], (rows, 1))
        floats["next_sentence_weights"] = np.ones((rows, 2), np.float32)
    return {name: values.astype(np.int32) for name, values in columns.items()} | floats
