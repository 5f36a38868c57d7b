import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.resolution import resolve
from bert_tf.tasks.classification import find
from tests.bert_tf.tasks.classification import mrpc_run
from tests.bert_tf.tasks.classification.mrpc_run import ROWS, settings, train
from tests.kit import refused, run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    mrpc_run.write_inputs(folder)
    return folder


def summary_steps(folder) -> list[int]:
    """Steps at which the loss is in TensorBoard."""
    events = (e for path in folder.glob("events.out*") for e in tf.compat.v1.train.summary_iterator(str(path)))
    return [event.step for event in events for value in event.summary.value if value.tag == "loss"]


@pytest.fixture(scope="module")
def trained(inputs, vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    metrics = train(inputs, vocab_file, folder, "--do_train", "--do_eval", "--do_predict")
    return folder, metrics


def test_a_run_learns_and_leaves_the_originals_files(trained):
    folder, metrics = trained
    assert metrics["accuracy"] == 1.0 and metrics["f1"] == 1.0 and metrics["loss"] < 0.3
    results = dict(line.split(" = ") for line in (folder / "eval_results.txt").read_text().splitlines())
    assert results.keys() == {"eval_accuracy", "eval_f1", "eval_loss", "global_step"}
    assert results["global_step"] == "60"  # 24 examples / 8 a step * 20 epochs
    entries = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert [entry["step"] for entry in entries if entry["split"] == "train"] == list(range(3, 61, 3))
    assert len(summary_steps(folder / "train")) == 20
    lines = (folder / "test_results.tsv").read_text().splitlines()
    header, *predictions = (folder / "test_predictions.tsv").read_text().splitlines()
    assert header == "index\tlabel\tprobability of 0\tprobability of 1"
    assert predictions == [f"{i}\t{ROWS[i][2]}\t{line}" for i, line in enumerate(lines)]
    rows = [[float(x) for x in line.split("\t")] for line in lines]
    np.testing.assert_allclose(np.sum(rows, axis=1), 1.0, rtol=1e-6)
    assert [int(np.argmax(row)) for row in rows] == [int(label) for _, _, label in ROWS[:5]]
    assert json.loads((folder / "task.json").read_text())["labels"] == ["0", "1"]


def test_evaluation_later_gives_the_same_figures(inputs, vocab_file, trained, monkeypatch, caplog):
    folder, metrics = trained
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    with caplog.at_level("INFO"):
        again = train(inputs, vocab_file, folder, "--do_eval", "--do_predict", "--eval_batch_size=5")
    np.testing.assert_allclose([again[k] for k in metrics], list(metrics.values()), rtol=1e-5)
    assert "predicting dev: 24 of 24 rows" in caplog.text and "predicting test: 5 of 5 rows" in caplog.text


@pytest.mark.slow
def test_a_run_writes_its_report(inputs, vocab_file, trained):
    written, given = [], settings(inputs, vocab_file, trained[0], "--do_eval")
    left_out = dataclasses.replace(given, max_seq_length=None)
    assert run_finetuning(left_out, find.find_task, written.append) == pytest.approx(trained[1], rel=1e-5)
    assert written == [str(trained[0])]
    run_finetuning(settings(inputs, vocab_file, trained[0], "--do_predict"), find.find_task, written.append)
    assert written == [str(trained[0])], "a prediction changes nothing that the report shows"
    for flag, known in (("--max_seq_length=16", "24"), ("--bilstm_head=True", "False")):
        message = rf"{flag}: .* was trained with {known}; leave the flag out"
        refused(message, train, inputs, vocab_file, trained[0], "--do_eval", flag)


@pytest.mark.slow
def test_a_deleted_description_is_refused(inputs, vocab_file, trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    (folder / "task.json").unlink()
    refused(r"task.json: no such file, .* repeat the training command", train, inputs, vocab_file, folder, "--do_eval")
    train(inputs, vocab_file, folder, "--do_train")
    assert (folder / "task.json").read_text() == (trained[0] / "task.json").read_text()


@pytest.fixture
def unfinished(trained, tmp_path):
    """A run of 60 steps whose `run.json` says that training ends at step 100."""
    folder = shutil.copytree(trained[0], tmp_path / "run")
    content = json.loads((folder / "run.json").read_text())
    content["phases"][0]["optimizer"]["num_train_steps"] = 100
    (folder / "run.json").write_text(json.dumps(content))
    return folder


def test_unfinished_training_needs_a_flag(inputs, vocab_file, unfinished, caplog):
    action = "--do_predict"
    message = r"has step 60 of 100; finish the training, or give --allow_unfinished"
    refused(message, train, inputs, vocab_file, unfinished, action)
    train(inputs, vocab_file, unfinished, action, "--allow_unfinished")
    assert "its newest intact checkpoint has step 60 of 100" in caplog.text


def test_untrained_weights_are_never_used(inputs, vocab_file, trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    data = folder / "ckpt-60.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    for allow in ([], ["--allow_unfinished"]):
        message = "has step 0 of 60: training has not begun; train first"
        refused(message, train, inputs, vocab_file, folder, "--do_eval", *allow)


def first_entries(folder) -> tuple[dict, dict, dict]:
    """Returns the lines of `metrics.jsonl` about the start and the first two training loops."""
    start, first, second, *_ = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert (start["split"], first["split"], second["split"]) == ("start", "train", "train")
    return start, first, second


@pytest.mark.slow
def test_a_run_starts_from_another_runs_encoder(inputs, vocab_file, unfinished, tmp_path, caplog):
    out, start = tmp_path / "out", f"--init_checkpoint={unfinished}"
    with caplog.at_level("INFO"):
        train(inputs, vocab_file, out, start, "--do_train", "--num_train_epochs=1")
    assert f"training in {out}: steps 1 to 3; the first step is slow" in caplog.text
    start, first, second = first_entries(out)
    assert f"{unfinished}/ckpt-60 has step 60 of 100: the training is not finished" in caplog.messages
    assert first["loss"] < 0.3, "it knows the task already"
    assert start["flops_per_row"] > 0
    assert "tokens_per_second" not in first, "the first step compiles"
    assert 0 < second["tokens_per_second"] < 24 * second["sequences_per_second"]


@pytest.mark.slow
def test_a_run_resumes_without_its_initial_checkpoint(inputs, vocab_file, trained, tmp_path, caplog):
    start, moved, out = (tmp_path / name for name in ("start", "moved", "out"))
    shutil.copytree(trained[0], start)
    options = ["--do_train", "--num_train_epochs=2", "--save_checkpoints_steps=3"]
    train(inputs, vocab_file, out, f"--init_checkpoint={start}", *options)
    message = r"other flags \(--init_checkpoint was"
    refused(message, train, inputs, vocab_file, out, f"--init_checkpoint={trained[0]}", *options)
    start.rename(moved)
    for path in (start, moved):
        for file in out.glob("ckpt-6.*"):
            file.unlink()
        with caplog.at_level("INFO"):
            train(inputs, vocab_file, out, f"--init_checkpoint={path}", *options)
        assert (out / "ckpt-6.index").exists() and "steps 4 to 6" in caplog.text
        caplog.clear()


@pytest.mark.slow
def test_another_projects_folder_has_all_files(inputs, trained, tmp_path, caplog):
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    run("convert_checkpoint", input=trained[0], output=theirs, format="hugging_face", vocab_file="")
    (theirs / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    files = ["--bert_config_file=", "--vocab_file=", f"--init_checkpoint={theirs}"]
    flags = [*files, "--do_train", "--num_train_epochs=1"]
    train(inputs, "", out, *flags)
    assert first_entries(out)[1]["loss"] < 0.3, "it knows the task already"
    assert (out / "vocab.txt").read_text() == (trained[0] / "vocab.txt").read_text()
    ours, before = (BertConfig.from_json_file(f"{folder}/bert_config.json") for folder in (out, trained[0]))
    assert ours == before
    assert f"--bert_config_file={theirs}/config.json, from the folder of --init_checkpoint" in caplog.text
    assert f"--do_lower_case=false, as {theirs}/tokenizer_config.json says" in caplog.text
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is False
    for name in ("vocab.txt", "tokenizer.json"):
        (theirs / name).unlink()
    message = r"--vocab_file is missing, and .*model.safetensors has no vocab.txt"
    refused(message, train, inputs, "", tmp_path / "other", *flags)


@pytest.mark.slow
def test_a_regression_learns_its_score(inputs, vocab_file, tmp_path):
    columns = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    rows = [
        f"{i}\t" + "x\t" * 6 + f"{a}\t{b}\t{4.5 if label == '1' else 1.0}\n" for i, (a, b, label) in enumerate(ROWS)
    ]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(columns + "".join(rows))
    flags = [f"--data_dir={tmp_path}", "--task_name=STS-B", "--do_train", "--do_eval", "--num_train_epochs=80"]
    metrics = train(inputs, vocab_file, tmp_path / "out", *flags)
    assert metrics["pearson"] > 0.9 and metrics["loss"] < 0.7


def config_with(inputs, tmp_path, **changes) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads((inputs / "config.json").read_text()) | changes))
    return f"--bert_config_file={path}"


def test_default_row_length_is_limited_by_positions(inputs, vocab_file, tmp_path):
    for positions, length in ((32, 32), (500, 128)):
        flag = config_with(inputs, tmp_path, max_position_embeddings=positions)
        given = settings(inputs, vocab_file, tmp_path / "out", "--do_train", flag)
        assert resolve(dataclasses.replace(given, max_seq_length=None), find.find_task)[0].max_seq_length == length


@pytest.mark.parametrize(
    ("more", "changes", "message"),
    [
        (["--task_name=nope"], {}, "unknown; known are CoLA, .* and own"),
        (["--max_seq_length=33"], {}, "max_seq_length=33 is beyond max_position_embeddings=32"),
        (["--data_dir=nowhere"], {}, "nowhere/train.tsv: no such file"),
        (["--vocab_file=nowhere.txt"], {}, "nowhere.txt: no such file"),
        (["--init_checkpoint=nowhere"], {}, "nowhere: no such checkpoint"),
        (["--num_train_epochs=0.1"], {}, "are not enough for one step"),
        (["--nodo_train", "--do_eval"], {}, "no such folder|holds no checkpoint"),
        ([], {"vocab_size": 100}, r"vocab_size=100 is smaller than .*vocab.txt, which has \d+ tokens"),
        (["--init_checkpoint={}"], {"intermediate_size": 64},
         r"blocks/0/intermediate/\w+ has shape .* the model needs"),
    ],
)  # fmt: skip
def test_refuses_bad_flags_before_writing(inputs, vocab_file, trained, tmp_path, more, changes, message):
    flags = ["--do_train", config_with(inputs, tmp_path, **changes), *(flag.format(trained[0]) for flag in more)]
    refused(message, train, inputs, vocab_file, tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--learning_rate=1e-5"], "other flags .*learning_rate"),
        (["--max_seq_length=20"], "other data .*max_seq_length"),
        (["--task_name=own", "--text_a_column=#1 String", "--label_column=Quality"],
         "another model .*task_name was 'MRPC', is 'own'"),
        (["--nodo_lower_case"], "another model .*do_lower_case"),
        (["--bilstm_head"], "another model .*bilstm_head was False, is True"),
    ],
)  # fmt: skip
def test_a_folder_of_another_run_is_refused(inputs, vocab_file, trained, more, message):
    refused(message, train, inputs, vocab_file, trained[0], "--do_train", *more)
