import logging
import os
import shutil

import pytest
import tensorflow as tf

from bert_tf.pretraining.engine import run_pretraining
from bert_tf.report import run_report
from bert_tf.runs import checkpoint_folder
from bert_tf.training import flops, loop, metrics_file
from tests.bert_tf.pretraining_runs import settings, write_records
from tests.kit import read_jsonl, refused
from tests.small_configs import small_config

CONFIG = small_config()
EVALUATED = {
    "loss", "masked_lm_loss", "masked_lm_accuracy", "masked_lm_perplexity", "next_sentence_loss",
    "next_sentence_accuracy", "next_sentence_random_share",
}  # fmt: skip
TRAINED = {*EVALUATED, "learning_rate", "gradient_norm"}
SPEED = {"sequences_per_second", "tokens_per_second"}


@pytest.fixture(scope="module")
def data(tmp_path_factory, corpus_file, vocab_file):
    """A folder with `data.tfrecord`, `held_out.tfrecord`, `config.json` and a copy of the vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copy(vocab_file, folder / "vocab.txt")
    for name, seed in (("data", 1), ("held_out", 2)):
        write_records(folder / f"{name}.tfrecord", corpus_file, folder / "vocab.txt", random_seed=seed)
    (folder / "config.json").write_text(CONFIG.to_json_string())
    return folder


def run(data, output_dir, *more: str) -> dict[str, float]:
    held_out = (f"--eval_input_file={data}/held_out.tfrecord", "--max_eval_steps=4")
    given = settings(f"{data}/config.json", f"{data}/data.tfrecord", output_dir, *held_out, *more)
    return run_pretraining(given, run_report.write)


@pytest.fixture(scope="module")
def finished(data, drawn_charts, tmp_path_factory):
    """A run of six steps with evaluations at 0, 3 and 6, curves in its report and a sentence of the user."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "sentences.txt").write_text("the [MASK] was there\n")
    results = run(data, folder / "run", "--do_train", "--do_eval", f"--fill_mask_file={folder}/sentences.txt")
    return folder / "run", results


def test_run_writes_training_and_evaluation_metrics(finished):
    folder, results = finished
    assert {"ckpt-0.index", "ckpt-3.index", "ckpt-6.index", "bert_config.json", "run.json"} <= set(os.listdir(folder))
    assert results.keys() == EVALUATED
    written = dict(line.split(" = ") for line in (folder / "eval_results.txt").read_text().splitlines())
    assert written["global_step"] == "6" and float(written["masked_lm_loss"]) == results["masked_lm_loss"]
    entries = read_jsonl(folder / "metrics.jsonl")
    by_split = {split: [e for e in entries if e["split"] == split] for split in ("start", "train", "eval")}
    assert [entry["step"] for entry in by_split["train"]] == [1, 2, 3, 4, 5, 6]
    assert [entry["step"] for entry in by_split["eval"]] == [0, 3, 6]
    # the first step includes compilation, so there is no speed
    assert [entry.keys() for entry in by_split["train"]] == [
        {"split", "step", *TRAINED, *(SPEED if entry["step"] > 1 else ())} for entry in by_split["train"]
    ]
    assert all(entry.keys() == {"split", "step", "data", *EVALUATED} for entry in by_split["eval"])
    # the formula leaves out positions that the last layer does not compute
    assert by_split["start"][0]["flops_per_row"] == flops.pretraining_flops(CONFIG, 32, 5, outputs=2, examples=1)
    # every row has 32 positions, some of them padding
    tokens, rows = (sum(e[f"{name}_per_second"] for e in by_split["train"][1:]) for name in ("tokens", "sequences"))
    assert 0 < tokens < 32 * rows


def read_summaries(folder) -> dict[str, list]:
    """Returns steps and values by tag; texts are bytes."""
    found: dict[str, list] = {}
    for path in sorted(folder.glob("events.out*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                tensor = tf.make_ndarray(value.tensor)
                found.setdefault(value.tag, []).append((event.step, tensor.item()))
    return found


def test_tensorboard_has_the_same_names(finished):
    folder, results = finished
    train, held_out = read_summaries(folder / "train"), read_summaries(folder / "eval")
    both = {"loss", "masked_lm/loss", "masked_lm/accuracy", "masked_lm/perplexity", "next_sentence/loss",
            "next_sentence/accuracy", "next_sentence/random_share"}  # fmt: skip
    assert held_out.keys() == both | {"fill_mask"}
    speed = {f"speed/{name}" for name in SPEED}
    assert train.keys() == both | speed | {"optimizer/learning_rate", "optimizer/gradient_norm"}
    assert [step for step, _ in train["masked_lm/loss"]] == [1, 2, 3, 4, 5, 6]
    steps, values = zip(*held_out["masked_lm/perplexity"], strict=True)
    assert steps == (0, 3, 6) and values[-1] == pytest.approx(results["masked_lm_perplexity"])
    assert b"the [1] was there" in held_out["fill_mask"][0][1]


def test_every_evaluation_fills_the_same_blanks(finished):
    entries = read_jsonl(finished[0] / "fill_mask.jsonl")
    assert [entry["step"] for entry in entries] == [0, 3, 6]
    texts = [[sample["text"] for sample in entry["samples"]] for entry in entries]
    assert texts[0] == texts[1] == texts[2] and len(texts[0]) == 1 + 5
    assert texts[0][0] == "[CLS] the [1] was there [SEP]"
    guesses = [entry["samples"][1]["blanks"][0]["guesses"] for entry in entries]
    assert guesses[0] != guesses[-1] and all(len(three) == 3 for three in guesses)
    page = (finished[0] / "report.html").read_text()
    assert "Step 6 of 6" in page and page.count("<svg") == 6 and page.count("<th>right</th>") == 6


@pytest.mark.slow
def test_later_evaluation_gives_equal_metrics(data, finished, tmp_path, monkeypatch, caplog):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    with caplog.at_level("INFO"):
        results = run(data, folder, "--do_eval")
    assert results == finished[1] and "evaluating: 1 of " in caplog.text
    assert metrics_file.read(str(folder)) == metrics_file.read(str(finished[0]))
    (before, after) = (read_jsonl(each / "metrics.jsonl") for each in (finished[0], folder))
    assert after == [*before, before[-1]], "the later line counts"


@pytest.mark.slow
def test_evaluation_on_training_data_is_named_so(data, finished, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    shutil.copy(data / "data.tfrecord", tmp_path / "renamed.tfrecord")
    for given in ("", f"{tmp_path}/renamed.tfrecord"):
        with caplog.at_level(logging.INFO):
            caplog.clear()
            run(data, folder, "--do_eval", f"--eval_input_file={given}")
        assert read_jsonl(folder / "metrics.jsonl")[-1]["split"] == metrics_file.TRAINING_DATA
        assert "evaluating on training data; give held-out data" in caplog.text
        assert "evaluated on training data at step 6" in caplog.text
    page = (folder / "report.html").read_text()
    assert "training data, evaluated, step 6" in page and page.count(", best</th>") == 1
    assert (folder / "eval_on_training_data").is_dir()


@pytest.mark.slow
def test_other_held_out_data_is_recorded_separately(data, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    records = list(tf.data.TFRecordDataset(f"{data}/held_out.tfrecord").as_numpy_iterator())
    with tf.io.TFRecordWriter(f"{tmp_path}/other.tfrecord") as file:
        for record in records[::2]:
            file.write(record)
    before = (folder / "eval_results.txt").read_text()
    values = run(data, folder, "--do_eval", f"--eval_input_file={tmp_path}/other.tfrecord",
                 f"--vocab_file={data}/vocab.txt")  # fmt: skip
    *_, line = read_jsonl(folder / "metrics.jsonl")
    (own,) = (folder / "evaluations").iterdir()
    assert line["split"] == own.name and own.name.startswith("other.tfrecord-") and line["loss"] == values["loss"]
    assert (folder / "eval_results.txt").read_text() == before
    assert (own / "eval_results.txt").exists() and read_summaries(own / "eval")["loss"] == [(6, values["loss"])]
    page = (folder / "report.html").read_text()
    assert f"{own.name}, step 6" in page and "held out, step 6" in page


@pytest.mark.slow
def test_refuses_last_checkpoint_that_evaluates_to_nan(data, tmp_path):
    """After one step at a far too high rate, the weights are still finite."""
    train = ["--do_train", "--num_train_steps=1", "--num_warmup_steps=0", "--learning_rate=1e30"]
    message = r"the last checkpoint of .*run is unusable: .*not finite \(.*loss"
    refused(message, run, data, tmp_path / "run", *train, "--do_eval")
    assert checkpoint_folder.newest_intact(f"{tmp_path}/run").step == 0
    for path in (tmp_path / "run/damaged/0").iterdir():
        path.rename(tmp_path / "run" / path.name)
    (tmp_path / "run/checkpoint").unlink()
    refused(message, run, data, tmp_path / "run", "--do_eval")
    assert checkpoint_folder.newest_intact(f"{tmp_path}/run").step == 1, "an evaluation changes nothing"


@pytest.mark.slow
def test_a_run_without_evaluation_has_a_report(data, tmp_path, monkeypatch):
    def interrupt(self, step, results):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.TrainingProgress, "update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(
            settings(f"{data}/config.json", f"{data}/data.tfrecord", tmp_path, "--do_train"), run_report.write
        )
    assert "of 6; written" in (tmp_path / "report.html").read_text()
