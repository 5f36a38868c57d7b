"""Tab-separated files to examples of one or two texts."""

import dataclasses

from bert_tf.finetuning.tasks import tables
from bert_tf.finetuning.tasks.classification import Example
from tfrecords.errors import InputError


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file, by their name in the header or by their number from 0.

    Attributes:
      text_a: column of the first or only text.
      text_b: column of the second text; None for none.
      label: column of the label; None in test files.
      has_header: whether the first line names the columns.
    """

    text_a: str
    text_b: str | None = None
    label: str | None = None
    has_header: bool = True


def read_examples(path: str, columns: Columns) -> list[tuple[int, Example]]:
    """Reads a tab-separated file; quotes are text, as in GLUE's files.

    Returns:
      The number of the line on which each example starts, from 1, and the example.

    Raises:
      InputError: the file is missing, empty, not UTF-8 or lacks a column; or a line has another number of columns than
        the first, or an empty label.
    """
    wanted = {"text_a": columns.text_a, "text_b": columns.text_b, "label": columns.label}
    wanted = {field: column for field, column in wanted.items() if column is not None}
    layout = tables.Layout("tsv", columns.has_header)
    examples = []
    for line, cells in tables.read_columns(path, layout, tuple(wanted.values())):
        found = {"text_b": None, "label": None, **dict(zip(wanted, cells, strict=True))}
        if found["label"] is not None:
            found["label"] = found["label"].strip()
        if found["label"] == "":
            raise InputError(f"{path}, line {line}: the label is empty; remove the line, or give it a label")
        examples.append((line, Example(**found)))
    return examples
