"""Lowers the training step from TensorFlow to StableHLO.

Letters: B rows in a batch, S sequence length, P predictions.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.modeling.precision import policy, policy_name
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from bert_tf.settings import DeviceSettings
from bert_tf.training.trainer import Trainer, make_optimizer

# These values do not affect the counts. The program computes the learning rate from the step number, which is an input.
_LEARNING_RATE, TOTAL_STEPS, WARMUP_STEPS = 1e-4, 1_000_000, 10_000


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a batch.

    Attributes:
      batch_size: B, number of rows on one chip.
      length: S, number of tokens in a row.
      predictions: P, number of masked positions in a row.
    """

    batch_size: int
    length: int
    predictions: int


def our_step(config: BertConfig, shape: Shape, settings: DeviceSettings) -> str:
    """Lowers a training step to StableHLO text. On a TPU, `Trainer` runs this step on each replica.

    Args:
      settings: dtype, optimizer, and whether activations are recomputed.
    """
    with dtype_policy(settings.dtype):
        trainer = make_trainer(config, settings)
        return lowered(lambda batch: trainer.train_step(iter([batch])), zero_batch(shape))


def make_trainer(config: BertConfig, settings: DeviceSettings, warmup_steps: int = WARMUP_STEPS) -> Trainer:
    """Returns a pre-training trainer for one replica; call this function inside `dtype_policy`."""
    return Trainer(
        PretrainingObjective(BertPretrainer(config, settings.recompute_activations)),
        tf.distribute.get_strategy(),
        optimizer=make_optimizer(settings, _LEARNING_RATE, TOTAL_STEPS, warmup_steps),
    )


@contextlib.contextmanager
def dtype_policy(dtype: str) -> Iterator[None]:
    """Sets Keras's dtype policy, and restores the previous policy at the end."""
    # Keras adds numbers to the names of layers. Reset the numbers, so that the same step always gives the same program.
    keras.backend.clear_session()
    with policy(policy_name(dtype)):
        yield


def zero_batch(shape: Shape) -> dict[str, tf.Tensor]:
    rows, length, predictions = shape.batch_size, shape.length, shape.predictions
    sizes = {
        "input_ids": [rows, length],
        "input_mask": [rows, length],
        "segment_ids": [rows, length],
        "masked_lm_positions": [rows, predictions],
        "masked_lm_ids": [rows, predictions],
        "next_sentence_labels": [rows],
        "data_position": [rows, 3],
    }
    batch = {name: tf.zeros(size, tf.int32) for name, size in sizes.items()}
    return batch | {"masked_lm_weights": tf.zeros([rows, predictions])}


def lowered(step: Callable[[Mapping], object], batch: Mapping[str, tf.Tensor]) -> str:
    """Lowers a step to StableHLO text. The program maps the batch and the variables to new values of the variables.

    Args:
      step: function that takes the batch; its result is ignored.
      batch: a batch with the shapes for which the step is lowered.
    """

    def run(batch):
        step(batch)

    return lowered_function(tf.function(run, jit_compile=True), batch)


def lowered_function(step: Callable, batch: Mapping[str, tf.Tensor]) -> str:
    """Lowers a tf.function with `jit_compile=True`; see `lowered`."""
    try:
        program = step.experimental_get_compiler_ir(batch)(stage="stablehlo")
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(f"XLA cannot compile the step: {' '.join(str(error).split())[-400:]}") from error
    # The module's name contains a number that differs between calls, so replace the name.
    program = re.sub(r"^module @\S+", "module @step", program, flags=re.MULTILINE)
    # The new value of each variable is an mhlo.copy, which is not part of StableHLO. A reshape to the same shape is
    # equivalent, and the compiler removes it.
    return re.sub(r"\bmhlo\.copy (\S+) : (tensor<[^>]*>)", r"stablehlo.reshape \1 : (\2) -> \2", program)
