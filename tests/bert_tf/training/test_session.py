"""The context of every run."""

import tensorflow as tf
from tensorflow.python.framework import config

from bert_tf.settings import PretrainingSettings
from bert_tf.training.session import session


def test_deterministic_runs_do_not_affect_later_runs(tmp_path):
    for is_before in (False, True):
        (config.enable_op_determinism if is_before else config.disable_op_determinism)()
        try:
            for is_wanted in (True, False):
                settings = PretrainingSettings(
                    input_file="x", output_dir=str(tmp_path), do_eval=True, deterministic=is_wanted
                )
                with session(settings, tf.distribute.get_strategy()):
                    assert config.is_op_determinism_enabled() == (is_before or is_wanted)
                assert config.is_op_determinism_enabled() == is_before
        finally:
            config.disable_op_determinism()
