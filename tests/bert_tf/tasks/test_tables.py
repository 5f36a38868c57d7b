"""Tables of a user's own files."""

import pytest

from bert_tf.tasks import tables


@pytest.mark.parametrize(("quoted", "format"), [(None, "tsv"), (False, "tsv"), (None, "csv")])
def test_a_file_of_a_heading_alone_has_no_rows(tmp_path, quoted, format):
    path = tmp_path / f"a.{format}"
    path.write_text("text\n")
    assert tables.read_columns(str(path), tables.Layout(format, quoted=quoted), ["text"]).rows == []
