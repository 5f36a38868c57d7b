import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input_pipeline import clear_errors, pretraining_batches
from tfrecords import schema, writer
from tfrecords.errors import InputError

LENGTHS = {"max_seq_length": 8, "max_predictions_per_seq": 2}
FEATURES = schema.pretraining_features(*LENGTHS.values())


def record(number: int) -> dict:
    """A record that can be told by its first id."""
    values = {f.name: np.zeros(f.length, float if f.kind == "float" else int) for f in FEATURES}
    values["input_ids"][0] = number
    values["masked_lm_weights"][0] = 0.5
    values["next_sentence_labels"][0] = number % 2
    return values


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / f"part{i}.tfrecord") for i in range(3)]
    for index, path in enumerate(paths):
        writer.write_shards([path], [record(n) for n in range(10 * index, 10 * index + 10)], FEATURES)
    return paths


def numbers(files, steps=None, **options):
    options = {"vocab_size": 100, "batch_size": 6, "training": True} | LENGTHS | options
    dataset = pretraining_batches(files, **options)
    return [batch["input_ids"][:, 0].numpy().tolist() for batch in (dataset.take(steps) if steps else dataset)]


def test_evaluation_reads_every_record_once_in_order(files):
    got = numbers(files, training=False)
    assert [len(batch) for batch in got] == [6, 6, 6, 6, 6]
    assert sum(got, []) == list(range(30))
    assert [len(batch) for batch in numbers(files[:1], training=False)] == [6, 4]


def test_training_goes_through_all_records_each_epoch_in_another_order(files):
    got = sum(numbers(files, steps=10), [])
    assert sorted(got[:30]) == sorted(got[30:]) == list(range(30))
    assert got[:30] != list(range(30)) and got[:30] != got[30:]


def test_order_depends_on_the_seed_alone(files):
    assert numbers(files, 5, seed=1) == numbers(files, 5, seed=1) != numbers(files, 5, seed=2)


@pytest.mark.parametrize("start", [1, 4, 7])
def test_a_later_start_continues_the_same_order(files, start):
    assert numbers(files, 3, seed=1, start_step=start) == numbers(files, start + 3, seed=1)[start:]


def test_batches_have_the_models_dtypes_and_shapes(files):
    batch = next(iter(pretraining_batches(files, vocab_size=100, batch_size=6, training=True, **LENGTHS)))
    assert batch["next_sentence_labels"].shape == [6]
    assert batch["masked_lm_weights"].dtype == tf.float32 and batch["masked_lm_weights"].shape == [6, 2]
    assert batch["input_ids"].dtype == tf.int32 and batch["input_ids"].shape == [6, 8]
    np.testing.assert_array_equal(batch["next_sentence_labels"], batch["input_ids"][:, 0] % 2)


def test_ids_beyond_the_vocabulary_are_refused(files):
    message = r"part0.tfrecord: holds ids at or beyond vocab_size=29 of the configuration"
    with pytest.raises(InputError, match=message), clear_errors(files, 29):
        numbers(files, training=False, vocab_size=29)
    assert numbers(files, training=False, vocab_size=30)


def test_two_workers_share_the_batch_without_overlap(files):
    whole = numbers(files, 5, seed=3)
    contexts = [tf.distribute.InputContext(2, worker, 2) for worker in (0, 1)]
    shares = [numbers(files, 5, seed=3, input_context=context) for context in contexts]
    for step in range(5):
        assert sorted(shares[0][step] + shares[1][step]) == sorted(whole[step])
        assert len(shares[0][step]) == len(shares[1][step]) == 3


def test_a_damaged_record_is_named_by_file_and_number(files, tmp_path):
    damaged = tmp_path / "damaged.tfrecord"
    content = open(files[1], "rb").read()
    size = len(content) // 10  # ten records of one length
    damaged.write_bytes(content[: 4 * size + 30] + b"\xff" + content[4 * size + 31 :])
    both = [files[0], str(damaged)]
    with pytest.raises(InputError, match=r"damaged.tfrecord: record 4 \(counted from 0\)"), clear_errors(both, 100):
        numbers(both, training=False)


def test_a_truncated_file_is_named(files, tmp_path):
    cut = tmp_path / "cut.tfrecord"
    cut.write_bytes(open(files[1], "rb").read()[:-7])
    with pytest.raises(InputError, match=r"cut.tfrecord: record 9 "), clear_errors([str(cut)], 100):
        numbers([str(cut)], training=False)
