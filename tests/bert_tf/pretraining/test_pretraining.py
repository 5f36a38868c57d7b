import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.objective import PretrainingObjective
from tests.bert_tf.reference import loss_of, means_of, random_batch, random_pretrainer
from tests.small_configs import small_config

CONFIG = small_config(60, 32, 2, dropout=0.0, max_position_embeddings=16)


@pytest.mark.core
def test_losses_and_accuracies_follow_their_definition():
    model = random_pretrainer(CONFIG)
    batch = random_batch(CONFIG, batch=6, length=16, predictions=5)
    got = {name: float(mean) for name, mean in means_of(PretrainingObjective(model), batch).items()}

    outputs = model(batch)
    logits = outputs["masked_lm_logits"].numpy().astype(np.float64)
    weights, labels = batch["masked_lm_weights"].numpy(), batch["masked_lm_ids"].numpy()
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = total = right = 0.0
    for row in range(6):
        for p in range(5):
            if weights[row, p]:
                nll -= log_probabilities[row, p, labels[row, p]]
                right += logits[row, p].argmax() == labels[row, p]
                total += 1
    order = outputs["next_sentence_logits"].numpy().astype(np.float64)
    order_labels = batch["next_sentence_labels"].numpy()
    order_nll = np.log(np.exp(order).sum(-1)) - order[np.arange(6), order_labels]
    expected = {
        "masked_lm_loss": nll / total,
        "masked_lm_accuracy": right / total,
        "next_sentence_loss": order_nll.mean(),
        "next_sentence_accuracy": (order.argmax(-1) == order_labels).mean(),
        "next_sentence_random_share": order_labels.mean(),
    }
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)


def test_word_loss_counts_only_word_start_tokens():
    batch = random_batch(CONFIG, batch=6, length=16, predictions=5)
    starts_word = np.random.default_rng(0).random(CONFIG.vocab_size) < 0.5
    objective = PretrainingObjective(random_pretrainer(CONFIG), next_sentence=False, starts_word=starts_word)
    got = means_of(objective, batch)
    weights, labels = batch["masked_lm_weights"].numpy(), batch["masked_lm_ids"].numpy()
    tokens_per_word = weights.sum() / (weights * starts_word[labels]).sum()
    np.testing.assert_allclose(got["word_loss"], got["masked_lm_loss"] * tokens_per_word, rtol=1e-5)


def test_a_batch_without_any_prediction_gives_no_nan():
    batch = random_batch(CONFIG, batch=2, length=16, predictions=3)
    batch["masked_lm_weights"] = tf.zeros([2, 3])
    objective = PretrainingObjective(random_pretrainer(CONFIG))
    assert float(objective.numerators(batch, training=False, seed=None)["loss"]["masked_lm_loss"]) == 0
    assert float(objective.denominators(batch)["loss"]["masked_lm_loss"]) == 0
    assert np.isfinite(loss_of(objective, batch))
