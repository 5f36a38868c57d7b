import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.training import session

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
    with pytest.raises(InputError, match=shown), session.clear_memory_errors():
        raise error


def test_a_full_disk_is_not_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError), session.clear_memory_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")
