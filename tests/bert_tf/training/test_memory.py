import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.training import session


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "OOM when allocating tensor with shape[100000,128,3072] and type float",
            r"of shape \[100000,128,3072\]; lower",
        ),
        ("Out of memory while trying to allocate 5 bytes", "out of memory; lower --train_batch_size"),
    ],
)
def test_out_of_memory_error_names_helpful_flags(message, shown):
    for kind in (tf.errors.ResourceExhaustedError, tf.errors.InternalError):
        with pytest.raises(InputError, match=shown), session.clear_memory_errors():
            raise kind(None, None, message)


def test_memory_that_python_lacks_is_the_same_line():
    with pytest.raises(InputError, match="out of memory; lower --train_batch_size"), session.clear_memory_errors():
        raise MemoryError


def test_a_full_disk_is_not_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError), session.clear_memory_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")
