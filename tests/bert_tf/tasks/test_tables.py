"""Tables of a user's own files."""

import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks import tables


@pytest.mark.parametrize(
    ("layout", "text", "expected"),
    [
        (tables.Layout("csv"), 'text\na\n""\n', ["a", ""]),
        (tables.Layout("csv"), 'text\r\na\r\n""\r\n\r\n', ["a", ""]),
        (tables.Layout("tsv"), "text\na\n\n", ["a", ""]),
        (tables.Layout("tsv"), "text\tlabel\na\tx\n\n\n", ["a"]),
    ],
)
def test_ignores_blank_last_lines_but_not_empty_cells(tmp_path, layout, text, expected):
    path = tmp_path / "a"
    path.write_bytes(text.encode())
    assert [cells[0] for _, cells in tables.read_columns(str(path), layout, ["text"]).rows] == expected


@pytest.mark.parametrize("extension", ["tsv", "csv"])
def test_old_mac_line_ends_are_named(tmp_path, extension):
    path = tmp_path / f"a.{extension}"
    path.write_bytes(b"text\rgood\rbad\r")
    with pytest.raises(InputError, match="line 1: has CR inside the line; save the file with LF or CRLF"):
        tables.read_columns(str(path), tables.Layout(extension), ["text"])


def test_doubled_quotes_of_a_tsv_from_pandas_are_named(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "a.tsv"
    texts = ["plain", 'she said "no" twice', '"quoted" and ""', "end"]
    pandas.DataFrame({"text": texts, "label": list("xyxy")}).to_csv(path, sep="\t", index=False)
    with pytest.raises(InputError, match="line 3: .* has doubled quotes inside; .* --quoted .*or --noquoted"):
        tables.read_columns(str(path), tables.Layout(quoted=None), ["text"])
    rows = tables.read_columns(str(path), tables.Layout(quoted=True), ["text"]).rows
    assert [cells[0] for _, cells in rows] == texts
    assert tables.read_columns(str(path), tables.Layout(quoted=False), ["text"]).rows[0][1] == ("plain",)
