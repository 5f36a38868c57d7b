import os

import pytest

from data_gen import shards
from data_gen.run_local import LocalRunner
from tfrecords import manifest


class Stopped(Exception):
    pass


class StopsAt(LocalRunner):
    """A runner that fails before or after the given task of a function."""

    def __init__(self, function, count, after=False):
        super().__init__(1)
        self._name, self._left, self._after = function.__name__, count, after

    def map(self, function, tasks):
        for task in tasks:
            self._left -= function.__name__ == self._name
            last = self._left == 0
            if last and not self._after:
                raise Stopped
            result = function(task)
            if last:
                raise Stopped
            yield result


class Twice(LocalRunner):
    """A runner that does every task twice, the second time after all were done once, as a cluster may."""

    def map(self, function, tasks):
        tasks = list(tasks)
        for task in tasks:
            function(task)
        yield from map(function, tasks)


def test_tasks_may_be_done_twice(generator):
    generator.run("a@3", random_seed=1)
    generator.run("b@3", random_seed=1, runner=Twice(1))
    files = generator.files()
    for shard in range(3):
        assert files[f"a-0000{shard}-of-00003"] == files[f"b-0000{shard}-of-00003"]
    assert len(files) == 8


@pytest.mark.parametrize("damage", [os.remove, lambda path: os.truncate(path, 100)])
def test_a_shard_that_goes_while_the_run_is_interrupted_is_made_again(generator, damage, monkeypatch):
    monkeypatch.setattr(shards, "_UNITS_PER_GROUP", 1)
    generator.run("a@4")
    expected = generator.files()
    for name in expected:
        os.remove(generator.folder / name)
    with pytest.raises(Stopped):
        generator.run("a@4", runner=StopsAt(shards.join_units, 3))
    damage(generator.folder / "a-00001-of-00004")
    generator.run("a@4")
    found = generator.files()
    assert found.pop("a.manifest.json") and expected.pop("a.manifest.json")
    assert found == expected
    assert not list(manifest.find_faults(str(generator.folder / "a.manifest.json")))


def test_units_go_as_soon_as_their_shards_are_there(generator, monkeypatch):
    monkeypatch.setattr(shards, "_UNITS_PER_GROUP", 1)
    with pytest.raises(Stopped):
        generator.run("a@12", runner=StopsAt(shards.join_units, 7))
    finished = [name for name in generator.files() if name.startswith("a-")]
    units = [name for name in generator.files() if name.startswith("a.work/units/")]
    assert len(finished) == 6
    # four units a worker make a group: the first one's are gone, the third one's not there yet
    assert len(units) == 2 * 4


def test_outputs_may_stand_in_several_folders(generator, read_rows):
    (generator.folder / "x").mkdir()
    first = generator.run("a,x/a,y/z/b")
    assert [shard.name for shard in first] == ["a", "x/a", "y/z/b"]
    path = generator.folder / "a.manifest.json"
    assert not list(manifest.find_faults(str(path)))
    counts = [len(read_rows(generator.folder / name)) for name in ("a", "x/a", "y/z/b")]
    assert [shard.examples for shard in first] == counts
    before = path.stat().st_mtime_ns
    assert generator.run("a,x/a,y/z/b") == first
    assert path.stat().st_mtime_ns == before, "nothing to do"
