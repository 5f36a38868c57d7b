"""Several tasks trained together."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.run_classifier import main as run_classifier
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.reference import means_of
from tests.bert_tf.tasks_of_flags import find_task
from tests.small_configs import small_config

CONFIG = small_config(dropout=0.0, max_position_embeddings=16, initializer_range=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """SST-2, whose class depends on one word; RTE, whose class depends on another word; STS-B."""
    folder = tmp_path_factory.mktemp("joint")
    lines = [("the man said", "he was there" if i % 2 else "all of you", i % 2) for i in range(16)]
    stsb = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    texts = {
        "SST-2": "sentence\tlabel\n" + "".join(f"{b}\t{label}\n" for _, b, label in lines),
        "RTE": "index\tsentence1\tsentence2\tlabel\n"
        + "".join(f"{i}\t{a}\t{b}\t{'not_' * c}entailment\n" for i, (a, b, c) in enumerate(lines)),
        "STS-B": stsb + "".join(f"{i}\t\t\t\t\t\t\t{a}\t{b}\t{1 + 3 * c}\n" for i, (a, b, c) in enumerate(lines)),
    }
    for name, text in texts.items():
        (folder / name).mkdir()
        for split in ("train", "dev") if name == "SST-2" else ("train",):
            (folder / name / f"{split}.tsv").write_text(text)
    (folder / "SST-2/test.tsv").write_text("index\tsentence\n0\the was there\n1\tall of you\n")
    (folder / "config.json").write_text(CONFIG.to_json_string())
    return folder


def settings(folder, vocab_file, output_dir, *more):
    flags = [
        "--task_name=SST-2", f"--data_dir={folder}/SST-2", f"--bert_config_file={folder}/config.json",
        f"--vocab_file={vocab_file}", f"--output_dir={output_dir}", "--max_seq_length=16", "--train_batch_size=16",
        "--learning_rate=3e-3", "--num_train_epochs=1",
    ]  # fmt: skip
    return parse(ClassifierSettings, [*flags, *more])


def joint_flags(folder):
    return ["--joint_tasks=RTE, STS-B", f"--joint_data_dirs={folder}/RTE,{folder}/STS-B"]


@pytest.fixture(scope="module")
def task(folder, vocab_file):
    return find_task(settings(folder, vocab_file, "out", "--do_train", *joint_flags(folder)))


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return BertTokenizer(vocab_file)


def batch_of(task, tokenizer, examples):
    columns = task.encode(examples, tokenizer, 16)
    dense = {name: tf.constant(columns[name]) for name in ("label_ids", "task_ids") if name in columns}
    weights = {"row_weights": tf.ones([len(examples)])}
    return dense | weights | task.model_inputs(columns, tokenizer, 16)


@pytest.fixture(scope="module")
def batch(task, tokenizer):
    """16 rows of each task, in their order."""
    return batch_of(task, tokenizer, task.read("train"))


@pytest.fixture(scope="module")
def model(task):
    return FineTunedBert(CONFIG, task.head)


def test_a_row_is_packed_as_in_its_own_task(task, tokenizer, batch):
    assert batch["task_ids"].numpy().tolist() == [0] * 16 + [1] * 16 + [2] * 16
    own = batch_of(task.main, tokenizer, task.main.read("train"))
    for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        np.testing.assert_array_equal(batch[name][:16], own[name])
    assert np.max(batch["segment_ids"][:16]) == 0 and np.min(np.max(batch["segment_ids"][16:], axis=1)) == 1


def test_the_loss_of_each_row_is_that_of_its_own_task_alone(task, batch, model):
    outputs = model(batch)
    together = task.losses(outputs["logits"], batch)
    assert together.keys() == {"loss"} and together["loss"].shape == (48,), "a regression has no accuracy"
    heads = [model.head, *model.head.joint]
    for number, alone in enumerate((task.main, *task.others)):
        own = slice(16 * number, 16 * number + 16)
        logits = heads[number].dense(outputs["pooled_output"][own])
        expected = alone.losses(logits, {"label_ids": batch["label_ids"][own]})["loss"]
        np.testing.assert_allclose(together["loss"][own], expected, rtol=1e-5)


def test_each_head_learns_from_its_own_rows_alone(task, batch, model):
    no_rte = {**batch, "row_weights": tf.cast(batch["task_ids"] != 1, tf.float32)}
    with tf.GradientTape() as tape:
        loss = means_of(FineTuningObjective(model, task), no_rte)["loss"]
    heads = [model.head.dense.kernel, *(head.dense.kernel for head in model.head.joint)]
    first, second, third = tape.gradient(loss, heads)
    assert np.abs(first).max() > 0 and np.abs(third).max() > 0 and not np.any(second)


def test_classes_alone_have_an_accuracy_over_all_tasks(task, batch, model):
    classes = dataclasses.replace(task, others=task.others[:1])
    batch = {name: values[:32] for name, values in batch.items()}
    logits = model(batch)["logits"][:, :4]
    best = np.concatenate([np.argmax(logits[:16, :2], 1), np.argmax(logits[16:, 2:], 1)])
    np.testing.assert_array_equal(classes.losses(logits, batch)["accuracy"], best == batch["label_ids"].numpy())


@pytest.mark.slow
def test_a_joint_run_is_evaluated_predicted_and_restored_as_its_main_task(folder, vocab_file, tmp_path):
    out = tmp_path / "out"
    run_classifier(settings(folder, vocab_file, out, "--do_train", "--do_predict", *joint_flags(folder)))
    assert json.loads((out / "task.json").read_text())["task_name"] == "SST-2"
    assert len((out / "test_results.tsv").read_text().splitlines()[0].split("\t")) == 2
    assert (out / "SST-2.tsv").exists() and not (out / "RTE.tsv").exists()
    # This also works without the flags and files of the other tasks.
    found = run_classifier(settings(folder, vocab_file, out, "--do_eval"))
    assert found.keys() == {"accuracy", "loss"}
    with pytest.raises(InputError, match=r"other data .*(train|joint_tasks)"):
        run_classifier(settings(folder, vocab_file, out, "--do_train", "--do_eval"))
    # Restores the model in the same way as an export.
    served = FineTunedBert(CONFIG, find_task(settings(folder, vocab_file, "x", "--do_train")).head)
    restored = tf.train.Checkpoint(model=served).restore(tf.train.latest_checkpoint(str(out)))
    restored.assert_existing_objects_matched()
    # A later joint run loads the encoder and the main head, and initializes the other heads randomly.
    later = FineTunedBert(CONFIG, find_task(settings(folder, vocab_file, "x", "--do_train", *joint_flags(folder))).head)
    drawn = later.head.joint[0].dense.kernel.numpy()
    checkpoints.initialize(later, str(out))
    np.testing.assert_array_equal(later.head.joint[0].dense.kernel, drawn)
    np.testing.assert_array_equal(later.head.dense.kernel, served.head.dense.kernel)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--joint_tasks=RTE"], "--joint_tasks names 1 tasks, but --joint_data_dirs names 0 folders; give one folder"),
        (["--joint_tasks=tsv", "--joint_data_dirs=d"], "--joint_tasks=tsv: unknown; known are CoLA, .*XNLI$"),
        (["--joint_tasks=SST-2", "--joint_data_dirs=d"], "--joint_tasks: SST-2 is listed twice; list each task once"),
        (["--joint_tasks=MNLI,AX", "--joint_data_dirs=d,e"], "MNLI is listed twice"),
    ],
)
def test_bad_joint_tasks_are_refused(folder, vocab_file, flags, message):
    with pytest.raises(InputError, match=message):
        find_task(settings(folder, vocab_file, "out", "--do_train", *flags))
