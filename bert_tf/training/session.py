"""The context of every run: the lock of its folder, determinism, and one-line error messages."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.distributed import strategies, workers
from bert_tf.runs import run_folder
from bert_tf.settings import FineTuningSettings, PretrainingSettings
from bert_tf.training import memory


@contextlib.contextmanager
def session(
    settings: PretrainingSettings | FineTuningSettings, strategy: tf.distribute.Strategy
) -> Iterator[run_folder.Lock | None]:
    """Locks the run's folder if this process trains, and explains errors about lost workers and exhausted memory.

    `--deterministic` takes effect inside this context.

    Yields:
      The lock; None in a process that does not write checkpoints.

    Raises:
      InputError: another run is training in the folder, a worker has stopped, or the memory is exhausted.
    """
    locked = settings.do_train and strategies.is_chief(strategy)
    with (
        strategies.deterministic_operations(settings.deterministic),
        workers.clear_errors(),
        memory.clear_errors(),
        run_folder.Lock(settings.output_dir) if locked else contextlib.nullcontext() as lock,
    ):
        yield lock
