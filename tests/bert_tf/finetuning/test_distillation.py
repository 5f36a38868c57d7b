"""A student learns its teacher's outputs: in every kind of task, with other rows and words, and without labels."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import open_checkpoint
from bert_tf.classifier import TextClassifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.embedder import TextEmbedder
from bert_tf.finetuning import distillation
from bert_tf.run_classifier import main as run_classifier
from bert_tf.settings import ConversionSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.training import loop
from bert_tf.training.divergence import divergence
from tests.bert_tf.finetuning.killed_run import Killed, assert_same_weights
from tests.bert_tf.tasks import small_runs
from tests.small_configs import small_config

KINDS = ["classification", "regression", "questions", "tagging", "choice", "embeddings"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, vocab_file):
    """A function that trains the teacher of a kind, once."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind) / "teacher"
            small_runs.trained(kind, vocab_file, made[kind], "--num_train_epochs=20", "--learning_rate=5e-3")
        return made[kind]

    return of


def student(kind, vocab_file, folder, teacher, *more):
    """Trains a smaller student without dropout; returns the training rows of its metrics."""
    folder.parent.mkdir(exist_ok=True)
    config = folder.with_name("student.json")
    config.write_text(small_config(300, 16, 1, dropout=0.0).to_json_string())
    flags = [f"--teacher={teacher}", f"--bert_config_file={config}", *more]
    small_runs.trained(kind, vocab_file, folder, *flags)
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["split"] == "train"]


def test_the_divergence_is_the_formulas():
    rng = np.random.default_rng(0)
    teacher, own = (rng.normal(size=[5, 7]).astype(np.float32) for _ in range(2))

    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    p, q = (softmax(logits.astype(np.float64) / 3) for logits in (teacher, own))
    variable = tf.Variable(own)
    with tf.GradientTape() as tape:
        found = divergence(tf.constant(teacher), variable, 3.0)
    np.testing.assert_allclose(found, 9 * np.sum(p * np.log(p / q), 1), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(found, variable), 3 * (q - p), atol=1e-6)


@pytest.mark.quick_cases("classification")
@pytest.mark.parametrize("kind", KINDS)
def test_packed_and_accumulated_steps_are_equal(kind, teacher, vocab_file, tmp_path):
    flags = [[], ["--nopack_sequences"], ["--gradient_accumulation_steps=1"]]
    found = [
        student(kind, vocab_file, tmp_path / str(number) / "run", teacher(kind), *more)
        for number, more in enumerate(flags)
    ]
    assert found[0][0]["teacher_loss"] > 1e-3
    for name in ("loss", "teacher_loss", "gradient_norm"):
        first, *others = ([row[name] for row in rows] for rows in found)
        for other in others:
            assert other == pytest.approx(first, rel=2e-3, abs=1e-6), name


@pytest.mark.quick_cases("classification")
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_nothing_to_learn_from_its_teacher(kind, teacher, vocab_file, tmp_path):
    source = teacher(kind)
    config = json.loads((source / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = student(
        kind, vocab_file, tmp_path / "run", source, f"--bert_config_file={tmp_path}/config.json",
        f"--init_checkpoint={source}", "--distill_weight=1", "--num_train_epochs=1",
    )  # fmt: skip
    assert rows[0]["teacher_loss"] < 1e-6 and rows[0]["gradient_norm"] < 1e-4


def test_a_weight_of_0_is_plain_training(teacher, vocab_file, tmp_path):
    student("classification", vocab_file, tmp_path / "a/run", teacher("classification"), "--distill_weight=0")
    student("classification", vocab_file, tmp_path / "b/run", "")
    assert_same_weights(tmp_path / "a/run/ckpt-9", tmp_path / "b/run/ckpt-9")


def test_outputs_are_computed_once(teacher, vocab_file, tmp_path, caplog):
    given = "classification", vocab_file, tmp_path / "run", teacher("classification")
    student(*given)
    (stored,) = (tmp_path / "run/teacher").iterdir()
    before = stored.stat().st_mtime_ns
    student(*given)  # has nothing left to train
    whole = student("classification", vocab_file, tmp_path / "whole/run", teacher("classification"))
    assert stored.stat().st_mtime_ns == before and len(whole) == 9
    with pytest.raises(InputError, match="distill_weight"):
        student(*given, "--distill_weight=0.9")
    with pytest.raises(InputError, match="other data .teacher was"):
        student(*given[:3], tmp_path / "whole/run")


@pytest.mark.slow
def test_a_killed_student_ends_with_the_same_weights(teacher, vocab_file, tmp_path, monkeypatch):
    def train(name):
        folder = tmp_path / name / "run"
        student("classification", vocab_file, folder, teacher("classification"), "--save_checkpoints_steps=4")

    train("whole")

    def killed(progress=None, step=9, *rest, **more):
        if step > 4:
            raise Killed

    with monkeypatch.context() as patch:  # in the teacher's outputs
        patch.setattr(distillation, "evaluate_rows", lambda *_, **more: killed())
        with pytest.raises(Killed):
            train("killed")
    assert not list((tmp_path / "killed/run/teacher").glob("*"))
    with monkeypatch.context() as patch:  # in training, after the checkpoint of step 4
        patch.setattr(loop.TrainingProgress, "update", killed)
        with pytest.raises(Killed):
            train("killed")
    train("killed")
    assert_same_weights(tmp_path / "killed/run/ckpt-9", tmp_path / "whole/run/ckpt-9")


UNLABELED = {
    "classification": ("texts.tsv", "text\nsaid the man\nmany years of time\n"),
    "questions": (
        "questions.json",
        json.dumps({"data": [{"paragraphs": [
            {"context": "the people said time .", "qas": [{"id": "u", "question": "what ?"}]}
        ]}]}),
    ),
    "tagging": ("words.txt", "the\nman\n\npeople\nsaid\ntime\n"),
    "choice": ("choices.jsonl", '{"context": "the man", "choices": ["said time", "years"]}\n'),
    "embeddings": ("texts.jsonl", '{"text": "said the man"}\n{"text": "years of time"}\n'),
}  # fmt: skip


@pytest.mark.quick_cases("classification", "tagging")
@pytest.mark.parametrize("kind", UNLABELED)
def test_unlabeled_texts_have_only_the_teachers_loss(kind, teacher, vocab_file, tmp_path):
    """In a batch of all rows, the task's loss is the mean over the labeled rows."""
    name, text = UNLABELED[kind]
    (tmp_path / name).write_text(text)
    more = [f"--unlabeled_data_path={tmp_path / name}"]
    whole = ["--gradient_accumulation_steps=1", "--num_train_epochs=1"]

    def first(folder, size, *flags):
        given = kind, vocab_file, tmp_path / folder / "run", teacher(kind)
        return student(*given, *whole, f"--train_batch_size={size}", *flags)[0]

    rows, extra = {"questions": (16, 1), "choice": (32, 1)}.get(kind, (32, 2))
    plain, with_more = first("plain", rows), first("more", rows + extra, *more)
    assert with_more["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert with_more["teacher_loss"] != pytest.approx(plain["teacher_loss"], rel=1e-5)


@pytest.mark.slow
def test_a_benchmarks_student_reads_more_texts(tmp_path, vocab_file, teacher):
    (tmp_path / "more.csv").write_text("sentence\nthe man\n")
    (tmp_path / "SST-2").mkdir()
    lines = "".join(f"the man said {i}\t{i % 2}\n" for i in range(8))
    (tmp_path / "SST-2/train.tsv").write_text(f"sentence\tlabel\n{lines}")
    (tmp_path / "config.json").write_text(small_config().to_json_string())
    shared = ["--task_name=SST-2", f"--data_dir={tmp_path}/SST-2", f"--vocab_file={vocab_file}", "--do_train",
              f"--bert_config_file={tmp_path}/config.json", "--train_batch_size=3", "--num_train_epochs=1"]  # fmt: skip
    run_classifier(parse(ClassifierSettings, [*shared, f"--output_dir={tmp_path}/teacher"]))
    more = [f"--teacher={tmp_path}/teacher", f"--unlabeled_data_path={tmp_path}/more.csv", "--text_a_column=sentence"]
    run_classifier(parse(ClassifierSettings, [*shared, *more, f"--output_dir={tmp_path}/student"]))
    last = json.loads((tmp_path / "student/metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 3  # nine texts
    with pytest.raises(InputError, match="there is no column 'text'"):
        run_classifier(parse(ClassifierSettings, [*shared, *more[:2], f"--output_dir={tmp_path}/other"]))


@pytest.mark.slow
def test_python_learns_from_a_teacher_and_more_texts(tmp_path, vocab_file, teacher):
    texts = [f"the {word} number {i}" for i, word in enumerate(small_runs.WORDS)]
    (tmp_path / "config.json").write_text(small_config().to_json_string())
    (tmp_path / "more.jsonl").write_text("".join(f'{{"text": "the man {i}"}}\n' for i in range(10)))
    given = {"bert_config_file": str(tmp_path / "config.json"), "vocab_file": vocab_file, "num_train_epochs": 1}
    more = {"unlabeled_data_path": str(tmp_path / "more.jsonl"), "train_batch_size": 2}
    labels = ["good", "bad"] * 3

    def steps(folder):
        return json.loads((tmp_path / folder / "metrics.jsonl").read_text().splitlines()[-1])["step"]

    small = TextClassifier.train(
        texts, labels, "", str(tmp_path / "run"), dev_share=0, teacher=str(teacher("classification")), **given, **more
    )
    assert small.labels == ("bad", "good")
    assert steps("run") == (6 + 10) / 2
    scored = [(text, text[::-1], number) for number, text in enumerate(texts)]
    TextEmbedder.train(scored, "", str(tmp_path / "vectors"), teacher=str(teacher("embeddings")), **given, **more)
    assert steps("vectors") == (6 + 10) / 2
    with pytest.raises(InputError, match="has the labels bad, good, but the data has x, y"):
        TextClassifier.train(
            texts, ["x", "y"] * 3, "", str(tmp_path / "other"), dev_share=0,
            teacher=str(teacher("classification")), **given,
        )  # fmt: skip


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--teacher={tagging}"], "was trained for tagging, not for classification"),
        (["--teacher={data}/none"], "none"),
        (["--teacher={classification}", "--distill_weight=2"], "--distill_weight"),
    ],
)
def test_an_unfit_teacher_is_refused_at_once(flags, message, teacher, vocab_file, tmp_path):
    names = {kind: teacher(kind) for kind in ("classification", "tagging")} | {"data": tmp_path / "data"}
    with pytest.raises(InputError, match=message):
        small_runs.trained("classification", vocab_file, tmp_path / "run", *(f.format(**names) for f in flags))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_report_compares_with_the_teacher(kind, teacher, vocab_file, tmp_path):
    """The teacher's own evaluation gives the same scores."""
    (train,) = (flag.partition("=") for flag in small_runs.KINDS[kind][2] if flag.startswith("--train_"))
    given = [f"--{'predict_file' if kind == 'questions' else 'eval_data_path'}={train[2].format(tmp_path / 'data')}"]
    student(kind, vocab_file, tmp_path / "run", teacher(kind), "--do_eval", *given, "--train_batch_size=4")
    found = json.loads((tmp_path / "run/teacher.json").read_text())
    (main, settings, flags), data = small_runs.KINDS[kind], tmp_path / "data"
    shared = [*(flag.format(data) for flag in flags), *given, f"--vocab_file={vocab_file}", "--do_eval"]
    expected = main(parse(settings, [*shared, f"--output_dir={tmp_path}/copy", f"--init_checkpoint={teacher(kind)}"]))
    assert found["scores"] == pytest.approx({name: expected[name] for name in found["scores"]}, rel=1e-4)
    assert found["teacher_weights"] > found["student_weights"] > 5000
    report = (tmp_path / "run/report.html").read_text()
    assert f"{found['teacher_weights']:,}" in report and "Teacher" in report


@pytest.mark.slow
def test_the_trials_of_a_sweep_share_the_outputs(teacher, vocab_file, tmp_path):
    """The best trial then predicts the test data, whose scores have the trial's tuned thresholds."""
    (main, settings, own), data = small_runs.KINDS["classification"], tmp_path / "data"
    small_runs.write_data(data)
    (data / "student.json").write_text(small_config(dropout=0.3).to_json_string())
    (data / "test.tsv").write_text("text\tlabel\n" + "".join(f"the {word}\tgood\n" for word in small_runs.WORDS))
    sets = ["--multi_label", "--tune_thresholds", f"--vocab_file={vocab_file}"]
    shared = [*(flag.format(data) for flag in own), *sets, "--dev_share=0.5", "--do_eval", "--do_train"]
    main(parse(settings, [*shared, f"--output_dir={tmp_path}/teacher", f"--bert_config_file={data}/config.json"]))
    predicted = ["--do_predict", f"--test_data_path={data}/test.tsv", f"--output_dir={tmp_path}/run"]
    main(parse(settings, [
        *shared, *predicted, "--sweep", "--sweep_learning_rates=1e-3,1e-4", "--sweep_batch_sizes=4",
        "--sweep_epochs=1", f"--bert_config_file={data}/student.json", f"--teacher={tmp_path}/teacher",
        "--max_seq_length=32", "--distill_weight=0.3",
    ]))  # fmt: skip
    assert len(list(tmp_path.rglob("teacher/*.npy"))) == 1
    assert len(list((tmp_path / "run/trials").iterdir())) == 2
    (scores,) = tmp_path.rglob("evaluations/*/eval_results.txt")
    of_sweep = scores.read_text()
    main(parse(settings, ["--task_name=own", *predicted]))
    assert scores.read_text() == of_sweep
    convert_checkpoint(ConversionSettings(input=f"{tmp_path}/run", output=f"{tmp_path}/best", format="bert_tf"))
    assert (tmp_path / "best/thresholds.json").exists()
    with pytest.raises(InputError, match="run: is a sweep; give the folder of its best trial"):
        open_checkpoint(str(tmp_path / "run"))
