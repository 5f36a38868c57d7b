import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.finetuning.batches import row_batches
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.finetuning.row_plan import plan_evaluation, plan_training
from bert_tf.finetuning.task import encoded_split
from bert_tf.input.record_order import Position
from bert_tf.tasks.classification.example import Example
from tests.bert_tf.classification import make_objective, make_task
from tests.bert_tf.reference import means_of
from tests.small_configs import small_config

CONFIG = small_config(400, 8, dropout=0.0, max_position_embeddings=16, initializer_range=0.05)


def encoded_pairs(tokenizer, task, count, rng):
    words = [p for p in tokenizer.vocabulary if p.isalpha() and len(p) > 2]
    examples = []
    for _ in range(count):
        texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(2)]
        label = f"{rng.uniform(0, 5):.2f}" if (task.kind == "regression") else str(rng.integers(2))
        examples.append(Example(*texts, label))
    return encoded_split(task, examples, tokenizer, 16)


def test_loss_and_accuracy_follow_their_definition():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0]], np.float32)

    class Fixed(keras.Model):
        def call(self, inputs, training=False, seed=None):
            return {"logits": tf.constant(logits)}

    batch = {"label_ids": tf.constant([0.0, 0.0, 1.0]), "row_weights": tf.constant([1.0, 1.0, 0.0])}
    objective = FineTuningObjective(Fixed(), make_task(2))
    assert float(objective.denominators(batch)["loss"]["loss"]) == 2
    means = means_of(objective, batch)
    np.testing.assert_allclose(float(means["loss"]), (np.log(1 + np.exp(-2)) + np.log(1 + np.e)) / 2, rtol=1e-6)
    assert float(means["accuracy"]) == 1 / 2
    np.testing.assert_allclose(
        means_of(FineTuningObjective(Fixed(), make_task(0)), batch)["loss"], 2.0
    )  # (2^2 + 0^2) / 2


def test_training_batches_shuffle_and_resume(tokenizer):
    task = make_task(2)
    encoded = encoded_pairs(tokenizer, task, 13, np.random.default_rng(1))

    def batches(start, **options):
        plan = plan_training(encoded.lengths, batch_size=4, num_batches=8, seed=5)
        data = row_batches(encoded, task, tokenizer, plan, max_seq_length=16, start=start)
        return [(b["row_ids"].numpy().tolist(), Position(*b["data_position"][0].numpy())) for b in data]

    got = batches(0)
    ids = sum((row_ids for row_ids, _ in got), [])
    assert sorted(ids[:13]) == sorted(ids[13:26]) == list(range(13)) and ids[:13] != ids[13:26]
    assert [position for _, position in got[:4]] == [(0, 4, 0), (0, 8, 0), (0, 12, 0), (1, 3, 0)]
    assert batches(5) == got[5:]


@pytest.mark.quick_cases("padded")
@pytest.mark.parametrize("packed_for", [None, CONFIG], ids=["padded", "packed"])
def test_replicas_share_a_batch_and_its_position(tokenizer, packed_for):
    task = make_task(2)
    encoded = encoded_pairs(tokenizer, task, 8, np.random.default_rng(1))
    plan = plan_training(encoded.lengths, batch_size=4, num_batches=1, slices=2, packed_for=packed_for)
    options = {"max_seq_length": 16, "slices": 2}
    whole = next(iter(row_batches(encoded, task, tokenizer, plan, **options, slices_per_replica=2)))
    slices = [
        next(iter(row_batches(encoded, task, tokenizer, plan, **options, input_context=context)))
        for context in (tf.distribute.InputContext(2, worker, 2) for worker in range(2))
    ]
    for name, column in whole.items():
        assert slices[0][name].shape[0] == column.shape[0] / 2
        np.testing.assert_array_equal(tf.concat([share[name] for share in slices], axis=0), column)


@pytest.mark.slow
def test_evaluation_does_not_depend_on_batches(tokenizer):
    task, count = make_task(2), 11
    encoded = encoded_pairs(tokenizer, task, count, np.random.default_rng(2))
    objective = make_objective(CONFIG, 2)

    def evaluate(batch_size, packed_for, parts=1):
        options = {"max_seq_length": 16, "slices": parts}
        plan = plan_evaluation(encoded.lengths, batch_size=batch_size, packed_for=packed_for, **options)

        def make_batches(context):
            options["slices_per_replica"] = parts
            return row_batches(encoded, task, tokenizer, plan, input_context=context, **options)

        found, losses = evaluate_rows(
            objective, task.prediction, tf.distribute.get_strategy(), make_batches, count, parts
        )
        return found, losses["loss"]

    one_by_one, loss = evaluate(1, None)
    assert one_by_one.shape == (count, 2)
    assert len(np.unique(one_by_one[:, 0])) == count
    labels = encoded.columns["label_ids"].numpy().astype(int)
    right = one_by_one[np.arange(count), labels]
    np.testing.assert_allclose(loss, np.mean(np.logaddexp.reduce(one_by_one, axis=1) - right), rtol=1e-5)
    for batch_size, packed_for in ((4, None), (1, CONFIG), (64, CONFIG)):
        again, its_loss = evaluate(batch_size, packed_for)
        np.testing.assert_allclose(again, one_by_one, atol=1e-6)
        np.testing.assert_allclose(its_loss, loss, rtol=1e-6)
    objective.evaluation_step = None  # its graph was traced for whole batches
    for packed_for in (None, CONFIG):
        again, its_loss = evaluate(4, packed_for, parts=2)
        np.testing.assert_allclose(again, one_by_one, atol=1e-6)
        np.testing.assert_allclose(its_loss, loss, rtol=1e-6)
