"""A flag that differs from the run in the folder: refused if the model or its inputs depend on it, else used."""

import pytest

from bert_tf.core.command_line import parse
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings
from tests.bert_tf.tasks_of_flags import choice_task, find_task, squad_task, tagging_task
from tests.kit import refused

COLUMNS = {"text_a_column": "title", "text_b_column": "", "label_column": "label", "has_header": True, "quoted": None}
WORDS = {"word_column": 0, "tag_column": -1, "tag_scheme": "iob1", "repair_tags": True}
READING = {"pooling": "mean", "long_text": "window", "window_stride": 3}
CLASSIFIER = TaskDescription("classification", "own", ("a", "b"), 24, {"has_pairs": False, **READING}, COLUMNS)
SQUAD = TaskDescription(
    "questions", "squad", (), 24, {"version_2_with_negative": True}, {"doc_stride": 16, "max_query_length": 8}
)
NER = TaskDescription(
    "tagging", "NER", ("O", "B-PER", "I-PER"), 24, {"tag_scheme": "iob1", "document_context": False}, WORDS
)
SWAG = TaskDescription("choice", "SWAG", (), 24, {})
# Kind of task: settings class, flags that name the data, function that makes the task, record of the run.
KINDS = {
    "classification": (ClassifierSettings, ["--task_name=own", "--data_dir={}"], find_task, CLASSIFIER),
    "questions": (SquadSettings, ["--train_file={}/a.json", "--predict_file={}/b.json"], squad_task, SQUAD),
    "tagging": (NerSettings, ["--data_dir={}"], tagging_task, NER),
    "choice": (SwagSettings, ["--data_dir={}"], choice_task, SWAG),
}


@pytest.fixture
def task_of(tmp_path):
    """Makes the task of a kind from flags, in the folder of a trained run."""
    (tmp_path / "ckpt-1.index").write_text("")

    def make(kind, *flags):
        settings, data, make_task, record = KINDS[kind]
        description.write(str(tmp_path), record)
        given = [f"--output_dir={tmp_path}", *(flag.format(tmp_path) for flag in data)]
        return make_task(parse(settings, [*given, "--do_train" if "--do_train" in flags else "--do_predict", *flags]))

    return make


@pytest.mark.parametrize(
    ("kind", "flag", "trained"),
    [
        ("classification", "--pooling=max", "mean"),
        ("classification", "--long_text=truncate", "window"),
        ("classification", "--window_stride=4", "3"),
        ("classification", "--dev_share=0.1", "none"),
        ("questions", "--version_2_with_negative=False", "True"),
        ("questions", "--doc_stride=32", "16"),
        ("questions", "--max_query_length=9", "8"),
        ("tagging", "--document_context=True", "False"),
        ("tagging", "--dev_share=0.1", "none"),
        ("choice", "--dev_share=0.1", "none"),
    ],
)
def test_a_flag_of_the_model_or_its_inputs_is_refused(task_of, tmp_path, kind, flag, trained):
    message = refused("was trained with", task_of, kind, flag)
    assert message == f"{flag}: {tmp_path} was trained with {trained}; leave the flag out"


@pytest.mark.parametrize(
    ("kind", "flag", "used"),
    [
        ("classification", "--text_a_column=body", {"text_a_column": "body"}),
        ("classification", "--quoted=True", {"quoted": True}),
        ("tagging", "--word_column=1", {"word_column": 1}),
        ("tagging", "--tag_scheme=auto", {"tag_scheme": "auto"}),
        ("tagging", "--repair_tags=False", {"repair_tags": False}),
    ],
)
def test_a_flag_that_says_how_a_file_is_read_is_used(task_of, kind, flag, used):
    recorded = KINDS[kind][3].data
    assert task_of(kind).parameters.items() >= KINDS[kind][3].parameters.items()
    assert recorded.items() <= task_of(kind).data_facts().items()
    assert (recorded | used).items() <= task_of(kind, flag).data_facts().items()


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("classification", "--pooling=max"), ("questions", "--doc_stride=9"), ("tagging", "--word_column=1")],
)
def test_training_compares_only_the_runs_identity(task_of, caplog, kind, flag):
    name, value = flag[2:].split("=")
    task = task_of(kind, "--do_train", flag)
    assert str({**task.parameters, **task.data_facts()}[name]) == value and "was trained with" not in caplog.text
