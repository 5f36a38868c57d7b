"""Loss and scores of choices against Hugging Face's BertForMultipleChoice with the same weights."""

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_tf.checkpoints import variables_by_path
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.tasks.choice.choice_task import ChoiceTask
from tests.bert_tf.reference import CONFIG, random_batch, randomize
from tests.parity.hugging_face import hugging_face, their_inputs

pytestmark = pytest.mark.torch
EXAMPLES, CHOICES = 5, 4


def test_scores_loss_and_gradients_are_equal():
    task, rng = ChoiceTask(), np.random.default_rng(0)
    model = randomize(FineTunedBert(CONFIG, task.head))
    weights = variables_by_path(model)
    rows = random_batch(CONFIG, EXAMPLES * CHOICES, 20, 2, seed=3)
    inputs = {name: rows[name] for name in ("input_ids", "input_mask", "segment_ids")}
    labels = rng.integers(0, CHOICES, EXAMPLES)
    batch = inputs | {
        "choice_ids": tf.constant(np.tile(np.arange(CHOICES), EXAMPLES), tf.int32),
        "label_ids": tf.constant(np.eye(CHOICES)[labels].ravel(), tf.float32),
        "row_weights": tf.ones([EXAMPLES * CHOICES]),
    }
    with tf.GradientTape() as tape:
        logits = model(inputs)["logits"]
        loss = FineTuningObjective(model, task).weighted_sums(logits, batch)["loss"] / EXAMPLES
    vector, words = weights["head/dense/kernel"], weights["encoder/embeddings/word_embeddings"]
    gradients = [tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, [vector, words])]

    theirs = hugging_face(transformers.BertForMultipleChoice, CONFIG, weights, "eager")
    tensors = {name: value.reshape(EXAMPLES, CHOICES, -1) for name, value in their_inputs(inputs).items()}
    out = theirs(**tensors, labels=torch.tensor(labels))
    out.loss.backward()
    np.testing.assert_allclose(logits.numpy().reshape(EXAMPLES, CHOICES), out.logits.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    parameters = theirs.classifier.weight, theirs.bert.embeddings.word_embeddings.weight
    for ours, parameter in zip(gradients, parameters, strict=True):
        value = parameter.grad.numpy().reshape(ours.shape)
        np.testing.assert_allclose(ours, value, atol=1e-5 * np.abs(value).max())
