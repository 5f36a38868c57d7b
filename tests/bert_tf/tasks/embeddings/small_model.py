"""A small model of vectors, its task and batches, for tests."""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import row_batches
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.row_plan import plan_training
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.embeddings.data import PAIRS, SCORED, Texts
from bert_tf.tasks.embeddings.embedding_task import CO_SENT, EmbeddingTask
from bert_tf.tasks.embeddings.prompts import VectorFiles
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import cached_gradients

CONFIG = BertConfig(
    300, 16, 2, 2, 32, max_position_embeddings=24, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2
)
WORDS = "the man said that he had all his work there and was with her for this".split()
LENGTH = 16
SEED = tf.constant([3, 4])


def examples(count: int, scored: bool = False, negatives: int = 1) -> list[Texts]:
    rng = np.random.default_rng(0)

    def text() -> str:
        return " ".join(rng.choice(WORDS, rng.integers(2, 9)))

    if scored:
        return [Texts((text(), text()), SCORED, float(rng.integers(0, 6))) for _ in range(count)]
    return [Texts(tuple(text() for _ in range(2 + negatives)), PAIRS) for _ in range(count)]


def objective_of(task: EmbeddingTask, config: BertConfig = CONFIG) -> FineTuningObjective:
    tf.random.set_seed(0)
    return FineTuningObjective(FineTunedBert(config, task.head), task)


def batch_of(
    task: EmbeddingTask, found: list[Texts], tokenizer: str | BertTokenizer, packed: bool = False, slices: int = 1
):
    """Returns one batch with all examples; the rows of each share are consecutive."""
    tokenizer = BertTokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    split = encoded_split(task, found, tokenizer, LENGTH)
    plan = plan_training(
        split.lengths, batch_size=len(found), num_batches=1, slices=slices, packed_for=CONFIG if packed else None,
        rows_per_example=task.rows_per_example(split),
    )  # fmt: skip
    options = {"max_seq_length": LENGTH, "slices": slices, "slices_per_replica": slices}
    (batch,) = row_batches(split, task, tokenizer, plan, **options)
    return {name: column for name, column in batch.items() if name != "data_position"}


def tasks() -> dict[str, EmbeddingTask]:
    sizes = VectorFiles(matryoshka_dims="16,8")
    return {"infonce": EmbeddingTask(files=sizes, both_directions=True), "cosent": EmbeddingTask(loss=CO_SENT)}


def without_dropout() -> BertConfig:
    return dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def by_path(model, gradients):
    """Returns the gradients of the trainable weights as arrays, by the paths of the weights."""
    paths = {id(variable): path for path, variable in variables_by_path(model).items()}
    pairs = zip(gradients, model.trainable_variables, strict=True)
    return {paths[id(v)]: tf.convert_to_tensor(g).numpy() for g, v in pairs if g is not None}


def gradients(objective, batch, micro_batches=1, parts=1, seed=SEED):
    variables = objective.model.trainable_variables
    denominators = objective.denominators(batch)["loss"]

    @tf.function
    def run():
        return cached_gradients.accumulate(
            objective, variables, batch, seed, denominators, micro_batches=micro_batches, parts=parts
        )

    found, numerators = run()
    return by_path(objective.model, found), {name: float(value) for name, value in numerators.items()}
