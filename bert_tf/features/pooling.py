"""Pools the vectors of a text's tokens into one vector, as sentence-transformers does.

Letters: T tokens.
"""

import dataclasses

import numpy as np

SMALLEST_NORM = 1e-12


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Pools the vectors of each text's tokens into one vector per text."""

    mode: str  # "cls", "mean" or "max". The tokens include [CLS] and [SEP].
    normalize: bool  # whether to scale the vector to length 1
    dimensions: int | None = None  # number of the first numbers of the vector to keep; None to keep all
    cuts_first: bool = True  # whether the vector is cut before it is scaled

    def __call__(self, values: np.ndarray, splits: np.ndarray) -> np.ndarray:
        """Pools the tokens of each text.
        `values`: vectors of the tokens, float32 [T, L, H].
        Returns vectors of the texts, float32 [N, L, H]."""
        starts = splits[:-1]
        if self.mode == "cls":
            pooled = values[starts]
        elif self.mode == "max":
            pooled = np.maximum.reduceat(values, starts, axis=0)
        else:
            lengths = np.diff(splits)[:, np.newaxis, np.newaxis].astype(np.float32)
            pooled = np.add.reduceat(values, starts, axis=0) / lengths
        pooled = pooled[..., : self.dimensions] if self.cuts_first else pooled
        if self.normalize:
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=-1, keepdims=True), SMALLEST_NORM)
        return pooled[..., : self.dimensions]
