"""The context of every run."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from bert_tf.core.errors import InputError
from bert_tf.settings import PretrainingSettings
from bert_tf.training import session

SETTINGS = PretrainingSettings(input_file="x", output_dir="y", do_eval=True)
OOM = "OOM when allocating tensor with shape[100000,128,3072] and type float"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (tf.errors.ResourceExhaustedError(None, None, OOM), r"of shape \[100000,128,3072\]; lower"),
        (tf.errors.InternalError(None, None, "Out of memory while trying to allocate 5 bytes"), "out of memory; lower"),
        (MemoryError(), "out of memory; lower --train_batch_size"),
    ],
)
def test_out_of_memory_error_names_helpful_flags(error, shown):
    with pytest.raises(InputError, match=shown), session.clear_memory_errors(SETTINGS):
        raise error


def test_a_full_disk_is_not_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError), session.clear_memory_errors(SETTINGS):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")


def test_deterministic_runs_do_not_affect_later_runs(tmp_path):
    for is_before in (False, True):
        (config.enable_op_determinism if is_before else config.disable_op_determinism)()
        try:
            for is_wanted in (True, False):
                settings = PretrainingSettings(
                    input_file="x", output_dir=str(tmp_path), do_eval=True, deterministic=is_wanted
                )
                with session.session(settings, tf.distribute.get_strategy()):
                    assert config.is_op_determinism_enabled() == (is_before or is_wanted)
                assert config.is_op_determinism_enabled() == is_before
        finally:
            config.disable_op_determinism()
