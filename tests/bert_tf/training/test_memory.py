import dataclasses

import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.encoder import BertEncoder
from bert_tf.settings import DeviceSettings, PretrainingSettings
from bert_tf.training import memory

TINY = BertConfig.named("tiny")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Sets the memory and swap of the machine, in kB."""

    def has(memory_kb, swap_kb=0):
        path = tmp_path / "meminfo"
        path.write_text(f"MemTotal:  {memory_kb} kB\nMemFree:  1 kB\nSwapTotal:  {swap_kb} kB\n")
        monkeypatch.setattr(memory, "_MEMORY_FILE", str(path))

    return has


def test_the_estimate_is_below_the_real_number_of_weights_and_close_to_it():
    encoder = BertEncoder(TINY)
    ids = keras.Input([4], dtype=tf.int32)
    encoder(dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ids))
    assert 0.9 * encoder.count_params() < memory.fewest_weights(TINY) < encoder.count_params()


def test_a_model_is_refused_only_if_it_cannot_fit(machine):
    weights_kb = memory.fewest_weights(TINY) * 4 // 1024 + 1
    machine(4 * weights_kb - 100, 100)
    memory.require_memory(TINY, DeviceSettings(), training=True)
    machine(2 * weights_kb)
    memory.require_memory(TINY, DeviceSettings(), training=False)
    memory.require_memory(TINY, DeviceSettings(num_gpus=1), training=True)
    with pytest.raises(InputError, match="weights, gradients and moments of this model need 0.1 GB"):
        memory.require_memory(TINY, DeviceSettings(), training=True)
    huge = dataclasses.replace(TINY, hidden_size=1_000_000, num_attention_heads=1)
    with pytest.raises(InputError, match="hidden_size=1000000"):
        memory.require_memory(huge, DeviceSettings(), training=False)


def batch(rows, accumulation=1, **more) -> PretrainingSettings:
    return PretrainingSettings(
        input_file="data", output_dir="run", do_train=True, train_batch_size=rows, max_seq_length=128,
        gradient_accumulation_steps=accumulation, **more,
    )  # fmt: skip


def test_a_batch_is_refused_only_if_its_ids_and_one_activation_cannot_fit(machine):
    machine(128 * 4 * (1 + TINY.hidden_size))  # of 1024 rows
    memory.require_batch_memory(TINY, batch(1024), 1)
    memory.require_batch_memory(TINY, batch(4096, 4), 2)
    memory.require_batch_memory(TINY, batch(4096, num_gpus=1), 1)
    with pytest.raises(InputError, match=r"--train_batch_size=1025 .* one activation alone need 0.1 GB, but this"):
        memory.require_batch_memory(TINY, batch(1025), 1)


def test_a_tensor_with_more_values_than_dropout_can_count_is_refused(machine):
    machine(1 << 40)
    wide = dataclasses.replace(TINY, hidden_size=2**14, num_attention_heads=1)
    memory.require_batch_memory(wide, batch(2**10 - 1), 1)
    memory.require_batch_memory(wide, batch(2**10, 2), 1)
    with pytest.raises(InputError, match="a tensor on a device would have 2,147,483,648 values, but dropout"):
        memory.require_batch_memory(wide, batch(2**10), 1)
    memory.require_batch_memory(dataclasses.replace(wide, hidden_dropout_prob=0), batch(2**10), 1)
    many = dataclasses.replace(TINY, num_attention_heads=128)
    with pytest.raises(InputError, match="would have 2,147,483,648 values"):
        memory.require_batch_memory(many, batch(2**10), 1)


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
def test_out_of_memory_is_one_line_with_the_flags_that_help(message, shown):
    for kind in (tf.errors.ResourceExhaustedError, tf.errors.InternalError):
        with pytest.raises(InputError, match=shown), memory.clear_errors():
            raise kind(None, None, message)


def test_memory_that_python_lacks_is_the_same_line():
    with pytest.raises(InputError, match="out of memory; lower --train_batch_size"), memory.clear_errors():
        raise MemoryError


def test_a_full_disk_is_not_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError), memory.clear_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")
