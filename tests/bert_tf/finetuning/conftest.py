"""Data of the task of `word_task.py`."""

import pytest

from tests.bert_tf.finetuning import word_task


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    word_task.write_inputs(folder)
    return folder
