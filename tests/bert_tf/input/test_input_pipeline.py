import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.input.pipeline import (
    DynamicMasking,
    ReadingOptions,
    clear_errors,
    every_token_predicted,
    pretraining_batches,
)
from bert_tf.text.masking import Masked, MaskingRule, mask
from tests.bert_tf import masking_reference
from tests.bert_tf.masking_reference import CLS, CONTINUES, MASK, ROW, SEP, VOCABULARY
from tests.tfrecords.record_files import write_file
from tfrecords import records, schema

FEATURES = schema.pretraining_features(8, 2)


def write(path, numbers, packed=False):
    """Writes records whose first id identifies them."""
    numbers = np.asarray(list(numbers))
    columns = {f.name: np.zeros((len(numbers), f.length), np.float32 if f.kind == "float" else int) for f in FEATURES}
    columns["input_ids"][:, 0] = numbers
    columns["masked_lm_weights"][:, 0] = 0.5
    columns["next_sentence_labels"][:, 0] = numbers % 2
    write_file(str(path), records.serialize(columns, FEATURES), packed)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Uncompressed files with a compressed file between them."""
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / f"part{i}.tfrecord") for i in range(3)]
    for index, path in enumerate(paths):
        write(path, range(10 * index, 10 * index + 10), packed=index == 1)
    return paths


def numbers(files, steps=None, training=True, vocab_size=100, seed=0):
    reading = ReadingOptions(FEATURES, vocab_size, seed)
    dataset = pretraining_batches(files, reading, batch_size=6, training=training)
    return [batch["input_ids"][:, 0].numpy().tolist() for batch in (dataset.take(steps) if steps else dataset)]


@pytest.mark.core
def test_evaluation_reads_every_record_once_in_order(files):
    got = numbers(files, training=False)
    assert [len(batch) for batch in got] == [6, 6, 6, 6, 6]
    assert sum(got, []) == list(range(30))
    assert [len(batch) for batch in numbers(files[:1], training=False)] == [6, 4]


@pytest.mark.core
def test_order_depends_on_the_seed_alone(files):
    assert numbers(files, 5, seed=1) == numbers(files, 5, seed=1) != numbers(files, 5, seed=2)


def test_ids_beyond_the_vocabulary_are_refused(files):
    message = r"part0.tfrecord: contains ids that are not below vocab_size=29 of the configuration"
    with pytest.raises(InputError, match=message), clear_errors(files, 29):
        numbers(files, training=False, vocab_size=29)
    assert numbers(files, training=False, vocab_size=30)


def test_a_damaged_record_is_named_by_file_and_number(tmp_path):
    good, damaged = tmp_path / "good.tfrecord", tmp_path / "damaged.tfrecord"
    write(good, range(10))
    content = good.read_bytes()
    size = len(content) // 10  # ten records of one length
    damaged.write_bytes(content[: 4 * size + 30] + b"\xff" + content[4 * size + 31 :])
    both = [str(good), str(damaged)]
    with pytest.raises(InputError, match=r"damaged.tfrecord: record 4 \(counted from 0\)"), clear_errors(both, 100):
        numbers(both, training=False)


UNMASKED = schema.pretraining_features(len(ROW), 1, masked=False, next_sentence=False)
PREDICTIONS = 20


def dynamic(**changes) -> DynamicMasking:
    values = {"masked_lm_prob": 0.25, "max_predictions_per_seq": PREDICTIONS, "continues_word": CONTINUES}
    rule = MaskingRule(len(VOCABULARY), MASK, **(values | {"max_ngram_size": 3} | changes))
    return DynamicMasking(rule, (CLS, SEP))


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory):
    """The same row 48 times, without padding, in two files."""
    folder = tmp_path_factory.mktemp("unmasked")
    columns = {"input_ids": ROW, "input_mask": np.ones_like(ROW), "segment_ids": np.zeros_like(ROW)}
    rows = records.serialize({name: np.tile(column, (24, 1)) for name, column in columns.items()}, UNMASKED)
    for name in "ab":
        write_file(str(folder / name), rows, packed=name == "b")
    return [str(folder / name) for name in "ab"]


def masked_batches(files, steps=None, rule=None, seed=0, batch_size=8, training=True):
    reading = ReadingOptions(UNMASKED, len(VOCABULARY), seed, rule or dynamic())
    dataset = pretraining_batches(files, reading, batch_size=batch_size, training=training)
    return [{k: v.numpy() for k, v in batch.items()} for batch in (dataset.take(steps) if steps else dataset)]


def ids(batches):
    return np.stack([batch["input_ids"] for batch in batches])


def summary_of(batches):
    result = Masked(*(np.concatenate([batch[name] for batch in batches]) for name in (
        "input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")))  # fmt: skip
    np.testing.assert_array_equal(result.labels, np.where(result.weights > 0, ROW[result.positions], 0))
    return masking_reference.summary(*masking_reference.masked_ids(result))


@pytest.mark.slow
def test_dynamic_and_static_masking_are_equal_in_law(unmasked):
    read = summary_of(masked_batches(unmasked, 250, batch_size=48))
    static = mask(
        np.tile(ROW, (20_000, 1)), np.full(20_000, len(ROW)), np.tile(masking_reference.MASKABLE, (20_000, 1)),
        dynamic().rule, np.random.default_rng(7),
    )  # fmt: skip
    written = masking_reference.summary(*masking_reference.masked_ids(static))
    official = masking_reference.summary(*masking_reference.official(5_000, 8, 0.25, PREDICTIONS, True, 3))
    for name, other in (("written", written), ("official", official)):
        found = masking_reference.p_values(read, other)
        assert min(found.values()) > masking_reference.LEVEL, (name, found)
    single = summary_of(masked_batches(unmasked, 100, dynamic(max_ngram_size=1), batch_size=48))
    assert masking_reference.p_values(single, official)["runs"] < masking_reference.LEVEL, "and it can tell others"


def test_masks_differ_by_epoch_and_seed(unmasked):
    got = ids(masked_batches(unmasked, 12))  # two epochs of 48 equal rows
    assert len({row.tobytes() for row in got.reshape(-1, len(ROW))}) > 80
    evaluations = [ids(masked_batches(unmasked, training=False)) for _ in range(2)]
    np.testing.assert_array_equal(*evaluations)
    assert (evaluations[0] != got[:6]).any()
    assert (ids(masked_batches(unmasked, 3, seed=1)) != got[:3]).any()


def test_dynamic_masking_keeps_shapes_and_dtypes(unmasked):
    reading = ReadingOptions(UNMASKED, 99, dynamic_masking=dynamic())
    spec = pretraining_batches(unmasked, reading, batch_size=8, training=True).element_spec
    length = len(ROW)
    lengths = {"input_ids": length, "input_mask": length, "segment_ids": length, "masked_lm_positions": PREDICTIONS,
               "masked_lm_ids": PREDICTIONS, "masked_lm_weights": PREDICTIONS, "data_position": 3}  # fmt: skip
    assert {name: (s.shape.as_list(), s.dtype) for name, s in spec.items()} == {
        name: ([8, n], tf.float32 if name == "masked_lm_weights" else tf.int32) for name, n in lengths.items()
    }


@pytest.mark.parametrize("directionality", ["ltr", "rtl"])
def test_one_directional_models_predict_every_piece(directionality):
    """One segment, two segments, no text. Only text is predicted, from the preceding or following position."""
    rows = [[2, 7, 8, 9, 8, 3, 0, 0], [2, 7, 3, 8, 9, 7, 7, 3], [2, 3, 0, 0, 0, 0, 0, 0]]
    text = [{1: 7, 2: 8, 3: 9, 4: 8}, {1: 7, 3: 8, 4: 9, 5: 7, 6: 7}, {}]
    ids = tf.constant(rows)
    targets = every_token_predicted({"input_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32)}, directionality)
    assert {name: (value.shape, value.dtype) for name, value in targets.items()} == {
        "masked_lm_positions": ([3, 7], tf.int32),
        "masked_lm_ids": ([3, 7], tf.int32),
        "masked_lm_weights": ([3, 7], tf.float32),
    }
    step = 1 if directionality == "ltr" else -1
    for row, wanted in enumerate(text):
        columns = [targets[name].numpy()[row] for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")]
        assert {p + step: label for p, label, weight in zip(*columns, strict=True) if weight} == wanted
