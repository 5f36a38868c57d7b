"""Documents in Parquet files that pandas and PyArrow write."""

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import LocalRunner
from data_gen import documents
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings
from data_gen.words import count_words

TEXTS = [f"The man said {number}. He had it\nall of it" for number in range(300)] + ["", None]


@pytest.fixture
def path(tmp_path):
    """A file with several row groups, as `datasets` and Spark write them."""
    table = pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})
    pyarrow.parquet.write_table(table, tmp_path / "dump.parquet", row_group_size=100)
    return str(tmp_path / "dump.parquet")


def read(path, **how):
    sources = documents.plan_sources(path, "parquet")
    return [one for source in sources for chunk in documents.read_documents(source, "parquet", **how) for one in chunk]


def test_each_row_is_a_document(path):
    assert len(documents.plan_sources(path, "parquet")) == 4
    found = read(path)
    assert found == [[f"The man said {n}.", "He had it", "all of it"] for n in range(300)] + [[], []]
    assert read(path, chunk_bytes=1000) == found


def test_rows_are_split_by_the_rules_of_a_language(tmp_path):
    path = str(tmp_path / "czech.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["Je to tj. Praha."]}), path)
    assert read(path, language="cs") == [["Je to tj. Praha."]]
    assert read(path) == [["Je to tj.", "Praha."]]


def test_a_row_group_after_an_empty_one_is_read(tmp_path):
    table = pyarrow.table({"text": ["One here.", "Two here."]})
    path = str(tmp_path / "filtered.parquet")
    with pyarrow.parquet.ParquetWriter(path, table.schema, use_dictionary=False) as file:
        for rows in (table[:1], table[:0], table[1:]):
            file.write_table(rows)
    assert read(path) == [["One here."], ["Two here."]]


def test_a_file_of_pandas_gives_the_same_documents(tmp_path, path):
    pandas.DataFrame({"title": "a", "text": TEXTS[:-1]}).to_parquet(tmp_path / "pandas.parquet")
    assert read(str(tmp_path / "pandas.parquet")) == read(path)[:-1]


def test_records_equal_those_of_json_lines(tmp_path, path, vocab_file):
    pandas.DataFrame({"text": TEXTS[:-1]}).to_json(tmp_path / "dump.jsonl", orient="records", lines=True)
    made = {}
    for form in ("parquet", "jsonl"):
        settings = GeneratorSettings(
            input_file=f"{tmp_path}/dump.{form}", output_file=f"{tmp_path}/{form}.tfrecord",
            vocab_file=vocab_file, max_seq_length=32, max_predictions_per_seq=5, dupe_factor=1,
        )  # fmt: skip
        with LocalRunner(1) as runner:
            create_pretraining_data(settings, runner)
        made[form] = (tmp_path / f"{form}.tfrecord").stat().st_size
    assert abs(made["parquet"] - made["jsonl"]) < 0.02 * made["jsonl"], "the blocks, so the draws, differ"
    counts = [count_words([f"{tmp_path}/dump.{form}"], True, 10**6, form).counts for form in made]
    assert counts[0] == counts[1]


def test_other_files_and_columns_are_named(tmp_path, path):
    with pytest.raises(InputError, match="dump.parquet: has no column 'body'; give one of .*--text_field: id, text"):
        read(path, text_field="body")
    with pytest.raises(InputError, match="dump.parquet: field 'id' must be a string or a list of strings"):
        read(path, text_field="id")
    (tmp_path / "text.parquet").write_text("no Parquet file, but a text of some length")
    with pytest.raises(InputError, match="text.parquet: is not a Parquet file, or is damaged"):
        read(str(tmp_path / "text.parquet"))
