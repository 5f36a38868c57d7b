"""Reads files with each kind of task, for tests of the files that users have."""

from bert_tf.rows import files
from bert_tf.rows.delimited import Layout
from bert_tf.tasks.choice.choice_files import choice_data
from bert_tf.tasks.classification.own_data import COLUMN_FLAGS, table_data
from bert_tf.tasks.embeddings.data import text_data
from bert_tf.tasks.questions.squad_source import question_data
from bert_tf.tasks.tagging.conll_files import WordColumns
from bert_tf.tasks.tagging.tagging_data import TaggedFiles

FLAGS = dict(zip(COLUMN_FLAGS, ("text", "", "label", True, None, ","), strict=True))


def texts(data_dir, paths, kind="classification", id="", **flags):
    return table_data(FLAGS | flags, data_dir, paths, kind, id=id).data


def tagged(data_dir, paths, columns=(0, -1), **options):
    return TaggedFiles(WordColumns(*columns), **options).data(data_dir, paths)


DATA = {
    "classification": texts,
    "choice": choice_data,
    "tagging": tagged,
    "embeddings": text_data,
    "questions": lambda data_dir, paths, has_unanswerable=False: question_data(paths, has_unanswerable),
}


def read(kind, path, split="train", /, **options):
    """Returns the examples of a file."""
    return DATA[kind]("", {split: (str(path),)}, **options).read(split)


def cells(path, *columns, **layout):
    """Returns the cells of columns of a file, or all rows."""
    rows = files.rows(str(path), {name: name for name in columns} or None, layout=Layout(**layout))
    return [tuple(row.values()) if columns else row for _, row in rows]
