"""How fast training goes: sequences, pieces and model FLOPs a second, without what is not training."""

import dataclasses
import time
from collections.abc import Mapping

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.training.flops import Peak


class Throughput:
    """Counts in the graph what steps work through, over all replicas, and outside it the seconds they take.

    Made in the scope of the strategy.

    Args:
      flops_per_row: FLOPs that a step computes of a row, by formula; see `flops`.
      peak: the devices' most FLOP/s; None where it is not known.
    """

    def __init__(self, flops_per_row: float = 0.0, peak: Peak | None = None):
        self.flops_per_row, self.peak = flops_per_row, peak
        self._rows = keras.metrics.Sum("rows", dtype=tf.float32)
        self._sequences = keras.metrics.Sum("sequences", dtype=tf.float32)
        self._tokens = keras.metrics.Sum("tokens", dtype=tf.float32)
        self._start = time.monotonic()

    def count(self, batch: Mapping[str, tf.Tensor]) -> None:
        """Counts a batch of one replica, in the replica's context.

        Args:
          batch: `input_mask`, int32 [B, S]; of packed rows also `sequence_ids`, whose examples are the sequences.
        """
        input_mask = batch["input_mask"]
        rows = tf.shape(input_mask)[0]
        self._rows.update_state(rows)
        packed = "sequence_ids" in batch
        self._sequences.update_state(tf.reduce_sum(tf.reduce_max(batch["sequence_ids"], 1)) if packed else rows)
        self._tokens.update_state(tf.reduce_sum(input_mask))

    def start(self) -> None:
        """Starts counting anew, once all that was under way is done."""
        self._sequences.result().numpy()  # an accelerator may still be at work
        self._rows.reset_states()
        self._sequences.reset_states()
        self._tokens.reset_states()
        self._start = time.monotonic()

    def figures(self) -> dict[str, float]:
        """What was counted since `start`, a second; {} where nothing was.

        Returns:
          `sequences_per_second`; `tokens_per_second`, of pieces that are not padding; and where the peak is
          known `model_flop_utilisation`, a fraction of it, and the peak itself as `peak_flops`.
        """
        sequences, tokens = float(self._sequences.result()), float(self._tokens.result())
        seconds = time.monotonic() - self._start
        if not sequences:
            return {}
        figures = {"sequences_per_second": sequences / seconds, "tokens_per_second": tokens / seconds}
        if self.peak and self.flops_per_row:
            figures |= self._utilisation(float(self._rows.result()) / seconds * self.flops_per_row)
        return figures

    def _utilisation(self, done: float) -> dict[str, float]:
        """The share of the peak that `done` FLOP/s are. Nothing is faster than its peak, so a lower one is wrong."""
        if done > self.peak.flops and self.peak.measure:
            # other work may have held the processor while the peak was measured
            self.peak = dataclasses.replace(self.peak, flops=max(self.peak.flops, self.peak.measure()))
            logging.info("training was faster than the peak, which is measured again: %.3g FLOP/s", self.peak.flops)
        if done > self.peak.flops:
            logging.warning(
                "training computes %.3g FLOP/s, more than %s (%.3g); model FLOP utilisation is left out from here on",
                done, self.peak.source, self.peak.flops,
            )  # fmt: skip
            self.peak = None
            return {}
        return {"model_flop_utilisation": done / self.peak.flops, "peak_flops": self.peak.flops}

    def describe(self) -> dict[str, float | str]:
        """What utilisation refers to, which the log says too; {} where there is none."""
        if not self.flops_per_row:
            return {}
        if self.peak is None:
            logging.info("the peak of this device is not known; model FLOP utilisation is left out")
            return {}
        logging.info("model FLOP utilisation is of %.3g FLOP/s: %s", self.peak.flops, self.peak.source)
        return {
            "peak_flops": self.peak.flops,
            "peak_source": self.peak.source,
            "flops_per_row": self.flops_per_row,
        }
