"""Table 1's average, and the zip file for GLUE's server."""

import logging
import zipfile

import pytest

from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification import glue_results, submission
from bert_tf.training import metrics_file
from tests.kit import refused, run

# MNLI-m, MNLI-mm, QQP, QNLI, SST-2, CoLA, STS-B, MRPC, RTE and the published average.
PUBLISHED = {
    "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
    "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "BERT large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_average_is_the_papers(model):
    *scores, published = PUBLISHED[model]
    columns = dict(zip(glue_results.COLUMNS, scores, strict=True))
    assert round(glue_results.average(columns), 1) == published
    assert glue_results.average(columns | {"WNLI": 0.0}) == glue_results.average(columns)
    columns.pop("QQP")
    refused("needs all columns; QQP are missing", glue_results.average, columns)


def make_run(folder, task, files=(), **results):
    """Makes the folder of a finished run."""
    folder.mkdir()
    description.write(str(folder), TaskDescription("classification", task, ("0", "1"), 8, {}))
    if results:
        metrics_file.write_results(str(folder), {f"eval_{name}": value for name, value in results.items()})
    for name in files:
        submission.write(str(folder), name, ["0"], ["1"])


@pytest.fixture
def runs(tmp_path):
    """Runs of all tasks but WNLI, and WNLI's data."""
    make_run(tmp_path / "mnli", "MNLI", ["MNLI-m", "MNLI-mm", "AX"], accuracy=0.84, accuracy_mismatched=0.82)
    for name, metric in [*glue_results.COLUMNS.values()][2:]:
        make_run(tmp_path / name, name, [name], **{metric: 0.5, "loss": 1.0})
    (tmp_path / "WNLI").mkdir()
    (tmp_path / "WNLI/train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n1\ta\tb\t0\n2\tc\td\t1\n")
    (tmp_path / "WNLI/test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n1\ta\tb\n")
    return tmp_path


def submit(runs, *more, omit=""):
    folders = [p for p in runs.iterdir() if (p / "task.json").exists() and p.name != omit]
    flags = [f"--run_dirs={','.join(map(str, folders))}", f"--glue_dir={runs}", f"--output_file={runs}/all.zip"]
    return run("glue_submission", *flags, *more)


def test_script_shows_dev_scores_and_zips_all_files(runs, capsys, caplog):
    with caplog.at_level(logging.WARNING, "absl"):
        submit(runs)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["MNLI-m\t84.0", "MNLI-mm\t82.0", "QQP\t50.0"]
    assert lines[-1] == f"Average\t{(84 + 82 + 7 * 50) / 9:.1f}"
    with zipfile.ZipFile(runs / "all.zip") as archive:
        assert archive.namelist() == [f"{name}.tsv" for name in submission.SIZES] and len(submission.SIZES) == 11
        assert archive.read("RTE.tsv").decode() == "index\tprediction\n0\t1\n"
        assert archive.read("WNLI.tsv").decode() == "index\tprediction\n0\t1\n1\t1\n"
    assert "CoLA.tsv: has 1 predictions, but GLUE's test set has 1063 examples" in caplog.text


def test_missing_and_double_files_are_refused(runs):
    refused(r"RTE.tsv: not in --run_dirs; run --do_predict for RTE, and add the run", submit, runs, omit="RTE")
    refused(r"WNLI.tsv: not in --run_dirs; .*; or give --glue_dir", submit, runs, "--glue_dir=")
    submission.write(str(runs / "CoLA"), "RTE", ["0"], ["1"])
    refused(r"RTE.tsv: .*RTE.tsv exists too; give only one of the folders", submit, runs)
    assert not (runs / "all.zip").exists()
    refused(r"--output_file=a.tar: must end in .zip", submit, runs, "--output_file=a.tar")


def test_dev_scores_of_some_runs_and_of_wrong_ones(runs, capsys):
    submit(runs, "--output_file=", omit="QQP")
    assert "Average" not in capsys.readouterr().out
    make_run(runs / "again", "RTE", accuracy=0.7)
    refused("holds a run of RTE, as does .*; give only one folder", submit, runs, "--output_file=")
    metrics_file.write_results(str(runs / "mnli"), {"eval_accuracy": 0.3, "eval_matthews_correlation": 0.1})
    message = "its last evaluation has no accuracy_mismatched; evaluate --task_name=MNLI"
    refused(message, submit, runs, "--output_file=", omit="again")
    (runs / "mnli/eval_results.txt").write_text("eval_accuracy = \n")
    refused(r"eval_results.txt: is damaged .*; evaluate again", submit, runs, "--output_file=", omit="again")
