"""A pipeline that starts at any position gives the same batches as an uninterrupted pipeline after this position."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input import record_order
from bert_tf.input.packed_rows import RowShape
from bert_tf.input.pipeline import DynamicMasking, ReadingOptions, pretraining_batches
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.text.masking import MaskingRule
from tests.tfrecords.record_files import write_file
from tfrecords import manifest, records, schema

LENGTH, MOST, BATCH = 16, 3, 6
SIZES = (9, 20, 1, 13)
RULE = DynamicMasking(MaskingRule(60, mask_id=3, max_predictions_per_seq=MOST), special_ids=(1, 2))
KINDS = {
    "static": {},
    "dynamic": {"dynamic_masking": RULE},
    "packed": {"packing": RowShape(4, 8)},
    "dynamic, packed": {"dynamic_masking": RULE, "packing": RowShape(4, 8)},
    "every token, packed": {"directionality": "ltr", "packing": RowShape(4, 8)},
}


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Small sizes, so that epochs, shuffled blocks and windows end inside batches."""
    monkeypatch.setattr(record_order, "WINDOW", 5)
    monkeypatch.setattr(record_order, "_SHUFFLED", 15)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files and features for masked and unmasked rows. The second segment id counts the records."""
    folder = tmp_path_factory.mktemp("position")
    rng = np.random.default_rng(0)
    found = {}
    for masked in (True, False):
        features = schema.pretraining_features(LENGTH, MOST, masked=masked)
        files, number = [], 0
        for index, size in enumerate(SIZES):
            real = np.arange(LENGTH) < rng.integers(4, LENGTH + 1, size)[:, None]
            ids = rng.integers(4, 50, real.shape)
            ids[:, 0], ids[:, 1] = 1, np.arange(number, number + size) + 4
            columns = {f.name: np.zeros((size, f.length), np.float32 if f.kind == "float" else int) for f in features}
            columns |= {"input_ids": ids * real, "input_mask": real.astype(int)}
            columns["segment_ids"][:, 1] = np.arange(number, number + size)
            columns["next_sentence_labels"] = ids[:, 1:2] % 2
            if masked:
                columns["masked_lm_positions"][:, 0] = 2
                columns["masked_lm_ids"][:, 0] = ids[:, 2]
                columns["masked_lm_weights"][:, 0] = 1.0
            files.append(str(folder / f"{masked}{index}"))
            write_file(files[-1], records.serialize(columns, features), packed=index == 1)
            number += size
        found[masked] = files, features
    return found


def options_of(data, kind, **more) -> tuple[list[str], ReadingOptions, dict]:
    changes = KINDS[kind]
    files, features = data["dynamic_masking" not in changes and "directionality" not in changes]
    options = {"batch_size": BATCH, "training": True} | changes | more
    names = {"seed", "dynamic_masking", "directionality"} & options.keys()
    return files, ReadingOptions(features, 60, **{name: options.pop(name) for name in names}), options


def batches(data, kind, steps=None, **more) -> list[dict[str, np.ndarray]]:
    files, reading, options = options_of(data, kind, **more)
    dataset = pretraining_batches(files, reading, **options)
    return list((dataset.take(steps) if steps else dataset).as_numpy_iterator())


def assert_equal(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def position_after(batch) -> Position:
    positions = batch["data_position"]
    assert (positions == positions[0]).all()
    return Position(*positions[0].tolist())


@pytest.mark.slow
def test_from_any_position_on_the_same_batches_follow(data):
    kind = "dynamic, packed"
    whole = batches(data, kind, 20, seed=5)
    starts = [position_after(batch) for batch in whole]
    assert len(set(starts)) == 20 and starts[-1].epoch >= 1 and any(start.rows for start in starts)
    for step in (0, 3, 6, 15):
        assert_equal(batches(data, kind, 2, seed=5, start=starts[step]), whole[step + 1 : step + 3])


@pytest.mark.slow
def test_other_batch_size_continues_at_same_position(data):
    whole = batches(data, "dynamic, packed", 12, seed=5)
    rows = np.concatenate([batch["input_ids"] for batch in whole])
    later = batches(data, "dynamic, packed", 4, seed=5, batch_size=9, start=position_after(whole[3]))
    np.testing.assert_array_equal(np.concatenate([b["input_ids"] for b in later]), rows[4 * BATCH : 4 * BATCH + 36])


@pytest.mark.quick_cases("every token, packed")
@pytest.mark.parametrize("kind", ["dynamic", "every token, packed"])
@pytest.mark.core
def test_every_epoch_has_every_record_once(data, kind):
    epochs, epoch = {}, 0
    for batch in batches(data, kind, 80, seed=2, batch_size=1):
        first_tokens = batch["position_ids"] == 1 if "packed" in kind else np.s_[:, 1]
        epochs.setdefault(epoch, []).extend(batch["segment_ids"][first_tokens].tolist())
        position = position_after(batch)
        epoch = position.epoch + (position.examples == sum(SIZES))
    every = list(range(sum(SIZES)))
    first, second = (epochs[number][: sum(SIZES)] for number in (0, 1))
    if "packed" not in kind:
        second = second[: 80 - sum(SIZES)]
        assert len(second) == len(set(second)) and set(second) <= set(every)
    else:
        assert sorted(second) == every
    assert sorted(epochs[0]) == every and first[:9] != second[:9] and first[:9] != every[:9]


@pytest.mark.quick_cases("False-2-2")
@pytest.mark.parametrize("training, workers, replicas", [(True, 3, 6), (False, 2, 2)])
@pytest.mark.core
def test_workers_and_replicas_split_each_global_batch(data, training, workers, replicas):
    kind = "dynamic, packed" if training else "dynamic"
    steps = 8 if training else None
    whole = batches(data, kind, steps, training=training)
    local = replicas // workers
    shares = [
        batches(data, kind, steps and steps * local, training=training, start=BEGINNING,
                input_context=tf.distribute.InputContext(workers, worker, replicas))
        for worker in range(workers)
    ]  # fmt: skip
    assert {len(share) for share in shares} == {len(whole) * local}
    for step, batch in enumerate(whole):
        parts = [part for share in shares for part in share[step * local : (step + 1) * local]]
        sizes = [len(part["input_ids"]) for part in parts]
        assert max(sizes) - min(sizes) <= (0 if training else 1)
        for name, expected in batch.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), expected, err_msg=name)


@pytest.mark.slow
def test_skipped_files_are_not_read(data, tmp_path, monkeypatch):
    monkeypatch.setattr(record_order, "_OPEN_FILES", 2)
    _, reading, options = options_of(data, "static", seed=5)  # reads the first and the third file first
    files = [shutil.copy(file, tmp_path) for file in data[True][0]]
    whole = list(pretraining_batches(files, reading, **options).take(5).as_numpy_iterator())
    start = position_after(whole[2])  # in the second block of 15, and 10 records are in the first two files
    shards = [manifest.Shard(f"{True}{index}", size, 0, "") for index, size in enumerate(SIZES)]
    manifest.write(str(tmp_path / "set.manifest.json"), {}, shards)
    for file in (0, 2):
        (tmp_path / f"{True}{file}").write_bytes(b"no records")
    again = pretraining_batches(files, reading, start=start, **options).take(2)
    assert_equal(list(again.as_numpy_iterator()), whole[3:])


def test_a_file_that_ends_at_the_position_is_not_read(tmp_path):
    files = [str(tmp_path / name) for name in "ab"]
    for number, file in enumerate(files):
        write_file(file, [b"%d" % index for index in range(15 * number, 15 * number + 15)])
    shards = [manifest.Shard(name, 15, 0, "") for name in "ab"]
    manifest.write(str(tmp_path / "set.manifest.json"), {}, shards)
    for start in (10, 15):
        if start == 15:
            (tmp_path / "a").write_bytes(b"no records")
        found = record_order.windows(files, shuffled=False, seed=0, start=Position(0, start, 0))
        assert [int(record) for *_, window in found for record in window.numpy()] == list(range(start, 30))
