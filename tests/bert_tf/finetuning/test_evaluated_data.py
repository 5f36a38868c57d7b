"""Scores on dev data and on other data are separate; each is shown beside the score of the best constant answer."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.finetuning import evaluated_data
from bert_tf.finetuning.task import Split
from bert_tf.report import run_report
from bert_tf.run_classifier import main as run_classifier
from bert_tf.run_squad import main as run_squad
from bert_tf.runs import evaluations
from bert_tf.tasks.choice.choice_files import ChoiceExample
from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.multi_label import LabelSets
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.questions.squad_answers import Candidate, Decoding, SpanAnswers
from bert_tf.tasks.questions.squad_file import Answer, Question
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.training import metrics_file
from export import sources
from export.model_card import text as model_card
from export.settings import ExportSettings
from tests.bert_tf.tagging import make_task as tagging_task
from tests.small_configs import small_config

WORDS = {"good": "the man was well", "bad": "all of you"}


def table(count, offset=0, labels=("good", "bad", "good"), column="label"):
    rows = [(f"{WORDS[labels[i % len(labels)]]} {i + offset}", labels[i % len(labels)]) for i in range(count)]
    return f"text,{column}\n" + "".join(f"{text},{label}\n" for text, label in rows)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "train.csv").write_text(table(24))
    (folder / "dev.csv").write_text(table(9, 100))
    (folder / "test.csv").write_text(table(12, 200, ("bad", "bad", "good")))
    config = small_config(300, 8, initializer_range=0.1)
    (folder / "config.json").write_text(config.to_json_string())
    return folder


def run(inputs, vocab_file, output_dir, *more):
    flags = [f"--bert_config_file={inputs}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={output_dir}",
             "--task_name=own", "--max_seq_length=16", "--train_batch_size=8", "--learning_rate=1e-3"]  # fmt: skip
    return run_classifier(parse(ClassifierSettings, [*flags, *more]))


@pytest.fixture(scope="module")
def once(inputs, vocab_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train = ["--do_train", "--do_eval", "--num_train_epochs=2", "--eval_strategy=epoch"]
    run(inputs, vocab_file, folder, f"--data_dir={inputs}", *train)
    return folder


@pytest.fixture
def trained(once, tmp_path):
    return shutil.copytree(once, tmp_path / "run")


def rows_of(folder):
    return [e for e in metrics_file.read(str(folder), "metrics.jsonl") if e["split"] not in ("start", "train")]


def other(folder, name):
    """Returns the folder of the only evaluated data with this name."""
    (found,) = (folder / "evaluations").glob(f"{name}-????")
    return found


def dev_files(folder):
    return {name: (folder / name).read_text() for name in ("eval_results.txt", "dev_predictions.jsonl",
                                                             "evaluations.json")}  # fmt: skip


@pytest.mark.parametrize("flag", ["--do_eval --eval_data_path", "--do_predict --test_data_path"])
def test_test_data_has_its_own_series_and_files(inputs, vocab_file, trained, caplog, monkeypatch, flag):
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    before, dev = dev_files(trained), rows_of(trained)
    assert [(row["split"], row["step"]) for row in dev] == [("dev", 3), ("dev", 6)]
    scores = run(inputs, vocab_file, trained, *f"{flag}={inputs}/test.csv".split())
    assert dev_files(trained) == before, "nothing of the dev data is replaced"
    *same, test = rows_of(trained)
    folder = other(trained, "test.csv")
    assert same == dev and test["split"] == folder.name and test["data"].startswith("test.csv, 12 examples, ")
    results = metrics_file.read_results(str(folder))
    assert results["eval_accuracy"] == test["accuracy"] and results["global_step"] == test["step"]
    assert not scores or scores["accuracy"] == test["accuracy"]
    assert len((folder / "eval_predictions.jsonl").read_text().splitlines()) == 12
    assert " test.csv: 12 examples; tokens" in caplog.text
    assert f"own {folder.name}, step" in caplog.text and f"{folder.name} is not the run's dev data" in caplog.text
    assert "accuracy 0.6667" in caplog.text and "always 'bad', the majority class" in caplog.text
    page = run_report.write_or_refuse(str(trained))
    page = open(page).read()
    assert f"dev: dev.csv, 9 examples; {folder.name}: test.csv, 12 examples" in page
    assert f"<h1>{folder.name}, step {test['step']}</h1>" in page
    with sources.load(ExportSettings(checkpoint_dir=str(trained), export_dir="x")) as source:
        card = model_card(source, {})
    before_test, of_test = card.split(f"## Scores on {folder.name}, which is not the dev data")
    assert f"accuracy: {test['accuracy']}" in of_test
    assert "data: dev.csv, 9 examples" in before_test[before_test.index("## Scores on the dev data") :]


def test_tensorboard_has_the_dev_metrics(trained):
    points = {}
    for path in sorted((trained / "eval").glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                points[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    for row in rows_of(trained):
        assert points["accuracy", row["step"]] == pytest.approx(row["accuracy"])


def test_two_files_of_one_name_have_their_own_folders(inputs, vocab_file, trained):
    for number, text in enumerate(("all of,good", "the man,bad", "all of,good")):
        path = trained.parent / str(number) / "test.csv"
        path.parent.mkdir()
        path.write_text(f"text,label\n{text}\n")
        run(inputs, vocab_file, trained, "--do_eval", f"--eval_data_path={path}")
    series = {row["split"] for row in rows_of(trained) if row["split"] != "dev"}
    assert series == {folder.name for folder in (trained / "evaluations").iterdir()} and len(series) == 2


def test_a_resumed_training_names_other_data(inputs, vocab_file, trained, caplog):
    before, train = dev_files(trained), ("--do_train", "--num_train_epochs=2")
    run(inputs, vocab_file, trained, f"--data_dir={inputs}", *train, "--do_eval", f"--eval_data_path={inputs}/test.csv")
    assert "is not the run's dev data" in caplog.text and dev_files(trained) == before


def test_data_for_eval_and_predict_is_scored_once(inputs, vocab_file, trained, caplog):
    paths = (f"--eval_data_path={inputs}/test.csv", f"--test_data_path={inputs}/test.csv")
    run(inputs, vocab_file, trained, "--do_eval", "--do_predict", *paths)
    assert caplog.text.count("own test.csv-") == caplog.text.count("is not the run's dev data") == 1
    assert (trained / "test_predictions.tsv").exists()


def test_report_shows_best_and_last_checkpoint_by_step(trained):
    folder, values = str(trained), {"pearson": (0.9, 0.1), "spearman": (0.2, 0.8), "loss": (0.5, 0.4)}
    data = evaluations.read(folder).data
    rows = {step: {name: value[i] for name, value in values.items()} for i, step in enumerate((3, 6))}
    evaluations.write(folder, evaluations.Evaluations("pearson", True, 0, data, rows))
    for step, scores in rows.items():
        metrics_file.record(folder, "dev", step, {"data": data, **scores})
    metrics_file.write_results(folder, {"eval_pearson": 0.9, "global_step": 3})
    page = open(run_report.write_or_refuse(folder)).read()
    best, last = page.index("dev, step 3 (best pearson)"), page.index("dev, step 6 (last)")
    assert best < last and "dev, best" not in page and " at step " not in page
    row = page[page.index("pearson</td>") :].split("</tr>")[0]
    assert row.index(">0.9") < row.index(">0.1"), "the columns are of one checkpoint each"
    assert "<h1>dev, step 3</h1>" in page


@pytest.mark.slow
def test_thresholds_are_chosen_on_dev_data_alone(vocab_file, inputs, tmp_path):
    data, out = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    shutil.copy(inputs / "config.json", data)
    for number, split in enumerate(("train", "dev", "test")):
        lines = [{"text": f"{WORDS['good' if i % 2 else 'bad']} {i + 100 * number}", "label": ["a", "b"][: i % 3]}
                 for i in range(12)]  # fmt: skip
        (data / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = ["--multi_label", f"--data_dir={data}"]
    run(data, vocab_file, out, *more, "--do_train", "--do_eval", "--do_predict", "--tune_thresholds",
        "--num_train_epochs=1")  # fmt: skip
    thresholds = (out / "thresholds.json").read_text()
    assert {row["split"] for row in rows_of(out)} == {"dev", other(out, "test.jsonl").name}
    labels = (other(out, "test.jsonl") / "eval_labels.tsv").read_text().splitlines()[1:]
    used = {row.split("\t")[1] for row in labels}
    assert used == {repr(value) for value in json.loads(thresholds)["thresholds"].values()}
    with pytest.raises(InputError, match=r"--tune_thresholds: chooses .* dev data, but this is other data"):
        run(data, vocab_file, out, *more, "--do_eval", "--tune_thresholds", f"--eval_data_path={data}/test.jsonl")
    assert (out / "thresholds.json").read_text() == thresholds
    training = next(row for row in metrics_file.read(str(out), "metrics.jsonl") if row["split"] == "train")
    assert "subset_accuracy_at_0.5" in training and "subset_accuracy" not in training, "dev has other thresholds"


@pytest.mark.slow
def test_the_first_evaluated_data_becomes_dev(inputs, vocab_file, tmp_path, caplog):
    run(inputs, vocab_file, tmp_path / "run", f"--data_dir={inputs}", "--do_train", "--num_train_epochs=1")
    run(inputs, vocab_file, tmp_path / "run", f"--data_dir={inputs}", "--do_predict")
    assert not evaluations.exists(str(tmp_path / "run")), "a prediction names no dev data"
    run(inputs, vocab_file, tmp_path / "run", f"--data_dir={inputs}", "--do_eval")
    assert "the run's dev data is dev.csv, 9 examples" in caplog.text
    assert [row["split"] for row in rows_of(tmp_path / "run")] == [
        other(tmp_path / "run", "test.csv").name,
        "dev",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("text\nthe man\nall\n", "no column 'label'"),
        ("text,label\nthe man,\nall,good\n", "line 2: the label is empty"),
        ("text,label\nthe man,good\nall,?\n", "line 3: unknown label '?'"),
    ],
)
def test_unlabeled_test_data_has_no_scores(inputs, vocab_file, trained, caplog, content, reason):
    (trained.parent / "new.csv").write_text(content)
    before = rows_of(trained)
    run(inputs, vocab_file, trained, "--do_predict", f"--test_data_path={trained.parent}/new.csv")
    assert rows_of(trained) == before and reason in caplog.text and "but no metrics" in caplog.text
    header, *rows = (trained / "test_predictions.tsv").read_text().splitlines()
    assert len(rows) == 2 and header.startswith("index\tlabel\t")


def predicted(folder):
    """Returns the first question in the prediction files of a folder."""
    (first,) = {min(json.loads((folder / name).read_text())) for name in ("predictions.json", "nbest_predictions.json")}
    return first


def test_predictions_of_each_data_set_in_own_folder(inputs, vocab_file, trained):
    made = []
    for text in ("the man\n", "all\nof\n"):
        (trained.parent / "new.csv").write_text("text\n" + text)
        run(inputs, vocab_file, trained, "--do_predict", f"--test_data_path={trained.parent}/new.csv")
        made += [path for path in (trained / "evaluations").glob("new.csv-*") if path not in made]
        for folder in (trained, made[-1]):
            for file, head in (("test_results.tsv", 0), ("test_predictions.tsv", 1)):
                assert len((folder / file).read_text().splitlines()) == head + text.count("\n")
    assert len(made) == 2 and len((made[0] / "test_results.tsv").read_text().splitlines()) == 1


@pytest.mark.slow
def test_questions_and_ensembles_recognize_dev_data(inputs, vocab_file, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("bert_tf.core.progress_bar.SECONDS_BETWEEN_LINES", -1.0)
    out = tmp_path / "ensemble"
    squad = {"answers": [{"text": "man", "answer_start": 4}], "question": "who ?"}
    squads = tmp_path / "squad"
    squads.mkdir()
    for split in ("train", "dev", "test"):
        paragraphs = [{"context": f"the man was {split}", "qas": [squad | {"id": f"{split}{i}"} for i in range(3)]}]
        (squads / f"{split}.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))

    def ask(output, *more):
        flags = [f"--bert_config_file={inputs}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={output}",
                 "--max_seq_length=24", "--max_query_length=8", "--doc_stride=8", "--train_batch_size=2"]  # fmt: skip
        return run_squad(parse(SquadSettings, [*flags, *more]))

    member = tmp_path / "member"
    ask(member, "--do_train", "--do_eval", f"--train_file={squads}/train.json", f"--predict_file={squads}/dev.json",
        "--num_train_epochs=1")  # fmt: skip
    assert predicted(member) == "dev0"
    ask(member, "--do_predict", f"--predict_file={squads}/test.json")
    assert [row["split"] for row in rows_of(member)] == ["dev", other(member, "test.json").name]
    assert predicted(member) == predicted(other(member, "test.json")) == "test0"
    ask(member, "--do_eval", f"--predict_file={squads}/dev.json")
    ask(member, "--do_eval", f"--predict_file={squads}/test.json")
    assert predicted(member) == "dev0", "an evaluation of other data leaves the prediction files of the dev data"
    members = f"--ensemble_checkpoints={member},{shutil.copytree(member, tmp_path / 'second')}"
    ask(out, "--do_eval", members, f"--predict_file={squads}/test.json")
    assert not (out / "eval_results.txt").exists() and (other(out, "test.json") / "eval_results.txt").exists()
    ask(out, "--do_eval", members, f"--predict_file={squads}/dev.json")
    assert (out / "eval_results.txt").exists() and (out / "dev_predictions.jsonl").exists()
    assert predicted(out) == "dev0"
    ask(out, "--do_eval", "--do_predict", members, f"--predict_file={squads}/test.json")
    assert predicted(out) == predicted(other(out, "test.json")) == "test0"


def split_of(examples, label_ids=None):
    columns = {} if label_ids is None else {"label_ids": tf.constant(label_ids, tf.float32)}
    examples = examples or [Example("a", None, None)] * len(label_ids)
    return Split(examples, columns, np.arange(len(examples)))


def test_best_constant_answer_for_every_kind_of_task():
    classes = ClassificationTask("own", Classes(("x", "y", "z")))
    found = classes.baseline(split_of([], [0, 1, 1, 1, 2]))
    assert found.answer == "'y', the majority class"
    assert found.scores == {"accuracy": pytest.approx(0.6), "macro_f1": pytest.approx(0.25)}
    assert classes.only_answer(split_of([], [0, 1]), np.array([[0.0, 1, 0]] * 2)) == "'y'"
    assert classes.only_answer(split_of([], [0, 1]), np.eye(3)[:2]) == ""
    assert classes.only_answer(split_of([], [1, 1]), np.array([[0.0, 1, 0]] * 2)) == "", "and right"

    scores = ClassificationTask("own", Regression(("pearson", "r_squared")))
    assert scores.baseline(split_of([], [1.0, 2.0, 6.0])).answer == "the mean 3"
    assert scores.baseline(split_of([], [1.0, 2.0, 6.0])).scores == pytest.approx({"pearson": 0, "r_squared": 0})
    assert "3" in scores.only_answer(split_of([], [1.0, 5.0]), np.array([[3.0], [3.001]]))

    labels = ClassificationTask("own", LabelSets(("a", "b", "c")))
    targets = [[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1]]
    found = labels.baseline(split_of([], targets))
    assert found.answer.startswith("a") and found.scores["micro_f1"] == pytest.approx(2 * 6 / (8 + 7))
    assert labels.only_answer(split_of([], targets), np.array([[2.0, -1, -1]] * 4)) == "a"

    questions = [Question("1", "who ?", "the man", (Answer("man", 4),)), Question("2", "why ?", "the man", ())]
    squad = SquadTask(Decoding(has_unanswerable=True), null_threshold=0.0)
    assert squad.baseline(split_of(questions)).scores["f1"] == 0.5, "the share of the questions without an answer"
    none = np.array([SpanAnswers((Candidate("man", 1.0, 0.0), Candidate("", 5.0, 0.0)), 4.0)] * 2, object)
    assert squad.only_answer(split_of(questions), none) == "no answer"
    assert SquadTask(Decoding()).baseline(split_of(questions[:1])) is None

    tagging = tagging_task()
    sentences = [Sentence(("a", "b", "c", "d"), ("O", f"B-{tagging.types[0]}", "O", "O"), 1)]
    assert tagging.baseline(split_of(sentences)).scores == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0.75}

    choices = [ChoiceExample("a", "", ("b", "c"), label) for label in (1, 1, 0)]
    choice = ChoiceTask()
    assert choice.baseline(split_of(choices)).scores == {"accuracy": pytest.approx(2 / 3)}
    split = Split(choices, {}, np.repeat(np.arange(3), 2))
    assert choice.only_answer(split, np.array([[0.0], [1], [0], [1], [0], [1]])) == "choice 1"


def test_predictions_of_one_class_are_warned_of(tmp_path, caplog):
    task = ClassificationTask("own", Classes(("x", "y")))
    data = evaluated_data.EvaluatedData("dev.csv, 3 examples, 0", "dev", str(tmp_path))
    split, logits = split_of([Example("a", None, "x")] * 3, [0, 0, 1]), np.array([[1.0, 0]] * 3)
    evaluated_data.record(str(tmp_path), data, task, split, logits, task.scores(split, logits), 3)
    (line,) = rows_of(tmp_path)
    assert line["always"]["scores"]["accuracy"] == pytest.approx(2 / 3)
    assert "dev, step 3: every prediction is 'x'" in caplog.text
