"""Fine-tuning that starts from a fine-tuned checkpoint of another task."""

import dataclasses
import functools
import json
import logging
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.finetuning import description
from bert_tf.finetuning.description import describe
from bert_tf.finetuning.initial import adapted, check_initial_of_task
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.modeling.heads import FeatureTaggingHead
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf import tagging
from tests.bert_tf.classification import make_classifier, make_task
from tests.bert_tf.finetuning.killed_run import weights
from tests.bert_tf.tasks_of_flags import find_task
from tests.export.exports import put_together
from tests.kit import refused, run
from tests.small_configs import small_config

CONFIG = small_config(max_position_embeddings=16)
REFUSED = r"has shape \[.*3\], the model needs \[.*2\]; give the task that .*, or --reinitialize_head for the"


def task_of(name):
    return find_task(ClassifierSettings(task_name=name, data_dir="d", output_dir="o", do_train=True))


@pytest.fixture(scope="module")
def mnli(tmp_path_factory, vocab_file):
    """A folder with a model of MNLI, and the model."""
    folder, task = tmp_path_factory.mktemp("mnli"), task_of("MNLI")
    model = FineTunedBert(CONFIG, task.head)
    tf.train.Checkpoint(model=model).write(str(folder / "ckpt-1"))
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    (folder / "vocab.txt").write_text(open(vocab_file).read())
    description.write(str(folder), describe(task, 16))
    return folder, model


@pytest.mark.parametrize("format", ["bert_tf", "hugging_face", "tf1", "tf_models"])
def test_a_head_with_other_labels_is_refused(format, mnli, tmp_path):
    folder, trained = mnli
    if format != "bert_tf":
        folder = tmp_path / "converted"
        run("convert_checkpoint", input=mnli[0], output=folder, format=format, vocab_file="")
    for name in ("RTE", "STS-B"):
        message = REFUSED if name == "RTE" else "give the task that"
        refused(message, check_initial_of_task, str(folder), task_of(name), CONFIG, reinitialize_head=False)
    check_initial_of_task(str(folder), task_of("RTE"), CONFIG, reinitialize_head=True)
    model = make_classifier(CONFIG, 2)
    refused(REFUSED, checkpoints.initialize, model, str(folder))
    before = model.head.dense.kernel.numpy()
    checkpoints.initialize(model, str(folder), reinitialize_head=True)
    np.testing.assert_array_equal(model.head.dense.kernel, before)
    for ours, theirs in zip(model.encoder.weights, trained.encoder.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_head_with_as_many_labels_is_kept(mnli, caplog):
    folder, trained = mnli
    with caplog.at_level(logging.WARNING, "absl"):
        check_initial_of_task(str(folder), task_of("XNLI"), CONFIG, reinitialize_head=False)
        assert not caplog.records, "the same labels"
        described = describe(task_of("MNLI"), 16)
        description.write(str(folder), type(described)(**{**vars(described), "labels": ("x", "y", "z")}))
        check_initial_of_task(str(folder), task_of("MNLI"), CONFIG, reinitialize_head=False)
    assert f"{folder}/ckpt-1: the head was trained with the labels x, y, z, but is now used for" in caplog.text
    description.write(str(folder), described)
    model = make_classifier(CONFIG, 3)
    checkpoints.initialize(model, str(folder))
    np.testing.assert_array_equal(model.head.dense.kernel, trained.head.dense.kernel)


def test_pooling_without_a_head_is_not_warned_of(mnli, tmp_path, caplog):
    """A run that trains vectors has a pooling, but no head."""
    described = describe(task_of("MNLI"), 16)
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    description.write(str(tmp_path), dataclasses.replace(described, parameters={"pooling": "mean"}))
    for parts, warned in ({"encoder": mnli[1].encoder}, False), ({"model": mnli[1]}, True):
        tf.train.Checkpoint(**parts).write(str(tmp_path / "ckpt-1"))
        caplog.clear()
        check_initial_of_task(str(tmp_path), task_of("MNLI"), CONFIG, reinitialize_head=False)
        assert ("the head was trained with --pooling=mean, but is now used with cls" in caplog.text) is warned


def head_values(model, path, *arguments):
    checkpoints.initialize(model, str(path), False, *arguments)
    return {name: v.numpy() for name, v in checkpoints.variables_by_path(model).items() if "head" in name}


@pytest.mark.parametrize("format", ["bert_tf", "hugging_face", "tf1", "tf_models"])
@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_head_outputs_are_matched_by_label_names(kind, format, mnli, vocab_file, tmp_path, caplog):
    task, folder, order = task_of("MNLI"), mnli[0], [2, 0, 1]
    labels = tuple(task.labels[number] for number in order)
    other = dataclasses.replace(task, answers=dataclasses.replace(task.answers, labels=labels))
    if kind == "tags":
        (task, other), order = [tagging.make_task(types) for types in (["LOC", "PER"], ["PER", "LOC"])], [0, 3, 4, 1, 2]
        put_together(folder := tmp_path / "tags", vocab_file, task, config=CONFIG)
    run("convert_checkpoint", input=folder, output=f"{tmp_path}/{format}", format=format)
    model, path = FineTunedBert(CONFIG, task.head), f"{tmp_path}/{format}"
    contents = checkpoints.open_checkpoint(path)
    assert adapted(contents, task, model.head_name) is contents
    given = head_values(model, path)
    with caplog.at_level(logging.INFO, "absl"):
        check_initial_of_task(path, other, CONFIG, reinitialize_head=False)
    assert "the head has the labels in another order; they are matched by name" in caplog.text
    adapt = functools.partial(adapted, task=other, head=model.head_name)
    for name, value in head_values(model, path, adapt).items():
        np.testing.assert_array_equal(value, given[name][..., order])


def test_another_projects_regression_keeps_its_scale(vocab_file, tmp_path):
    trained = put_together(tmp_path / "run", vocab_file, make_task(0), config=CONFIG, spread=0.2)
    path, scale = tmp_path / "hf", {"mean": 2.5, "deviation": 1.5}
    run("convert_checkpoint", input=tmp_path / "run", output=path, format="hugging_face")
    (path / "conversion.json").unlink()
    task = types.SimpleNamespace(labels=(), parameters=scale)
    model = make_classifier(CONFIG, 1)
    checkpoints.initialize(model, str(path), adapt=functools.partial(adapted, task=task, head="head"))
    inputs = {"input_ids": tf.constant([[2, 7, 9, 3]])}
    scores = model(inputs)["logits"] * scale["deviation"] + scale["mean"]
    np.testing.assert_allclose(scores, trained(inputs)["logits"], rtol=1e-4)


@pytest.mark.parametrize("labels", [["x", "y", "z"], ["LABEL_0", "LABEL_1", "LABEL_2"]])
def test_unknown_label_names_are_warned_of(labels, mnli, tmp_path, caplog):
    run("convert_checkpoint", input=mnli[0], output=f"{tmp_path}/hf", format="hugging_face")
    (tmp_path / "hf/config.json").write_text(
        json.dumps(json.loads((tmp_path / "hf/config.json").read_text()) | {"id2label": dict(enumerate(labels))})
    )
    (tmp_path / "hf/conversion.json").unlink()
    contents = checkpoints.open_checkpoint(f"{tmp_path}/hf")
    assert adapted(contents, task_of("MNLI"), "head") is contents
    with caplog.at_level(logging.WARNING, "absl"):
        check_initial_of_task(f"{tmp_path}/hf", task_of("MNLI"), CONFIG, reinitialize_head=False)
    assert ("was trained with the labels x, y, z, but is now used for" in caplog.text) == (labels[0] == "x")
    unnamed = "does not name the outputs of its head, so they are taken in the order contradiction, entailment, neutral"
    assert (unnamed in caplog.text) == (labels[0] != "x")


@pytest.mark.slow
@pytest.mark.parametrize("bilstm_head", [False, True])
def test_a_run_matches_the_outputs_of_its_initial_head(bilstm_head, mnli, tmp_path):
    task = task_of("MNLI")
    trained = put_together(tmp_path / "run", f"{mnli[0]}/vocab.txt", task, 16, bilstm_head, config=CONFIG)
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(f"{i}\t{task.labels[i % 3]}\n" for i in range(9)))
    run(
        "run_classifier", "--do_train", task_name="own", data_dir=tmp_path, labels=",".join(reversed(task.labels)),
        output_dir=tmp_path / "out", init_checkpoint=tmp_path / "run", train_batch_size=4, bilstm_head=bilstm_head,
        num_train_epochs=1,
    )  # fmt: skip
    begun = weights(tmp_path / "out/ckpt-0")
    for path, variable in checkpoints.variables_by_path(trained).items():
        expected = variable.numpy()[..., ::-1] if variable.shape[-1] == 3 else variable
        np.testing.assert_array_equal(begun[f"model/{path}/.ATTRIBUTES/VARIABLE_VALUE"], expected, err_msg=path)


def test_the_script_refuses_a_head_before_training(mnli, tmp_path):
    lines = "".join(f"{i}\ta\tb\tentailment\n" for i in range(8))
    (tmp_path / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{lines}")
    flags = [
        "--task_name=RTE", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out", f"--init_checkpoint={mnli[0]}",
        "--do_train", "--train_batch_size=4", "--max_seq_length=16",
    ]  # fmt: skip
    refused(REFUSED, run, "run_classifier", *flags)
    assert not (tmp_path / "out").exists()


def test_a_head_on_features_is_taken_whole(tmp_path):
    def make_model(units):
        return FineTunedBert(CONFIG, lambda config: FeatureTaggingHead(config, 3, "last_hidden", units))

    trained = make_model(4)
    tf.train.Checkpoint(model=trained).write(str(tmp_path / "ckpt-1"))
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    model, expected = make_model(4), checkpoints.variables_by_path(trained)
    assert "head/lstms/1/backward/kernel" in expected
    checkpoints.initialize(model, str(tmp_path))
    for path, variable in checkpoints.variables_by_path(model).items():
        np.testing.assert_array_equal(variable, expected[path], err_msg=path)
    refused(r"head/lstms/0/.* has shape .*--reinitialize_head", checkpoints.initialize, make_model(5), str(tmp_path))
