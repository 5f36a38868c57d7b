"""A set that does not fit on its disk is refused before the long work, by a close estimate."""

import collections
import os
import shutil

import pytest

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import LocalRunner
from data_gen import disk_space, examples, shards

Usage = collections.namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """A function that sets the free bytes of every disk."""
    return lambda size: monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 60, 0, size))


@pytest.fixture
def needs(monkeypatch, cut_text):
    """The estimate of each check."""
    found = []
    estimate = disk_space.estimate
    monkeypatch.setattr(disk_space, "estimate", lambda *args: found.append(estimate(*args)) or found[-1])
    cut_text(4000)
    return found


@pytest.mark.parametrize("changes", [{}, {"gzip_compress": True}, {"objective": "ltr", "dupe_factor": 7}])
def test_the_estimate_is_close_from_the_first_text_on(generator, needs, changes):
    written = sum(shard.bytes for shard in generator.run("a@2", **changes))
    assert len(needs) == 2
    # only a longer sample shows how much gzip saves
    assert [need.shards for need in needs] == pytest.approx([written] * 2, rel=0.4 if changes else 0.15)
    assert needs[0] != needs[1]
    if "gzip_compress" not in changes:
        assert [need.units for need in needs] == [need.shards for need in needs]


def test_a_disk_without_room_is_refused_before_the_work_and_nothing_stays(generator, needs, free, monkeypatch):
    free(60_000)
    made = []
    monkeypatch.setattr(shards, "make_unit", made.append)
    with pytest.raises(InputError, match=r"has 0\.1 MB free, but about 0\.2 MB are needed: 0\.1 MB for all"):
        generator.run("a@2")
    assert not made and len(needs) == 1 and not generator.files()


def test_finished_units_are_kept_for_when_there_is_room_and_count_as_room(generator, free):
    expected = generator.run("whole@2")
    size = sum(shard.bytes for shard in expected)
    for shard in expected:
        os.remove(generator.folder / shard.name)
    os.remove(generator.folder / "whole.manifest.json")

    class Stops(LocalRunner):
        def map(self, function, tasks):
            if function is shards.write_shard:
                raise InterruptedError
            return super().map(function, tasks)

    with pytest.raises(InterruptedError):
        generator.run("whole@2", runner=Stops(1))
    free(size // 4)
    with pytest.raises(InputError, match="free some space and run the same command again"):
        generator.run("whole@2")
    units = [name for name in generator.files() if name.endswith(".tfrecord")]
    assert units
    free(int(1.2 * size))  # enough for the missing files only
    assert generator.run("whole@2") == expected


def test_few_documents_give_no_estimate_and_are_not_refused(generator, tmp_path, free):
    corpus = tmp_path / "corpus"
    corpus.write_text("the of\n\nand to\n")
    assert disk_space.estimate([], 1.0, examples.SpecialTokens(2, 3, None), generator.settings(), "") is None
    free(1 << 20)
    assert generator.run(input_file=corpus)
