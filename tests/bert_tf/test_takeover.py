"""A fine-tuned model of another project is predicted with, exported and loaded without a step of training."""

import dataclasses
import json
import os

import numpy as np
import pytest

from bert_tf import conversion
from bert_tf.checkpoint_formats import hugging_face
from bert_tf.checkpoints import open_checkpoint
from bert_tf.classifier import TextClassifier
from bert_tf.core import hub
from bert_tf.core.command_line import parse
from bert_tf.embedder import TextEmbedder
from bert_tf.finetuning import description
from bert_tf.tasks import takeover
from bert_tf.tasks.classification import glue
from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask
from bert_tf.tasks.embeddings.prompts import VectorFiles
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.tasks import small_runs
from tests.export.exports import ask, export, put_together
from tests.export.serving.every_kind import GOOD, TASKS
from tests.kit import refused, run

PAIRS = [("the man said", "he was there"), ("all of you", "they had")]


def as_hugging_face(source, folder):
    """Writes a run as transformers saves it."""
    run("convert_checkpoint", input=source, output=folder, format="hugging_face")
    os.remove(folder / "conversion.json")
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, vocab_file):
    """The folder of a classifier as transformers saves it, and the run that it has the weights of."""
    folder = tmp_path_factory.mktemp("theirs")
    put_together(folder / "run", vocab_file, make_task(3), spread=0.3)
    as_hugging_face(folder / "run", folder / "hf")
    return folder


def edit_config(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name != "classes"])
def test_export_of_hugging_face_copy_equals_original(name, vocab_file, tmp_path):
    put_together(tmp_path / "run", vocab_file, TASKS[name](), length=32, spread=0.3)
    if name == "sets":
        described = json.loads((tmp_path / "run/task.json").read_text())
        (tmp_path / "run/task.json").write_text(json.dumps(described | {"kind": "multi_label"}))
    hf = as_hugging_face(tmp_path / "run", tmp_path / "hf")
    flags = {"has_pairs": name == "pairs"} if name in ("classes", "pairs", "score", "sets") else {}
    ours = ask(export(hf, export_dir=str(tmp_path / "theirs/1"), **flags), **GOOD[name])
    expected = ask(export(tmp_path / "run"), **GOOD[name])
    assert ours.keys() == expected.keys()
    for output, values in expected.items():
        if values.dtype == object:
            assert ours[output].tolist() == values.tolist()
        else:
            np.testing.assert_allclose(ours[output], values, atol=1e-5)
    assert "checkpoint_dir: hf\n" in (tmp_path / "theirs/1/assets/model_card.md").read_text()


@pytest.mark.parametrize("name", TASKS)
def test_a_copy_of_a_run_knows_its_task(name, vocab_file, tmp_path):
    put_together(tmp_path / "run", vocab_file, TASKS[name](), length=32)
    own = description.read(str(tmp_path / "run"))
    others = {"long_text": "head_tail", "version_2_with_negative": True, "document_context": True}
    changed = {key: others.get(key, value) for key, value in own.parameters.items()}
    description.write(str(tmp_path / "run"), dataclasses.replace(own, parameters=changed))
    run("convert_checkpoint", input=f"{tmp_path}/run", output=f"{tmp_path}/hf", format="hugging_face")
    with conversion.run_of(f"{tmp_path}/hf") as folder:
        found = description.read(folder)
    plain = {key: value for key, value in changed.items() if key not in ("mean", "deviation")}
    assert found.parameters == plain
    for field in ("kind", "labels", "max_seq_length", "data"):
        assert getattr(found, field) == getattr(own, field)


@pytest.mark.slow
def test_classifier_loads_saves_and_predicts(theirs, tmp_path, monkeypatch):
    expected = TextClassifier.load(str(theirs / "run"))
    monkeypatch.chdir(theirs / "hf")
    ours = TextClassifier.load(".", has_pairs=True)
    assert ours.labels == expected.labels == ("0", "1", "2")
    np.testing.assert_allclose(ours.probabilities(PAIRS), expected.probabilities(PAIRS), atol=1e-6)
    ours.save(str(tmp_path / "saved"))
    saved = TextClassifier.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.probabilities(PAIRS), expected.probabilities(PAIRS), atol=1e-6)

    (tmp_path / "test.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in PAIRS))
    (tmp_path / "dev.csv").write_text("a,b,label\nthe man,he was,0\nall of,you,2\n")
    files = [f"--test_data_path={tmp_path}/test.csv", f"--eval_data_path={tmp_path}/dev.csv"]
    columns = ["--text_a_column=a", "--text_b_column=b", "--max_seq_length=24"]
    flags = [f"--output_dir={tmp_path}/new", *files, *columns, "--task_name=own", "--do_eval", "--do_predict"]
    scores = run("run_classifier", *flags, f"--init_checkpoint={theirs}/hf")
    assert 0 <= scores["accuracy"] <= 1
    rows = [line.split("\t") for line in (tmp_path / "new/test_results.tsv").read_text().splitlines()]
    np.testing.assert_allclose(np.array(rows, np.float64), expected.probabilities(PAIRS), atol=1e-5)
    assert run("run_classifier", *flags) == scores  # a second command needs no other model
    ours = [flag.replace("/new", "/ours") for flag in (*flags[:-2], "--do_eval")]
    own_run = run("run_classifier", *ours, "--task_name=own", f"--init_checkpoint={theirs}/run")
    assert own_run == pytest.approx(scores, rel=1e-5)
    again = TextClassifier.load(str(tmp_path / "new"))
    np.testing.assert_allclose(again.probabilities(PAIRS), expected.probabilities(PAIRS), atol=1e-6)


def test_a_tagger_keeps_the_order_of_its_outputs(vocab_file, tmp_path):
    put_together(tmp_path / "run", vocab_file, TASKS["tags"](), spread=0.3)
    hf = as_hugging_face(tmp_path / "run", tmp_path / "hf")
    labels = ["I-PER", "B-LOC", "O", "B-PER", "I-LOC"]
    edit_config(hf, **hugging_face.label_entries(labels))
    contents = open_checkpoint(str(hf))
    entries, answers = hugging_face.read_entries(contents), takeover.FlagValues()
    with conversion.run_of(str(hf)) as copy:
        assert description.read(copy).labels == tuple(labels)
        taken_over = open_checkpoint(copy).tensors["token_head/dense/bias"].read()
    np.testing.assert_array_equal(taken_over, contents.tensors["token_head/dense/bias"].read())
    for wrong in (["NOUN", *labels[1:]], [*labels[:-1], "B-NEW"]):
        given = entries | hugging_face.label_entries(wrong)
        refused("a tagger needs O, B and I of each type", takeover.describe, contents, given, answers)


def test_what_no_file_states_is_asked_for(theirs, tmp_path, vocab_file, caplog, monkeypatch):
    def take_over(source, target, **settings):
        run("convert_checkpoint", input=source, output=target, format="bert_tf", **settings)

    take_over(theirs / "hf", tmp_path / "weights")
    assert not (tmp_path / "weights/task.json").exists()
    assert "no file states whether the classifier reads pairs of texts; give --has_pairs" in caplog.text
    monkeypatch.setattr(hub, "download", lambda name: str(theirs / "hf"))
    for checkpoint in (str(theirs / "hf"), "hf://owner/classifier"):
        refused("give --has_pairs or --nohas_pairs", TextClassifier.load, checkpoint)
    message = "give --has_pairs or --nohas_pairs"
    refused(message, run, "export.export_saved_model", checkpoint_dir=theirs / "hf", export_dir=tmp_path / "1")
    edit_config(theirs / "hf", problem_type="regression")
    refused("predicts 3 scores for a text", take_over, theirs / "hf", tmp_path / "scores", has_pairs=False)
    edit_config(theirs / "hf", problem_type="single_label_classification")


def test_a_checkpoint_without_a_head_is_not_evaluated(tmp_path, vocab_file):
    write_pretrained(tmp_path / "pretrained", vocab_file)
    (tmp_path / "dev.csv").write_text("text,label\nthe man,0\nall of,1\n")
    flags = [f"--eval_data_path={tmp_path}/dev.csv", "--do_eval", f"--output_dir={tmp_path}/new", "--labels=0,1"]
    message = "has no head for this task"
    refused(message, run, "run_classifier", *flags, "--task_name=own", f"--init_checkpoint={tmp_path}/pretrained")
    put_together(tmp_path / "run", vocab_file, make_task(2, has_pairs=False))
    flags += ["--reinitialize_head", f"--init_checkpoint={tmp_path}/run"]
    refused("without --reinitialize_head", run, "run_classifier", *flags, "--task_name=own")
    assert not (tmp_path / "new").exists()
    as_hugging_face(tmp_path / "pretrained", tmp_path / "hf")
    message = "hf: has no head for a task; .* --task_name=embeddings or fill_mask"
    refused(message, run, "export.export_saved_model", checkpoint_dir=tmp_path / "hf", export_dir=tmp_path / "1")


@pytest.mark.quick_cases("classification")
@pytest.mark.parametrize("kind", ["classification", "questions"])
def test_a_taken_over_run_keeps_its_settings(kind, vocab_file, tmp_path):
    """The new folder has the row length, the BiLSTM, the thresholds and how the data is read."""
    data, own = tmp_path / "data", {
        "classification": ["--multi_label", "--tune_thresholds", "--bilstm_head"],
        "questions": ["--version_2_with_negative", "--tune_null_threshold", "--doc_stride=4"],
    }  # fmt: skip
    (main, settings, _), tuned = small_runs.KINDS[kind], own[kind][1]
    files = {"classification": f"--eval_data_path={data}/texts.tsv", "questions": f"--predict_file={data}/squad.json"}
    small_runs.trained(kind, vocab_file, tmp_path / "run", "--do_eval", files[kind], *own[kind])

    def evaluated(folder, *more):
        return main(parse(settings, ["--do_eval", files[kind], f"--output_dir={tmp_path / folder}", *more]))

    init = ["--task_name=own"] * (kind == "classification") + [f"--init_checkpoint={tmp_path}/run"]
    assert evaluated("new", *init) == pytest.approx(evaluated("run"), rel=1e-5)
    described, thresholds = ("task.json", {"classification": "thresholds.json"}.get(kind, "null_threshold.json"))
    assert (tmp_path / "new" / described).read_text() == (tmp_path / "run" / described).read_text()
    ours, theirs = (json.loads((tmp_path / folder / thresholds).read_text()) for folder in ("new", "run"))
    assert ours == theirs | {"step": None}
    refused(f"{tmp_path}/run was trained with 32; leave the flag out", evaluated, "other", *init, "--max_seq_length=64")
    other = f"--init_checkpoint={tmp_path}/another"
    refused("new already holds the model of .*run; give another --output_dir", evaluated, "new", *init[:-1], other)
    untuned = [flag for flag in own[kind] if flag != tuned]
    message = rf"was tuned on the checkpoint of step \d+, not of step \d+; .*{tuned}"
    again = ("--do_eval", files[kind], *untuned, "--num_train_epochs=6")
    refused(message, small_runs.trained, kind, vocab_file, tmp_path / "run", *again)


@pytest.mark.quick_cases("choice")
@pytest.mark.parametrize("kind", ["choice", "questions"])
def test_a_conversion_is_evaluated_as_its_run(kind, vocab_file, tmp_path):
    """Also without the record of the conversion, after transformers has saved the model again."""
    (main, settings, _), data = small_runs.KINDS[kind], tmp_path / "data"
    file = {"choice": f"--eval_data_path={data}/choices.jsonl", "questions": f"--predict_file={data}/squad.json"}[kind]
    ways = ["--version_2_with_negative", "--doc_stride=3", "--max_query_length=3"] if kind == "questions" else []
    small_runs.trained(kind, vocab_file, tmp_path / "run", *ways, "--max_seq_length=12")
    run("convert_checkpoint", input=f"{tmp_path}/run", output=f"{tmp_path}/hf", format="hugging_face")

    def evaluated(folder, *more):
        return main(parse(settings, ["--do_eval", file, f"--output_dir={tmp_path / folder}", *more]))

    expected = evaluated("run")
    assert evaluated("new", f"--init_checkpoint={tmp_path}/hf") == pytest.approx(expected, rel=1e-5)
    assert (tmp_path / "new/task.json").read_text() == (tmp_path / "run/task.json").read_text()
    (tmp_path / "hf/conversion.json").unlink()
    assert evaluated("other", f"--init_checkpoint={tmp_path}/hf", *ways) == pytest.approx(expected, rel=1e-5)
    if kind == "questions":
        refused("new was trained with 3; leave the flag out", evaluated, "new", "--doc_stride=2")


def test_sentence_transformers_folder_is_a_run(vocab_file, tmp_path):
    task = EmbeddingTask(files=VectorFiles("cls", True, "query: "))
    task.write_files(str(tmp_path / "run"), put_together(tmp_path / "run", vocab_file, task).config, 24)
    run("convert_checkpoint", input=f"{tmp_path}/run", output=f"{tmp_path}/st", format="sentence_transformers")
    run("convert_checkpoint", input=f"{tmp_path}/st", output=f"{tmp_path}/ours", format="bert_tf")
    ours, theirs = (json.loads((tmp_path / folder / "task.json").read_text()) for folder in ("ours", "run"))
    assert ours == theirs
    expected = TextEmbedder.load(f"{tmp_path}/run").encode(PAIRS[0])
    np.testing.assert_allclose(TextEmbedder.load(f"{tmp_path}/ours").encode(PAIRS[0]), expected, atol=1e-6)


def test_a_benchmark_takes_a_run_over(vocab_file, tmp_path):
    put_together(tmp_path / "run", vocab_file, glue.task("SST-2", ""))
    (tmp_path / "data").mkdir()
    for name in ("SST-2", "CoLA"):
        (tmp_path / "data/dev.tsv").write_text(
            "sentence\tlabel\nthe man\t0\n" if name == "SST-2" else "a\t0\t*\tthe man\nb\t1\t\tall of\n"
        )
        given = [f"--data_dir={tmp_path}/data", "--do_eval", f"--output_dir={tmp_path}/{name}"]
        init = [f"--task_name={name}", f"--init_checkpoint={tmp_path}/run"]
        scores = run("run_classifier", *given, *init)
        assert run("run_classifier", *given, init[0]) == scores
        task = json.loads((tmp_path / name / "task.json").read_text())
        assert (task["task_name"], task["max_seq_length"]) == (name, 24)
