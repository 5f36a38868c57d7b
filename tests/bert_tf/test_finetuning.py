import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning import classifier
from bert_tf.finetuning.classifier import BertClassifier, ClassificationObjective
from bert_tf.finetuning.tasks import glue
from bert_tf.settings import ClassifierSettings
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import optimization
from tests.bert_tf.reference import loss_of, means_of

CONFIG = BertConfig(
    vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    initializer_range=0.05,
)  # fmt: skip


def task_named(name):
    return glue.find_task(
        ClassifierSettings(
            data_dir="",
            bert_config_file="config.json",
            task_name=name,
            vocab_file="vocab.txt",
            output_dir="unused",
            do_eval=True,
        )
    )


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return BertTokenizer(vocab_file)


def encoded_pairs(tokenizer, task, count, rng):
    words = [p for p in tokenizer.vocabulary if p.isalpha() and len(p) > 2]
    examples = []
    for _ in range(count):
        texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(2)]
        label = f"{rng.uniform(0, 5):.2f}" if task.is_regression else str(rng.integers(2))
        examples.append(glue.Example(texts[0], texts[1] if task.has_pairs else None, label))
    return classifier.encode_examples(examples, task, tokenizer)


@pytest.mark.parametrize("name", ["MRPC", "STS-B"])
def test_the_head_overfits_32_examples(tokenizer, name):
    keras.utils.set_random_seed(0)
    task = task_named(name)
    encoded = encoded_pairs(tokenizer, task, 32, np.random.default_rng(0))
    data = classifier.batches(encoded, tokenizer, max_seq_length=16, batch_size=32, training=True)
    batch = next(iter(data))
    model = BertClassifier(CONFIG, task.num_outputs)
    objective = ClassificationObjective(model, task.is_regression)
    optimizer = optimization.AdamWeightDecay(1e-3, weight_decay_rate=0.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(objective, batch, training=True, seed=tf.constant([0, 0]))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimization.clipped_update(optimizer, gradients, model.trainable_variables)
        return loss

    first = float(step())
    for _ in range(300):
        last = float(step())
    assert first > 0.4 and last < 0.02, (first, last)


def test_loss_and_accuracy_follow_their_definition_and_leave_out_filling():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0]], np.float32)

    class Fixed(keras.Model):
        def call(self, inputs, training=False, seed=None):
            return {"logits": tf.constant(logits)}

    batch = {"label_ids": tf.constant([0.0, 0.0, 1.0]), "is_real_example": tf.constant([1, 1, 0])}
    objective = ClassificationObjective(Fixed(), False)
    assert float(objective.denominators(batch)["loss"]["loss"]) == 2
    means = means_of(objective, batch)
    np.testing.assert_allclose(float(means["loss"]), (np.log(1 + np.exp(-2)) + np.log(1 + np.e)) / 2, rtol=1e-6)
    assert float(means["accuracy"]) == 1 / 2
    np.testing.assert_allclose(means_of(ClassificationObjective(Fixed(), True), batch)["loss"], 2.0)  # (2^2 + 0^2) / 2


def test_mean_loss_is_the_mean_over_all_examples():
    logits, labels = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32), np.array([0.0, 0.0], np.float32)
    expected = (np.log(1 + np.exp(-2)) + np.log(1 + np.e)) / 2
    np.testing.assert_allclose(classifier.mean_loss(logits, labels, is_regression=False), expected, rtol=1e-6)
    np.testing.assert_allclose(classifier.mean_loss(logits[:, :1], labels, is_regression=True), 2.0)


def test_training_batches_shuffle_anew_each_epoch_and_resume(tokenizer):
    encoded = encoded_pairs(tokenizer, task_named("MRPC"), 12, np.random.default_rng(1))

    def ids(steps, **options):
        data = classifier.batches(encoded, tokenizer, max_seq_length=16, batch_size=4, training=True, seed=5, **options)
        return [b["example_ids"].numpy().tolist() for b in data.take(steps)]

    got = ids(6)
    first, second = sum(got[:3], []), sum(got[3:], [])
    assert sorted(first) == sorted(second) == list(range(12)) and first != second
    assert ids(2, start_step=4) == got[4:]


def test_prediction_keeps_the_examples_order_whatever_the_batch_size(tokenizer):
    encoded = encoded_pairs(tokenizer, task_named("MRPC"), 11, np.random.default_rng(2))
    model = BertClassifier(CONFIG, 2)
    strategy = tf.distribute.get_strategy()

    def predict(batch_size):
        data = classifier.batches(encoded, tokenizer, max_seq_length=16, batch_size=batch_size, training=False)
        return classifier.predict(model, strategy, data, len(encoded))

    one_by_one = predict(1)
    assert one_by_one.shape == (11, 2)
    assert len(np.unique(one_by_one[:, 0])) == 11
    np.testing.assert_allclose(predict(4), one_by_one, atol=1e-6)
    np.testing.assert_allclose(predict(64), one_by_one, atol=1e-6)
