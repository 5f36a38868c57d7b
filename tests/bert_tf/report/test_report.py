import dataclasses
import json

import pytest

from bert_tf.config import BertConfig
from bert_tf.core.flag_parsing import exit_code
from bert_tf.pretraining import fill_mask
from bert_tf.report import __main__ as report_main
from bert_tf.report import charts, run_report
from bert_tf.runs import run_record
from bert_tf.training import metrics_file
from tests.bert_tf.report.pages import check_stands_alone

pytestmark = pytest.mark.usefixtures("drawn_charts")
PHASE = run_record.TrainingRecord(
    settings={"input_file": "<train>.tfrecord", "max_seq_length": 128, "learning_rate": 1e-4, "init_checkpoint": ""},
    model={"model": "pretraining", **dataclasses.asdict(BertConfig.named("tiny"))},
    data={},
    optimizer={
        "num_train_steps": 2000,
        "num_schedule_steps": 2000,
        "num_warmup_steps": 220,
        "learning_rate": 1e-4,
        "decay_after_warmup": True,
    },
)
PAIRS = ("masked_lm_loss", "masked_lm_accuracy", "masked_lm_perplexity", "next_sentence_accuracy")
SPEED = ("learning_rate", "gradient_norm", "sequences_per_second", "tokens_per_second", "model_flop_utilization")


def entries(split, steps, names, value=0.5):
    return [{"split": split, "step": step, **dict.fromkeys(names, value + step * 1e-4)} for step in steps]


def look(step, sure):
    blank = {"right": "man", "guesses": [["man", sure], ["<b>", 0.05]]}
    return {"step": step, "samples": [{"text": "the [1] & all", "blanks": [blank]}]}


def test_a_whole_report_shows_everything():
    results = entries("train", range(50, 1050, 50), (*PAIRS, *SPEED)) + entries("eval", (0, 500, 1000), PAIRS)
    results.append({"split": "start", "step": 0, "peak_flops": 1.5e11, "peak_source": "a <toy>",
                    "flops_per_row": 2.5e9})  # fmt: skip
    page = run_report.render("a <run>", [PHASE], results, [look(0, 0.01), look(500, 0.5), look(1000, 0.93)])
    check_stands_alone(page)
    assert page.count("<svg") == len(PAIRS) + 2, "speed is a line of text"
    assert "the last start: 0.552 sequences per second (0.505 to 0.6), 0.552 tokens per second without padding" in page
    assert "55.2% model FLOP utilization (50.5% to 60.0%). Model FLOP" in page
    assert "Pre-training: a &lt;run&gt;" in page and "Step 1,000 of 2,000" in page and "&lt;train&gt;.tfrecord" in page
    assert "60.0% at step 1,000" in page, "accuracies are best where they are highest"
    assert "0.5 at step 0" in page, "losses where they are lowest"
    assert "150 GFLOP/s, a &lt;toy&gt;" in page and "2.50 GFLOP per row" in page
    assert "L=2 H=128 A=2 V=30,522, bidi" in page
    assert "the [1] &amp; all" in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "<th>step 0</th><th>step 1,000</th>" in page and "step 500</th>" not in page
    assert "<td>1</td><td>man</td>" in page and "man 93%, &lt;b&gt; 5%" in page
    assert "init_checkpoint" not in page, "what was left empty is not shown"


def test_a_fine_tuning_run_shows_its_scores_and_curves():
    phase = dataclasses.replace(
        PHASE, model=PHASE.model | {"model": "classification"}, settings={"task_name": "MRPC", "data_dir": "glue/MRPC"}
    )
    lines = entries("train", (50, 100), ("loss", "learning_rate"))
    lines.append({"split": "dev", "step": 100, "loss": 0.4, "accuracy": 0.845, "f1_macro": 0.81, "note": "text"})
    page = run_report.render("mrpc", [phase], lines, [])
    check_stands_alone(page)
    assert "Fine-tuning: mrpc" in page and "dev, step 100" in page
    assert "<th>train, step 50</th>" in page.replace(' class="number"', "").replace(' class="name"', ""), "before"
    assert page.count("<svg") == 2 and "f1 macro" in page and "0.845" in page
    assert not any(text in page for text in ("Speed", "at step 100", "note</td>"))


def drawn_lines(monkeypatch, *args) -> dict[str, dict[str, charts.Curve]]:
    """Returns the curves of a page by panel title and label."""
    drawn, panel = {}, charts.panel

    def note(title, lines, **options):
        drawn[title] = {line.label: line for line in lines}
        return panel(title, lines, **options)

    monkeypatch.setattr(charts, "panel", note)
    run_report.render("run", *args, [])
    return drawn


def test_next_sentence_curves_have_their_baseline(monkeypatch):
    results = [
        {"split": split, "step": step, "next_sentence_accuracy": 0.5, "next_sentence_random_share": share}
        for split, step, share in (("train", 5, 0.2), ("train", 10, 0.5), ("eval", 0, 0.75), ("eval", 10, 0.75))
    ]
    lines = drawn_lines(monkeypatch, [PHASE], results)["next-sentence accuracy"]
    assert lines["train"].baseline == pytest.approx(0.65) and lines["held out"].baseline == pytest.approx(0.75)
    assert charts.panel("nsp", list(lines.values())).count("stroke-dasharray") == 3, "two lines and the legend's"
    assert run_report.render("run", [PHASE], results, []).count("best constant answer") == 1
    unknown = entries("eval", (0, 10), PAIRS)
    assert "best constant answer" not in run_report.render("run", [PHASE], unknown, [])


@pytest.mark.parametrize(
    ("results", "panels"),
    [
        ([], 0),
        (entries("train", (50, 100), ("masked_lm_loss", "learning_rate")), 2),  # no next sentence, no evaluation
        (entries("eval", (0,), PAIRS), 0),  # nothing trained yet: the table has the values
        (entries("eval", (0, 500), PAIRS), 4),
        ([{"split": "train", "step": step, "masked_lm_loss": float("nan")} for step in (1, 2)], 1),  # diverged at once
    ],
)
def test_a_report_shows_what_there_is(results, panels):
    page = run_report.render("run", [PHASE], results, [])
    check_stands_alone(page)
    assert page.count("<svg") == panels and ("Curves" in page) == (panels > 0) and "Fill in" not in page


def test_a_second_phase_is_marked():
    longer = dataclasses.replace(
        PHASE, first_step=2000, begun_at=2000, settings=PHASE.settings | {"max_seq_length": 512}
    )
    results = entries("train", (1000, 2000, 3000), ("masked_lm_loss",))
    two, one = (run_report.render("run", phases, results, []) for phases in ([PHASE, longer], [PHASE]))
    assert "<td>128</td><td>512</td>" in two and "from step 2,000" in two
    assert two.count("stroke-dasharray") == one.count("stroke-dasharray") + 1


def test_a_report_is_written_from_the_runs_files(tmp_path):
    for step, loss in [(50, 5.0), (100, 4.0)]:
        metrics_file.record(str(tmp_path), "train", step, {"masked_lm_loss": loss})
    metrics_file.record(str(tmp_path), "start", 50, {})
    metrics_file.record(str(tmp_path), "train", 100, {"masked_lm_loss": 3.75})
    metrics_file.record(str(tmp_path), "eval", 100, {"masked_lm_loss": 4.25})
    for step in (0, 100):
        metrics_file.record(str(tmp_path), "eval", step, {"samples": look(step, 0.5)["samples"]}, fill_mask.NAME)
    run_report.write(str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert '<td class="number">3.75</td><td class="number">4.25</td>' in page and page.count(">step 100</th>") == 1
    assert not [path for path in tmp_path.iterdir() if ".tmp-" in path.name]


def write_run(folder, description):
    """Makes a folder that counts as a run's: an empty checkpoint and `run.json`."""
    (folder / "run.json").write_text(description)
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n')
    for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001"):
        (folder / name).write_text("")


@pytest.fixture
def report_script():
    """Runs the report's script on folders; returns its exit code."""
    return lambda *folders: exit_code(lambda: report_main.main(folders))


def test_script_rewrites_report_of_each_folder(tmp_path, capsys, report_script):
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        write_run(folder, json.dumps({"phases": [dataclasses.asdict(PHASE)]}))
        for step in (50, 100):
            metrics_file.record(str(folder), "train", step, {"masked_lm_loss": 5.0})
    (folders[0] / "report.html").write_text("old")
    assert report_script(*map(str, folders)) == 0
    assert capsys.readouterr().out.split() == [str(folder / "report.html") for folder in folders]
    for folder in folders:
        page = (folder / "report.html").read_text()
        check_stands_alone(page)
        assert f"Pre-training: {folder.name}" in page and page.count("<svg") == 1


def test_a_report_that_cannot_be_written_is_said(tmp_path, caplog, capsys, report_script):
    assert report_script(str(tmp_path)) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: no run has trained there")
    (tmp_path / "report.html").write_text("old")
    metrics_file.record(str(tmp_path), "train", 1, {"masked_lm_loss": 5.0})
    metrics_file.record(str(tmp_path), "eval", 1, {"samples": "no list"}, fill_mask.NAME)
    whole = json.dumps({"phases": [dataclasses.asdict(PHASE)]})
    for description, message in (("no JSON", "run.json: is damaged"), (whole, "report.html: cannot be written (TypeE")):
        write_run(tmp_path, description)
        run_report.write(str(tmp_path))  # after a training, it is a warning
        assert "report.html could not be written" in caplog.text
        assert report_script(str(tmp_path)) == 1 and message in capsys.readouterr().err
        caplog.clear()
    assert (tmp_path / "report.html").read_text() == "old"
