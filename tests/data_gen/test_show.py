import json
import os
import pathlib
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core import vocabulary_file
from bert_tf.core.flag_parsing import exit_code
from data_gen import show
from tests.kit import refused
from tests.tfrecords.record_files import write_file
from tfrecords import manifest, records, schema

ROOT = pathlib.Path(show.__file__).resolve().parents[1]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "went", "##ing", "home", "said"]


def columns(masked, pairs, rows=3):
    """[CLS] he [MASK]<went ##ing [SEP] said<home said= [SEP]; without pairs, there is no second segment."""
    ids = [2, 5, 4, 7, 3, 9, 9, 3, 0, 0] if pairs else [2, 5, 4, 7, 3, 0, 0, 0, 0, 0]
    values = {
        "input_ids": ids,
        "input_mask": [int(i > 0) for i in ids],
        "segment_ids": [0] * 5 + [int(i > 0) for i in ids[5:]],
    }
    if masked:
        predictions = ([2, 5, 6, 0], [6, 8, 9, 0], [1, 1, 1, 0])
        if not pairs:
            predictions = ([2, 0, 0, 0], [6, 0, 0, 0], [1, 0, 0, 0])
        values |= dict(zip(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), predictions, strict=True))
    if pairs:
        values["next_sentence_labels"] = [1]
    return {name: np.array([row] * rows) for name, row in values.items()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return tmp_path


def record_file(path, masked=True, pairs=True, packed=False):
    features = schema.pretraining_features(10, 4, masked=masked, next_sentence=pairs)
    write_file(str(path), records.serialize(columns(masked, pairs), features), packed)
    return str(path)


A, B = "  A: [CLS] he {[MASK]<went}ing [SEP]", "  B: {said<home} {=said} [SEP]"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "masked, pairs, lines",
    [
        (True, True, ["8 of 10 tokens, 3 predicted, B is random", A, B]),
        (True, False, ["5 of 10 tokens, 1 predicted", A]),
        (
            False,
            True,
            ["8 of 10 tokens, not masked, B is random", "  A: [CLS] he [MASK]ing [SEP]", "  B: said said [SEP]"],
        ),
        (False, False, ["5 of 10 tokens, not masked", "  A: [CLS] he [MASK]ing [SEP]"]),
    ],
)
def test_every_kind_of_data_is_shown(folder, capsys, packed, masked, pairs, lines):
    path = record_file(folder / "data", masked, pairs, packed)
    show.show(path, VOCABULARY, first=1, count=1)
    assert capsys.readouterr().out == "\n".join([f"{path}, record 1: {lines[0]}", *lines[1:], "", ""])


def test_first_and_count_choose_the_records(folder, capsys):
    path = record_file(folder / "data")
    show.show(path, VOCABULARY, first=1, count=9)
    assert re.findall(r"record (\d)", capsys.readouterr().out) == ["1", "2"]
    refused("data: has 3 record.s., so there is no record at --first=3", show.show, path, VOCABULARY, first=3, count=1)


def test_records_before_a_damaged_one_are_shown(folder, capsys):
    path = record_file(folder / "data")
    content = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(content[:-3])
    show.show(path, VOCABULARY, first=0, count=2)
    assert re.findall(r"record (\d)", capsys.readouterr().out) == ["0", "1"]
    refused(r"data: record 2 \(counted from 0\) is cut off", show.show, path, VOCABULARY, first=0, count=3)


def example(**lists):
    features = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids)) for name, ids in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


@pytest.mark.parametrize(
    "lists, message",
    [
        ({"label_ids": [1]}, r"x: has no input_ids \(found: label_ids\)"),
        ({"input_ids": [2, 10]}, "x: contains id 10, but the vocabulary has 10 tokens; give the --vocab_file"),
        (
            {"input_ids": [2], "masked_lm_positions": [0], "masked_lm_ids": [11], "masked_lm_weights": [1]},
            "contains id 11",
        ),
    ],
)
def test_records_that_are_something_else_are_refused(lists, message):
    refused(message, show.describe, example(**lists), VOCABULARY, "x")


@pytest.fixture
def shown(folder, monkeypatch, capsys):
    """Runs the script with arguments in a folder; returns its exit code and its output."""
    monkeypatch.chdir(folder)

    def run(*words, vocab_file=""):
        given = types.SimpleNamespace(vocab_file=vocab_file, first=0, num_examples=1)
        monkeypatch.setattr(show.flags, "FLAGS", given)
        return exit_code(lambda: show.main(words)), *capsys.readouterr()

    return run


def test_the_manifest_leads_to_the_vocabulary(folder, shown):
    record_file(folder / "data")
    manifest.write(str(folder / "data.manifest.json"), {"vocab_file": str(folder / "vocab.txt")}, [])
    code, output, error = shown("data")
    assert (code, error) == (0, "") and output.splitlines()[1:] == [A, B, ""]


def test_another_vocabulary_than_the_datas_is_refused(folder, shown):
    record_file(folder / "data")
    sha256 = vocabulary_file.tokens_sha256(VOCABULARY)
    manifest.write(str(folder / "data.manifest.json"), {"vocab_file": "gone.txt"}, [], vocab_sha256=sha256)
    (folder / "crlf.txt").write_bytes("".join(f"{token}\r\n" for token in VOCABULARY).encode())
    (folder / "other.txt").write_text("".join(f"{token}\n" for token in [*VOCABULARY[:-1], "asked"]))
    assert shown("data", vocab_file="crlf.txt")[1].splitlines()[1:] == [A, B, ""]
    (folder / "model").mkdir()
    (folder / "model/vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY[:-1]))
    (folder / "model/added_tokens.json").write_text(json.dumps({VOCABULARY[-1]: len(VOCABULARY) - 1}))
    assert shown("data", vocab_file="model")[1].splitlines()[1:] == [A, B, ""]
    refused = shown("data", vocab_file="other.txt")[2]
    assert "other.txt: is not the vocabulary that data was made with (gone.txt, SHA-256" in refused
    assert "the vocabulary of its manifest, gone.txt, is missing; give --vocab_file" in shown("data")[2]


def test_bad_input_is_one_line(folder, shown):
    record_file(folder / "data")
    (folder / "data.manifest.json").write_text('{"settings": {}, "shards": []}')
    code, _, error = shown("data", "data.manifest.json")
    assert code == 1 and error == "error: data: no manifest names its vocabulary; give --vocab_file\n"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(folder):
    """Runs the script by its path from another folder than the checkout."""
    features = schema.pretraining_features(10, 4)
    write_file(str(folder / "data"), records.serialize(columns(True, True, rows=1000), features))
    read, write = os.pipe()
    os.close(read)  # like head after its last line
    program = [sys.executable, str(ROOT / "data_gen" / "show.py"), "data", "--num_examples=1000"]
    done = subprocess.run(
        [*program, "--vocab_file=vocab.txt"], cwd=folder, env={**os.environ, "PYTHONPATH": ""}, text=True,
        stdout=write, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
