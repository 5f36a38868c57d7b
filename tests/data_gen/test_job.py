import os
import re
import shutil

import pytest

from bert_tf.jobs import job as jobs
from bert_tf.jobs import shard_names
from bert_tf.jobs.run_local import LocalRunner
from bert_tf.text.tokenizer_rules import SPECIAL_TOKENS, of_tokens
from data_gen import generator
from data_gen.settings import GeneratorSettings
from tests.kit import refused


def settings(**changes):
    return GeneratorSettings(**{"input_file": "a.txt", "output_file": "out", "vocab_file": "v", **changes})


def corpus(*contents):
    return [{"name": f"{i}.txt", "bytes": len(c), "fingerprint": c} for i, c in enumerate(contents)]


def make(folder, outputs=("out",), vocabulary="v1", texts=("abc",), **changes):
    rules = of_tokens([*SPECIAL_TOKENS, vocabulary], vocab_file="v")
    paths = [str(folder / name) for name in outputs]
    return generator.make_job(settings(**changes), paths, rules, corpus(*texts))


def begin(folder, *outputs, **changes):
    """Begins a run and leaves it unfinished."""
    begun = make(folder, *outputs, **changes)
    begun.open()
    begun.release()


@pytest.mark.parametrize(
    "changes, dupe_factor",
    [
        ({}, 10),
        ({"objective": "lm"}, 1),
        ({"masking": "dynamic"}, 1),
        ({"masking": "dynamic", "dupe_factor": 3}, 3),
    ],
)
def test_dupe_factor_defaults_to_one_without_masking(changes, dupe_factor):
    assert settings(**changes).dupe_factor == dupe_factor


@pytest.mark.parametrize(
    "output_file, paths",
    [
        ("a", ["a"]),
        (" a , x/b ,", ["a", "x/b"]),
        ("a@2", ["a-00000-of-00002", "a-00001-of-00002"]),
        ("a@1", ["a-00000-of-00001"]),
        ("u@h/a@2,b", ["u@h/a-00000-of-00002", "u@h/a-00001-of-00002", "b"]),
    ],
)
def test_output_paths(output_file, paths):
    assert shard_names.output_paths(output_file) == paths


@pytest.mark.parametrize("output_file", ["", " , ", "a@0", "a@100000", "a@-1", "a@abc", "a@", "@4", "x/@4", "b,u@h"])
def test_impossible_outputs_are_refused(output_file):
    refused("--output_file", shard_names.output_paths, output_file)


@pytest.mark.parametrize("removed", range(3))
@pytest.mark.core
def test_resumes_after_kill_during_folder_removal(tmp_path, monkeypatch, removed):
    unfinished = make(tmp_path)
    unfinished.open()
    for name in ("tokens", "units"):
        (tmp_path / "out.work" / name).mkdir()
    calls, remove = [], shutil.rmtree

    def rmtree(path):
        calls.append(path)
        if len(calls) > removed:
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(KeyboardInterrupt):
        unfinished.close()
    unfinished.release()
    monkeypatch.undo()
    make(tmp_path).open()
    assert (tmp_path / "out.work/plan.json").exists()


def entries(*paths):
    paths = [str(path) for path in paths]
    return jobs.corpus_entries(paths, LocalRunner(1))


def test_the_fingerprint_shows_any_changed_byte(tmp_path):
    data = bytes(range(35))
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"")
    first = entries(tmp_path / "a", tmp_path / "b")
    assert [(e["name"], e["bytes"]) for e in first] == [("a", 35), ("b", 0)]
    assert first[0]["fingerprint"] != first[1]["fingerprint"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a").write_bytes(data)
    assert entries(tmp_path / "c" / "a") == first[:1]
    for index in range(35):
        changed = bytearray(data)
        changed[index] ^= 1
        (tmp_path / "a").write_bytes(changed)
        assert entries(tmp_path / "a")[0]["fingerprint"] != first[0]["fingerprint"]


@pytest.mark.parametrize(
    "first, second, difference",
    [
        ({"max_seq_length": 64}, {}, "--max_seq_length was 64, is 128"),
        ({"masking": "dynamic"}, {}, "--dupe_factor was 1, is 10; --masking was 'dynamic', is 'static'"),
        ({"outputs": ["a", "b"]}, {"outputs": ["a", "b", "c"]}, "outputs number 3 (2 before, 3 now) was None, is 'c'"),
        ({"vocabulary": "v1"}, {"vocabulary": "v2"}, "vocab_sha256 was"),
        ({"texts": ["abc"]}, {"texts": ["abd"]}, "corpus number 1 was '3 bytes, abc', is '3 bytes, abd'"),
    ],
)
def test_another_unfinished_run_is_refused(tmp_path, first, second, difference):
    begin(tmp_path, **first)
    other = make(tmp_path, **second)
    refused(re.escape(f"an unfinished run with other settings ({difference}"), other.open)
    other.release()
    begin(tmp_path, **first)


def test_what_does_not_change_the_records_may_differ(tmp_path):
    begin(tmp_path)
    begin(tmp_path, input_file="elsewhere/a.txt", vocab_file="elsewhere/v", num_workers=7, runner="spark")


def test_another_recipe_is_another_set(tmp_path):
    begin(tmp_path)
    plan = tmp_path / "out.work/plan.json"
    plan.write_text(plan.read_text().replace('"recipe": 4', '"recipe": 1'))
    refused("recipe was 1, is 4", make(tmp_path).open)


def test_refuses_second_run_until_first_releases(tmp_path):
    first, second = make(tmp_path), make(tmp_path)
    first.open()
    refused("another run is writing this set", second.open)
    second.release()
    assert os.path.exists(first.folder + "/plan.json"), "the first one's folder stays"
    first.release()
    second.open()
    second.close()
    assert os.listdir(tmp_path) == []


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    names = ["out[1]", "other"]
    keep = ["out[1]x.tmp-1", "out1.tmp-1", "third.tmp-1", "x.manifest.json.tmp-1", "tmp-1"]
    gone = ["out[1].tmp-1", "other.tmp-123", "out[1].manifest.json.tmp-9"]
    begin(tmp_path, names)
    for name in keep + gone:
        (tmp_path / name).write_text("")
    make(tmp_path, names).open()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*keep, "out[1].work"])


def test_a_folder_of_the_user_stays(tmp_path):
    notes = tmp_path / "out.work/notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    make(tmp_path).clear()
    assert notes.read_text() == "mine"
    refused("contains notes.txt and no plan of a run", make(tmp_path).open)
    notes.unlink()
    make(tmp_path).clear()
    assert not notes.parent.exists()
