"""Whole commands of `run_squad` on tiny data: their metrics, their files and their errors."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from bert_tf.finetuning import description
from bert_tf.finetuning.resolution import Command
from bert_tf.runs import checkpoint_folder
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import SquadTask, squad_task
from tests.bert_tf.finetuning.killed_run import assert_same_weights
from tests.killable import Server
from tests.kit import refused, run, write
from tests.small_configs import small_config


def question(number: int, **more) -> dict:
    """The answer is the word after "said"; an unanswerable question has a context without it."""
    word = ("man", "woman", "time", "years")[number % 4]
    answerable = not more.get("is_impossible")
    context = (
        f"{'the of ' * (number % 5)}they {'said' if answerable else 'like'} {word} then {'we had ' * (number % 3)}."
    )
    answers = [{"text": word, "answer_start": context.index(word)}] if answerable else []
    return {"context": context, "qas": [{"id": f"q{number}", "question": "what ?", "answers": answers, **more}]}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files of both versions, and a configuration."""
    folder = tmp_path_factory.mktemp("inputs")
    bare = [question(i) for i in range(6)]
    for entry in bare:
        del entry["qas"][0]["answers"]
    mixed = [question(i, is_impossible=i % 3 == 0) for i in range(24)]
    for name, paragraphs in {"v1": [*map(question, range(24))], "v2": mixed, "test": bare}.items():
        write(folder / f"{name}.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    config = small_config(dropout=0.0, max_position_embeddings=48, initializer_range=0.1)
    write(folder / "config.json", config.to_json_string())
    return folder


def flags(inputs, vocab_file, output_dir, version="v1", *more: str) -> list[str]:
    return [
        f"--train_file={inputs}/{version}.json", f"--predict_file={inputs}/{version}.json",
        f"--bert_config_file={inputs}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={output_dir}",
        "--max_seq_length=20", "--max_query_length=8", "--doc_stride=4", "--train_batch_size=8",
        "--num_train_epochs=40", "--learning_rate=1e-2", *more,
    ]  # fmt: skip


def run_squad(*arguments) -> dict[str, float]:
    return run("run_squad", *flags(*arguments))


@pytest.fixture(scope="module")
def trained(inputs, vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, run_squad(inputs, vocab_file, folder, "v1", "--do_train", "--do_eval", "--do_predict")


@pytest.fixture(scope="module")
def trained_v2(inputs, vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained_v2")
    # With the learning rate of the other tests, the score would depend on the rounding of the sums.
    do = ["--do_train", "--do_eval", "--version_2_with_negative", "--tune_null_threshold", "--learning_rate=5e-3"]
    return folder, run_squad(inputs, vocab_file, folder, "v2", *do)


def predictions(folder) -> dict:
    return json.loads((folder / "predictions.json").read_text())


def expected(count=24) -> dict:
    return {entry["qas"][0]["id"]: entry["qas"][0]["answers"][0]["text"] for entry in map(question, range(count))}


def test_a_run_learns_and_leaves_the_originals_files(trained):
    folder, scores = trained
    assert list(scores) == ["f1", "exact_match", "loss"] and scores["exact_match"] == 1.0 and scores["loss"] < 0.1
    assert predictions(folder) == expected()
    best = json.loads((folder / "nbest_predictions.json").read_text())["q3"]
    assert best[0].keys() == {"text", "probability", "start_logit", "end_logit"} and best[0]["probability"] > 0.8
    assert sum(entry["probability"] for entry in best) == pytest.approx(1)
    assert not (folder / "null_odds.json").exists()
    assert "eval_exact_match = 1.0" in (folder / "eval_results.txt").read_text()
    described = description.read(str(folder))
    assert (described.kind, described.task_name, described.labels) == ("questions", "squad", ())
    assert described.data == {"doc_stride": 4, "max_query_length": 8}
    report = (folder / "report.html").read_text()
    assert "exact match" in report and "Worst questions" in report


@pytest.mark.slow
def test_answers_are_required_to_evaluate_not_predict(inputs, trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    command = [f"--predict_file={inputs}/test.json", f"--output_dir={folder}"]
    run("run_squad", *command, "--do_predict", "--exact_answer_offsets")
    assert predictions(folder) == expected(6)
    best = json.loads((folder / "nbest_predictions.json").read_text())["q3"][0]
    assert question(3)["context"][best["start"] : best["end"]] == best["text"] == "years"
    message = "test.json: question q0 has no answers; give --do_predict without --do_eval"
    refused(message, run, "run_squad", *command, "--do_eval")


def test_an_ensemble_decodes_as_in_training(inputs, trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    members = f"--ensemble_checkpoints={folder},{trained[0]}"
    command = [f"--predict_file={inputs}/v2.json", f"--output_dir={tmp_path / 'out'}", "--do_predict", members]
    message = f"--version_2_with_negative=True: {folder} was trained with False; leave the flag out"
    refused(message, run, "run_squad", *command, "--version_2_with_negative")


@pytest.mark.slow
def test_questions_without_answer_and_their_threshold(inputs, trained_v2, tmp_path):
    folder, scores = trained_v2
    assert list(scores)[:2] == ["f1", "exact_match"] and scores["f1"] > 0.95
    assert {"HasAns_f1", "NoAns_f1", "null_threshold"} <= scores.keys()
    answers, odds = predictions(folder), json.loads((folder / "null_odds.json").read_text())
    assert 6 <= sum(not text for text in answers.values()) <= 10 and odds.keys() == answers.keys()
    assert all((odds[id_] > scores["null_threshold"]) == (not text) for id_, text in answers.items())
    kept = json.loads((folder / "null_threshold.json").read_text())
    last = checkpoint_folder.newest_intact(str(folder)).step
    assert (kept["step"], kept["null_score_diff_threshold"]) == (last, scores["null_threshold"])
    assert description.read(str(folder)).parameters == {"version_2_with_negative": True}

    copy = shutil.copytree(folder, tmp_path / "run")
    command = [f"--predict_file={inputs}/v2.json", f"--output_dir={copy}", "--do_predict"]
    run("run_squad", *command, "--null_score_diff_threshold=1e9")
    assert all(predictions(copy).values())
    run("run_squad", *command)
    assert predictions(copy) == answers


@pytest.fixture(scope="module")
def second(inputs, vocab_file, tmp_path_factory):
    """A model of another size, trained for a few steps."""
    folder = tmp_path_factory.mktemp("second")
    config = json.loads((inputs / "config.json").read_text()) | {"hidden_size": 8}
    (folder / "config.json").write_text(json.dumps(config))
    more = [f"--bert_config_file={folder}/config.json", "--do_train", "--num_train_epochs=1"]
    run_squad(inputs, vocab_file, folder / "run", "v1", *more)
    return folder / "run"


def start_logits(folder) -> dict:
    """Returns start logits by question and position, for answers that occur only once in their context."""
    best = json.loads((folder / "nbest_predictions.json").read_text())
    contexts = {entry["qas"][0]["id"]: entry["context"] for entry in map(question, range(24))}
    return {
        id_: {(e["start"], e["end"]): e["start_logit"] for e in entries if contexts[id_].count(e["text"]) == 1}
        for id_, entries in best.items()
    }


@pytest.mark.slow
def test_an_ensemble_answers_by_the_mean_logits(inputs, trained, second, tmp_path):
    logits = []
    for number, member in enumerate((trained[0], second)):
        folder = shutil.copytree(member, tmp_path / str(number))
        run("run_squad", f"--predict_file={inputs}/v1.json", f"--output_dir={folder}", "--do_predict",
                                  "--n_best_size=1000", "--exact_answer_offsets")  # fmt: skip
        logits.append(start_logits(folder))
    out = tmp_path / "ensemble"
    prefixes = [checkpoint_folder.newest_intact(str(folder)).prefix for folder in (trained[0], second)]
    members = f"--ensemble_checkpoints={prefixes[0]},{second}"
    command = [f"--predict_file={inputs}/v1.json", f"--output_dir={out}", members]
    exact = ["--n_best_size=1000", "--exact_answer_offsets"]
    scores = run("run_squad", *command, "--do_eval", "--do_predict", *exact)
    assert list(scores) == ["f1", "exact_match"]
    compared = 0
    for id_, found in start_logits(out).items():
        for place, value in found.items():
            if all(place in member[id_] for member in logits):
                np.testing.assert_allclose(value, np.mean([m[id_][place] for m in logits]), atol=1e-4)
                compared += 1
    assert compared > 100
    entries = json.loads((out / "ensemble.json").read_text())
    assert entries["checkpoints"] == sorted(prefixes)
    assert f"eval_f1 = {scores['f1']}" in (out / "eval_results.txt").read_text()
    # the folder keeps the threshold that was tuned on these models
    turned = f"--ensemble_checkpoints={second},{trained[0]}"
    run("run_squad", *command[:2], turned, "--do_predict")
    others = f"--ensemble_checkpoints={second},{os.path.dirname(prefixes[0])}/ckpt-0"
    message = "holds the results of another ensemble .*; give another folder"
    refused(message, run, "run_squad", *command[:2], others, "--do_predict")
    (out / "ensemble.json").write_text("{")
    refused("ensemble.json: is damaged .*; give another --output_dir", run, "run_squad", *command, "--do_predict")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train_file="], "--do_train needs --train_file"),
        (["--do_eval", "--predict_file="], "--do_eval needs --predict_file"),
        (["--max_query_length=17"], "a question of --max_query_length=17 leaves no room for its context"),
        (["--train_file=nowhere.json"], "nowhere.json: no such file"),
        (["--null_score_diff_threshold=nan"], "must be finite"),
    ],
)
def test_refuses_bad_flags_before_writing(inputs, vocab_file, tmp_path, more, message):
    refused(message, run_squad, inputs, vocab_file, tmp_path / "out", "v1", "--do_train", *more)
    assert not (tmp_path / "out").exists()


def decoding(trained, folder="out", **flags):
    given = SquadSettings(train_file="x", predict_file="x", output_dir="out", **flags)
    return squad_task(Command(given, trained, str(folder))).decoding


@pytest.mark.parametrize("do", ["do_train", "do_eval", "do_predict"])
def test_later_commands_use_the_runs_answer_lengths(do):
    def chosen(trained, **flags):
        found = decoding(trained, **{do: True}, **flags)
        return found.n_best_size, found.max_answer_length

    trained = description.describe(SquadTask(Decoding(5, 12)), 20)
    assert chosen(None) == (20, 30) and chosen(trained) == (5, 12)
    assert chosen(trained, max_answer_length=9) == (5, 9) and chosen(trained, n_best_size=1) == (1, 12)


def test_a_threshold_needs_its_answer_lengths(tmp_path):
    task = SquadTask(Decoding(5, 12, has_unanswerable=True))
    trained, tuning = description.describe(task, 20), {"do_eval": True, "tune_null_threshold": True}
    assert decoding(trained, **tuning) == decoding(trained, max_answer_length=12, **tuning) == task.decoding
    for name, value in (("n_best_size", 1), ("max_answer_length", 60)):
        refused(f"--{name}={value}: out was trained with", decoding, trained, **tuning, **{name: value})
    longer = {"folder": tmp_path, "do_predict": True, "max_answer_length": 60}
    assert decoding(trained, **longer).max_answer_length == 60
    squad_results.NULL_THRESHOLD.write(str(tmp_path), -1.5, 3)
    refused("--max_answer_length=60: out was trained with 12; leave the flag out", decoding, trained, **longer)
    assert decoding(trained, null_score_diff_threshold=0.5, **longer).max_answer_length == 60


@pytest.mark.slow
def test_same_bits_after_repeated_kills(inputs, vocab_file, tmp_path):
    server = Server(tmp_path)

    def command(folder):
        more = ["--do_train", "--do_eval", "--num_train_epochs=10", "--save_checkpoints_steps=5", "--deterministic"]
        return flags(inputs, vocab_file, folder, "v1", *more)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert server.do("squad", command(whole)) == 0, server.log
    kills, seen = 0, []
    for how in (
        {"event": 4},
        {"at_loop": [signal.SIGKILL, 2]},
        {"while_writing": True},
        {"at_loop": [signal.SIGTERM, 1]},
    ):
        code = server.do("squad", command(killed), count_file=str(tmp_path / "count"), **how)
        kills += code != 0
        seen.append(checkpoint_folder.newest_intact(str(killed)).step)
    assert kills >= 3 and seen == sorted(seen) and seen[-1] < checkpoint_folder.newest_intact(str(whole)).step
    assert server.do("squad", command(killed)) == 0, server.log
    assert_same_weights(*(checkpoint_folder.newest_intact(str(folder)).prefix for folder in (killed, whole)))
    for name in ("predictions.json", "eval_results.txt"):
        assert (killed / name).read_text() == (whole / name).read_text()
    server.close()
