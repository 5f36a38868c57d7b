"""Training throughput: sequences, tokens and model FLOPs per second of training time."""

import time
from collections.abc import Mapping

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.training.flops import Peak


class Throughput:
    """Counts rows, sequences and tokens of all replicas with graph operations, and measures the time in Python. Create
    the counter in the scope of the strategy.
    `flops_per_row`: FLOPs of a training step per row, by formula; see `flops`.
    `peak`: the peak FLOP/s of the devices; None if unknown."""

    def __init__(self, flops_per_row: float = 0.0, peak: Peak | None = None):
        self.flops_per_row, self.peak = flops_per_row, peak
        self._rows = keras.metrics.Sum("rows", dtype=tf.float32)
        self._sequences = keras.metrics.Sum("sequences", dtype=tf.float32)
        self._tokens = keras.metrics.Sum("tokens", dtype=tf.float32)
        self._start = time.monotonic()

    def count(self, batch: Mapping[str, tf.Tensor]) -> None:
        """Counts the batch of one replica; call it in replica context.
        `batch`: `input_mask`, int32 [B, S]; for packed rows also `sequence_ids`, int32 [B, S]. The sequences of a row
          are numbered from 1, and `sequence_ids` has the number of each token's sequence, or 0 on padding."""
        input_mask = batch["input_mask"]
        rows = tf.shape(input_mask)[0]
        self._rows.update_state(rows)
        packed = "sequence_ids" in batch
        self._sequences.update_state(tf.reduce_sum(tf.reduce_max(batch["sequence_ids"], 1)) if packed else rows)
        self._tokens.update_state(tf.reduce_sum(input_mask))

    def start(self) -> None:
        """Waits until all pending steps have finished, and then resets the counters."""
        self._sequences.result().numpy()  # wait, since an accelerator may still be computing
        self._rows.reset_states()
        self._sequences.reset_states()
        self._tokens.reset_states()
        self._start = time.monotonic()

    def rates(self) -> dict[str, float]:
        """Returns the rates since `start`. Returns `sequences_per_second`: number of sequences per second.
        `tokens_per_second`: number of tokens per second, without padding. `model_flop_utilization`: fraction of the
        peak, if the peak is known. The result is {} if nothing was counted."""
        sequences, tokens = float(self._sequences.result()), float(self._tokens.result())
        seconds = time.monotonic() - self._start
        if not sequences:
            return {}
        rates = {"sequences_per_second": sequences / seconds, "tokens_per_second": tokens / seconds}
        if self.peak and self.flops_per_row:
            rates |= self._utilization(float(self._rows.result()) / seconds * self.flops_per_row)
        return rates

    def _utilization(self, done: float) -> dict[str, float]:
        """Returns `done` FLOP/s as a fraction of the peak."""
        if done > self.peak.flops:
            logging.warning(
                "training computes %.3g FLOP/s, more than %s (%.3g); model FLOP utilization is no longer reported",
                done, self.peak.source, self.peak.flops,
            )  # fmt: skip
            self.peak = None
            return {}
        return {"model_flop_utilization": done / self.peak.flops}

    def describe(self) -> dict[str, float | str]:
        """Returns the FLOPs per row if they are known; logs and returns the peak to which utilization refers."""
        if not self.flops_per_row:
            return {}
        if self.peak is None:
            return {"flops_per_row": self.flops_per_row}
        logging.info("model FLOP utilization refers to %.3g FLOP/s: %s", self.peak.flops, self.peak.source)
        return {
            "peak_flops": self.peak.flops,
            "peak_source": self.peak.source,
            "flops_per_row": self.flops_per_row,
        }
