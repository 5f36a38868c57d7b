import os

import pytest

from bert_tf.jobs.run_local import LocalRunner
from data_gen import shards
from data_gen.token_blocks import TokenBlock
from data_gen.work_units import TOKENS_PER_UNIT, WINDOW_BYTES, plan_units, window_around
from tfrecords import reader


class Stopped(Exception):
    pass


class StopsAt(LocalRunner):
    """A runner that fails before or after the given task of a function."""

    def __init__(self, function, count, after=False):
        super().__init__(1)
        self._name, self._left, self._after = function.__name__, count, after

    def map(self, function, tasks):
        for task in tasks:
            self._left -= getattr(function, "args", [function])[0].__name__ == self._name
            last = self._left == 0
            if last and not self._after:
                raise Stopped
            result = function(task)
            if last:
                raise Stopped
            yield result


@pytest.mark.parametrize("damage", [os.remove, lambda path: os.truncate(path, 100)])
def test_a_shard_lost_while_interrupted_is_remade(generator, damage):
    generator.run("a@4")
    expected = generator.files()
    for name in expected:
        os.remove(generator.folder / name)
    with pytest.raises(Stopped):
        generator.run("a@4", runner=StopsAt(shards.write_shard, 3))
    damage(generator.folder / "a-00001-of-00004")
    generator.run("a@4")
    found = generator.files()
    assert found.pop("a.manifest.json") and expected.pop("a.manifest.json")
    assert found == expected
    assert not list(reader.find_faults(str(generator.folder / "a.manifest.json")))


def test_finished_units_and_shards_are_not_made_again(generator, monkeypatch):
    with pytest.raises(Stopped):
        generator.run("a@12", runner=StopsAt(shards.write_shard, 7))
    finished = {name: bytes_ for name, bytes_ in generator.files().items() if name.startswith("a-")}
    assert len(finished) == 6
    made = []
    for function in (shards.make_unit, shards.write_shard):
        monkeypatch.setattr(shards, function.__name__, lambda task, f=function: (made.append(f.__name__), f(task))[1])
    generator.run("a@12")
    assert made == ["write_shard"] * 6
    assert finished.items() <= generator.files().items()
    assert not [name for name in generator.files() if ".work" in name]


def test_a_unit_that_was_cut_short_is_named(generator):
    with pytest.raises(Stopped):
        generator.run("a@2", runner=StopsAt(shards.write_shard, 1))
    for path in (generator.folder / "a.work" / "units").glob("*.tfrecord"):
        os.truncate(path, 100)
    with pytest.raises(OSError, match=r"a.work/units/000000-0000.tfrecord: shorter than when it was written"):
        generator.run("a@2")


def test_outputs_may_stand_in_several_folders(generator, read_rows):
    (generator.folder / "x").mkdir()
    first = generator.run("a,x/a,y/z/b")
    assert [shard.name for shard in first] == ["a", "x/a", "y/z/b"]
    path = generator.folder / "a.manifest.json"
    assert not list(reader.find_faults(str(path)))
    counts = [len(read_rows(generator.folder / name)) for name in ("a", "x/a", "y/z/b")]
    assert [shard.examples for shard in first] == counts
    before = path.stat().st_mtime_ns
    assert generator.run("a,x/a,y/z/b") == first
    assert path.stat().st_mtime_ns == before, "nothing to do"


def test_passes_are_split_if_too_large_for_memory():
    blocks = [TokenBlock("", 5, 5, tokens, 0, 4 * tokens) for tokens in (3 * TOKENS_PER_UNIT, 10)]
    units = [(unit.block, unit.first_pass, unit.last_pass) for unit in plan_units(blocks, 4)]
    assert units == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (1, 0, 4)]


def test_a_window_has_enough_text_and_two_documents():
    halves = [TokenBlock("", 9, 9, 10, 0, WINDOW_BYTES // 2)] * 7
    assert [window_around(halves, index) for index in (0, 3, 6)] == [range(2), range(2, 4), range(5, 7)]
    assert window_around([TokenBlock("", 1, 1, 10, 0, WINDOW_BYTES)] * 2, 1) == range(2)
