"""The losses of a teacher's outputs and their gradients, in every kind of task, beside PyTorch in float64."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from torch.nn import functional

from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.multi_label import LabelSets
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tasks.tagging.tagging_task import TaggingTask

pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)
B, S, T, W = 6, 5, 3.0, 0.7
IS_LABELED = np.float32([1, 1, 1, 1, 0, 0])
REAL = np.float32([1, 1, 1, 1, 1, 0])  # the last row is padding


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def mean(values, weights):
    return (values * torch.tensor(weights)).sum() / weights.sum()


def divergence(teacher, student):
    """As Hinton et al. and most of PyTorch's programs write it."""
    student, teacher = functional.log_softmax(student / T, -1), functional.softmax(teacher / T, -1)
    return T**2 * functional.kl_div(student, teacher, reduction="none").sum(-1)


def of_classes(logits, teacher, columns):
    task = functional.cross_entropy(logits, torch.tensor(columns["label_ids"]).long(), reduction="none")
    return mean(task, REAL * IS_LABELED), mean(divergence(teacher[:, 0], logits), REAL)


def of_label_sets(logits, teacher, columns):
    def loss(own, targets):
        return functional.binary_cross_entropy_with_logits(own, targets, reduction="none").mean(1)

    labels = torch.tensor(columns["label_ids"]).double()
    of_teacher = T**2 * loss(logits / T, torch.sigmoid(teacher[:, 0] / T))
    return mean(loss(logits, labels), REAL * IS_LABELED), mean(of_teacher, REAL)


def of_scores(logits, teacher, columns):
    def loss(scores):
        return (logits[:, 0] - (scores - 2.0) / 0.5) ** 2

    return mean(loss(torch.tensor(columns["label_ids"])), REAL * IS_LABELED), mean(loss(teacher[:, 0, 0]), REAL)


def of_tags(logits, teacher, columns):
    read = torch.gather(logits, 1, torch.tensor(columns["read_positions"]).long()[..., None].expand_as(logits))
    weights = columns["read_mask"] * REAL[:, None]
    task = functional.cross_entropy(read.mT, torch.tensor(columns["label_ids"]).long(), reduction="none")
    padded = functional.pad(teacher, (0, 0, 0, S - teacher.shape[1]))
    return mean(task, weights * IS_LABELED[:, None]), mean(divergence(padded, read), weights)


def of_spans(logits, teacher, columns):
    tokens = torch.tensor(columns["input_mask"])[..., None] > 0
    logits, teacher = (torch.where(tokens, each, -1e9) for each in (logits, functional.pad(teacher, (0, 0, 0, 1))))
    task = sum(
        functional.cross_entropy(logits[..., side], torch.tensor(columns[name]).long(), reduction="none")
        for side, name in enumerate(("start_positions", "end_positions"))
    )
    both = sum(divergence(teacher[..., side], logits[..., side]) for side in range(2))
    return mean(task / 2, REAL * IS_LABELED * columns["has_label"]), mean(both / 2, REAL)


def of_choices(logits, teacher, columns):
    """Two labeled examples of two choices, and one example of a choice whose label is unknown."""
    examples = [slice(0, 2), slice(2, 4), slice(4, 5)]
    task = torch.stack([functional.cross_entropy(logits[e, 0], torch.tensor(right)) for e, right in
                        zip(examples[:2], (1, 0), strict=True)])  # fmt: skip
    found = torch.stack([divergence(teacher[e, 0, 0], logits[e, 0]) for e in examples])
    return task.mean(), found.mean()


def of_vectors(logits, teacher, columns):
    """The first pair is labeled; the last three texts are not."""
    real = slice(0, 5)
    own, other = (functional.normalize(each, dim=-1)[real] for each in (logits, teacher[:, 0]))
    scores = 20 * own[0] @ own[[1]].T
    task = functional.cross_entropy(scores[None], torch.tensor([0]))
    errors = ((own @ own.T - other @ other.T) ** 2).mean(1)
    if own.shape == other.shape:
        errors = errors + 1 - functional.cosine_similarity(logits[real], teacher[real, 0])
    return task, errors.mean()


MASK = np.int32([[1] * 5, [1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1] * 5, [1, 1, 1, 1, 0], [1] * 5])
POSITIONS = np.int32(
    [[1, 2, 3, 0, 4], [2, 0, 1, 3, 4], [1, 2, 0, 3, 4], [3, 0, 1, 2, 4], [1, 3, 0, 2, 4], [1, 0, 2, 3, 4]]
)
READ = np.int32([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
LABELS = np.float32([0, 1, 2, 1, 0, 0])
# The task, the logits, the teacher's outputs, the columns of the batch, and the formula of each kind.
KINDS = {
    "classes": (
        ClassificationTask("own", Classes(("a", "b", "c"))), normal(B, 3), normal(B, 1, 3), {"label_ids": LABELS},
        of_classes,
    ),
    "label_sets": (
        ClassificationTask("own", LabelSets(("a", "b", "c"))), normal(B, 3), normal(B, 1, 3),
        {"label_ids": np.float32(RNG.integers(0, 2, [B, 3]))}, of_label_sets,
    ),
    "scores": (
        ClassificationTask("own", Regression(mean=2.0, deviation=0.5)), normal(B, 1), normal(B, 1, 1),
        {"label_ids": LABELS}, of_scores,
    ),
    "tags": (
        TaggingTask(("O", "B-PER", "I-PER"), "iob2"), normal(B, S, 3), normal(B, 3, 3),
        {"read_positions": POSITIONS, "read_mask": READ, "label_ids": READ * 2}, of_tags,
    ),
    "spans": (
        SquadTask(Decoding()), normal(B, S, 2), normal(B, S - 1, 2),
        {"input_mask": MASK, "start_positions": np.int32([1, 2, 0, 1, 0, 0]),
         "end_positions": np.int32([2, 2, 1, 3, 0, 0]), "has_label": np.float32([1, 1, 0, 1, 1, 1])}, of_spans,
    ),
    "choices": (
        ChoiceTask(), normal(B, 1), normal(B, 1, 1),
        {"choice_ids": np.int32([0, 1, 0, 1, 0, 0]), "label_ids": np.float32([0, 1, 1, 0, 0, 0])}, of_choices,
    ),
    **{
        f"vectors of {size}": (
            EmbeddingTask(), normal(B, 4), normal(B, 1, size),
            {"roles": np.int32([0, 1, 0, 0, 0, 0]), "text_ids": np.int32(range(B)),
             "is_labeled": np.float32([1, 1, 0, 0, 0, 0])}, of_vectors,
        )
        for size in (4, 7)
    },
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_pytorchs(kind, packed):
    task, logits, teacher, columns, formula = KINDS[kind]
    rows = {"row_weights": REAL, "is_labeled": IS_LABELED, "teacher_outputs": teacher} | columns
    batch = {f"row/{name}" if packed else name: tf.constant(column) for name, column in rows.items()}
    objective = FineTuningObjective(None, task, distill_weight=W, temperature=T)
    ours = tf.Variable(logits)
    with tf.GradientTape() as tape:
        sums, total = objective.weighted_sums(ours, batch), objective.denominators(batch)["loss"]
        loss = objective.loss(sums, total)
    theirs = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    of_task, of_teacher = formula(theirs, torch.tensor(teacher, dtype=torch.float64), columns)
    expected = (1 - W) * of_task + W * of_teacher
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(loss, ours)), theirs.grad, atol=2e-6)
