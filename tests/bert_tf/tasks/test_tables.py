"""Tables of a user's own files."""

import pytest

from bert_tf.tasks import tables


@pytest.mark.parametrize(("quoted", "format"), [(None, "tsv"), (False, "tsv"), (None, "csv")])
def test_a_file_of_a_heading_alone_has_no_rows(tmp_path, quoted, format):
    path = tmp_path / f"a.{format}"
    path.write_text("text\n")
    assert tables.read_columns(str(path), tables.Layout(format, quoted=quoted), ["text"]).rows == []


@pytest.mark.parametrize(
    ("layout", "text", "expected"),
    [
        (tables.Layout("csv"), 'text\na\n""\n', ["a", ""]),
        (tables.Layout("csv"), 'text\r\na\r\n""\r\n\r\n', ["a", ""]),
        (tables.Layout("tsv", quoted=True), 'text\na\n""\n\n', ["a", ""]),
        (tables.Layout("tsv"), "text\na\n\n", ["a", ""]),
        (tables.Layout("csv"), "text,label\na,x\n\n\n", ["a"]),
        (tables.Layout("tsv"), "text\tlabel\na\tx\n\n\n", ["a"]),
    ],
)
def test_blank_lines_at_the_end_are_no_texts_but_empty_cells_are(tmp_path, layout, text, expected):
    path = tmp_path / "a"
    path.write_bytes(text.encode())
    assert [cells[0] for _, cells in tables.read_columns(str(path), layout, ["text"]).rows] == expected
