"""A flag that has no effect on a task's data is refused, for any kind of data."""

import dataclasses

import pytest

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.tasks.classification.memory_source import memory_source
from bert_tf.tasks.classification.settings import IN_MEMORY, ClassifierSettings
from tests.bert_tf.tasks_of_flags import find_task

OWN_FILES = ("has_header=false", "quoted=true", "multi_label=true", "id_column=id", "data_format=csv")
COLUMNS = ("text_a_column=a", "text_b_column=b", "label_column=c", "regression=true", "predictions_with_texts=true")
CLASSES = ("labels=x,y", "label_file=labels.txt", "class_weights=balanced")
PATHS = ("train_data_path=a.tsv", "eval_data_path=b.tsv", "test_data_path=c.tsv")
SETS, LANGUAGE = ("label_separator=;",), ("xnli_language=de",)
TFDS_FLAGS = ("tfds_splits=a,b,c",)
ALL = (*OWN_FILES, *COLUMNS, *CLASSES, *PATHS, *SETS, *LANGUAGE, *TFDS_FLAGS)


def refused(data, flag, source=None, **changes):
    """Returns the error message about a flag; "" if the flag is not refused for having no effect."""
    try:
        settings = parse(ClassifierSettings, ["--output_dir=o", "--do_train", *data, f"--{flag}"])
        find_task(dataclasses.replace(settings, **changes), source)
    except InputError as error:
        return str(error) if str(error).startswith(f"--{flag.partition('=')[0]}=") and "; drop" in str(error) else ""
    return ""


@pytest.mark.parametrize(
    ("data", "readers", "name"),
    [
        (["--task_name=MRPC", "--data_dir=d"], (), "--task_name=MRPC"),
        (["--task_name=AX", "--data_dir=d"], (), "--task_name=AX"),
        (["--task_name=xnli", "--data_dir=d"], LANGUAGE, "--task_name=xnli"),
        (["--task_name=own", "--data_dir=d"], (*OWN_FILES, *COLUMNS, *CLASSES, *PATHS), "--task_name=own"),
        (
            ["--task_name=own", "--data_dir=d", "--multi_label"],
            (*OWN_FILES, *COLUMNS, *CLASSES, *PATHS, *SETS),
            "--task_name=own",
        ),
        (
            ["--input_meta_data_path=m.json", "--train_data_path=t", "--do_eval", "--eval_data_path=e"],
            PATHS,
            "--input_meta_data_path",
        ),
    ],
)
def test_each_data_takes_its_flags_and_refuses_the_others(data, readers, name):
    for flag in ALL:
        message = refused(data, flag)
        assert bool(message) == (flag not in readers), (flag, message)
        if message:
            assert f", not for {name}; drop the flag" in message


def test_texts_in_memory_and_prepared_sets_refuse_them_too(monkeypatch):
    source = memory_source(["a", "b"], ["x", "y"], None)
    for flag in (*OWN_FILES, *COLUMNS, *SETS, *LANGUAGE):
        assert "not for texts in memory" in refused([f"--task_name={IN_MEMORY}"], flag, source), flag
    for flag in (*OWN_FILES, *SETS, *LANGUAGE):
        assert "not for --tfds_name" in refused(["--tfds_name=imdb_reviews"], flag), flag


def test_every_flag_of_own_data_says_who_reads_it():
    flags = [flag.partition("=")[0] for flag in ALL]
    for field in dataclasses.fields(ClassifierSettings):
        of_own = field.metadata["help"].startswith(("own ", "--task_name=XNLI", "--tfds_name"))
        assert bool(field.metadata["read_by"]) == (field.name in flags)
        assert not of_own or field.name in flags
