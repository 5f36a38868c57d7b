"""A packed step of fine-tuning has the loss, the gradients and the predictions of the padded one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import variables_by_path
from bert_tf.finetuning.batches import row_batches, row_columns
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective, head_maker
from bert_tf.finetuning.row_plan import plan_training
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.choice.choice_files import ChoiceExample
from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_file import Answer, Question
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.training import gradients
from tests.bert_tf.classification import make_task
from tests.bert_tf.finetuning.word_task import FindTheWord
from tests.bert_tf.tagging import make_task as tagging_task
from tests.bert_tf.tagging import sentences
from tests.small_configs import small_config

CONFIG = small_config(
    400, 32, 1, 4, dropout=0.0, max_position_embeddings=48, intermediate_size=48, initializer_range=0.3
)


TASKS = {
    "pairs": make_task(3),
    "words": FindTheWord(""),
    "choices": ChoiceTask(),
    "tags": tagging_task(),
    "questions": SquadTask(Decoding(has_unanswerable=True)),
}


def examples(task, tokenizer, count=24):
    rng = np.random.default_rng(0)
    if task == "tags":
        return sentences(tokenizer.vocabulary, count)
    words = [word for word in tokenizer.vocabulary if word.isalpha() and len(word) > 2]
    if task == "questions":
        contexts = [rng.choice(words, rng.integers(1, 20)) for _ in range(count)]
        found = [(" ".join(context), context[i % len(context)]) for i, context in enumerate(contexts)]
        return [
            Question(str(i), "the " * (i % 3), context, (Answer(word, context.index(word)),))
            for i, (context, word) in enumerate(found)
        ]
    texts = [[" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(2)] for _ in range(count)]
    if task == "choices":
        return [ChoiceExample(a, "he", (b, *words[i : i + 1 + i % 3]), i % 2) for i, (a, b) in enumerate(texts)]
    return (
        [" the ".join(pair) for pair in texts]
        if task == "words"
        else [Example(*p, str(i % 3)) for i, p in enumerate(texts)]
    )


def measured(objective, task, tokenizer, split, packed, micro_batches=1, parts=1):
    """Returns loss, metrics, gradients by path, and logits by row of one step."""
    plan = plan_training(
        split.lengths, batch_size=24, num_batches=1, slices=micro_batches * parts,
        packed_for=CONFIG if packed else None,
        rows_per_example=task.rows_per_example(split),
    )  # fmt: skip
    data = row_batches(
        split, task, tokenizer, plan, max_seq_length=32, slices=micro_batches * parts,
        slices_per_replica=micro_batches * parts,
    )  # fmt: skip
    batch = dict(next(iter(data)))
    del batch["data_position"]
    variables = variables_by_path(objective.model)
    denominators = objective.denominators(batch)
    names = [name for names in denominators.values() for name in names]

    @tf.function(autograph=False)
    def step():
        return gradients.accumulate(
            objective, names, list(variables.values()),
            batch, tf.constant([0, 0]), denominators["loss"], micro_batches=micro_batches, parts=parts,
        )  # fmt: skip

    found, sums = step()
    by_path = {p: tf.convert_to_tensor(g).numpy() for p, g in zip(variables, found, strict=True) if g is not None}
    results = [] if micro_batches * parts > 1 else objective.model(batch)["logits"]
    rows = row_columns(batch)
    order = np.argsort(rows["row_ids"])
    if micro_batches * parts == 1:
        mask = rows["input_mask"].numpy()[order]
        results = results.numpy()[order]
        results = results if results.ndim == 2 else results * mask[:, :, None]
    return {name: float(value) for name, value in sums.items()}, by_path, results, batch


def assert_same(sums, gradients, expected_sums, expected_gradients):
    for name, value in expected_sums.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, err_msg=name)
    assert gradients.keys() == expected_gradients.keys() and len(gradients) > 20
    largest = max(np.abs(value).max() for value in expected_gradients.values())
    for path, value in expected_gradients.items():
        np.testing.assert_allclose(gradients[path], value, atol=1e-5 * largest, err_msg=path)


# What matters is whether an example has several rows, and whether the head reads the pooled output.
KINDS = [
    ("pairs", "ltr"), ("words", "bidi"), ("choices", "bidi"), ("questions", "bidi"), ("tags", "bidi"),
    ("words on a BiLSTM", "rtl"),
]  # fmt: skip


@pytest.mark.quick_cases("words-bidi")
@pytest.mark.parametrize(("kind", "directionality"), KINDS)
@pytest.mark.core
def test_packed_steps_equal_padded_steps(tokenizer, kind, directionality):
    kind, *bilstm = kind.split(" on a ")
    task = TASKS[kind]
    split = encoded_split(task, examples(kind, tokenizer), tokenizer, 32)
    if kind == "words":  # two rows for each example
        columns = {name: column[:24] for name, column in split.columns.items()}
        split = dataclasses.replace(
            split, columns=columns, example_ids=split.example_ids[:24], lengths=split.lengths[:24]
        )
    tf.random.set_seed(0)
    config = dataclasses.replace(CONFIG, directionality=directionality)
    model = FineTunedBert(config, head_maker(task.head, bool(bilstm)))
    objective = FineTuningObjective(model, task)
    sums, expected, logits, _ = measured(objective, task, tokenizer, split, packed=False)
    assert sums["loss"] > 1
    # Dividing the rows of a batch does not matter for the task, unless an example has several rows.
    shared = {"choices": [(2, 2)], "questions": [(1, 2)]}.get(kind, [(2, 1)] if directionality != "bidi" else [])
    for micro_batches, parts in [(1, 1), *shared]:
        packed_sums, found, packed_logits, batch = measured(
            objective, task, tokenizer, split, True, micro_batches, parts
        )
        assert batch["input_ids"].shape[0] < len(split) and "slots" in batch, "rows are shared"
        assert_same(packed_sums, found, sums, expected)
        if micro_batches * parts == 1:
            np.testing.assert_allclose(packed_logits, logits, atol=1e-5 * np.abs(logits).max())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("has_pairs", [False, True])
@pytest.mark.core
def test_all_shapes_of_a_batch_are_static(tokenizer, has_pairs, packed):
    task = make_task(3, has_pairs)
    split = encoded_split(task, examples("pairs", tokenizer), tokenizer, 32)
    plan = plan_training(split.lengths, batch_size=8, num_batches=1, packed_for=CONFIG if packed else None)
    dataset = row_batches(split, task, tokenizer, plan, max_seq_length=32)
    specs = dataset.element_spec
    assert dataset.options().autotune.enabled is False  # see `without_autotune`
    assert {name for name, spec in specs.items() if None in spec.shape} == set()
