"""SIGKILL at every event of a run on the file system; see `killable.py` for events."""

import pathlib
import random
import signal

import pytest

from tests.killable import Server
from tfrecords import reader

pytestmark = pytest.mark.slow
KILLED = -signal.SIGKILL
WORDS = "the of and to in a is that for it as was with be by on".split()


def corpus(documents, start=0):
    """Writes documents of four sentences with words of the vocabulary."""
    sentences = ((start + 3 * d + 5 * s for s in range(4)) for d in range(documents))
    return "\n\n".join("\n".join(" ".join(WORDS[(i + k) % 16] for k in range(6)) for i in d) for d in sentences)


@pytest.fixture(scope="module")
def generate(vocab_file, tmp_path_factory):
    """A function that runs the generator, killed at an event or not, and returns its exit code."""
    server, count_file = Server(tmp_path_factory.mktemp("server")), tmp_path_factory.mktemp("count") / "count"

    def run(folder, kill_at=0):
        settings = {
            "input_file": str(folder / "corpus"), "vocab_file": vocab_file, "output_file": str(folder / "out@2"),
            "max_seq_length": 16, "max_predictions_per_seq": 3, "dupe_factor": 2,
        }  # fmt: skip
        return server.do("generate", settings, event=kill_at, count_file=str(count_file))

    run.count_file = count_file
    yield run
    server.close()


def folder_with(path, text):
    path.mkdir()
    (path / "corpus").write_text(text)
    return path


def shards(folder):
    return {path.name: path.read_bytes() for path in folder.glob("out-*-of-00002")}


@pytest.fixture(scope="module")
def whole(generate, tmp_path_factory):
    """The shards of an undisturbed run, and its number of events."""
    folder = folder_with(tmp_path_factory.mktemp("whole") / "a", corpus(8))
    assert generate(folder) == 0
    return shards(folder), int(pathlib.Path(generate.count_file).read_text())


def assert_nothing_half(folder, expected):
    found = shards(folder)
    assert found == {name: expected[name] for name in found}
    path = folder / "out.manifest.json"
    if path.exists():
        assert list(reader.find_faults(str(path))) == []


def assert_finished(folder, expected):
    assert shards(folder) == expected
    assert list(reader.find_faults(str(folder / "out.manifest.json"))) == []
    assert {path.name for path in folder.iterdir()} == {"corpus", "out.manifest.json", *expected}


def test_a_kill_at_any_step_leaves_nothing_half(generate, whole, tmp_path):
    expected, steps = whole
    assert steps > 50
    for kill_at in range(1, steps + 1):
        folder = folder_with(tmp_path / str(kill_at), corpus(8))
        assert generate(folder, kill_at) == KILLED
        assert_nothing_half(folder, expected)
        assert generate(folder) == 0, f"killed at event {kill_at}"
        assert_finished(folder, expected)


@pytest.mark.parametrize("seed", range(4))
def test_kill_after_kill(generate, whole, tmp_path, seed):
    expected, _ = whole
    numbers = random.Random(seed)
    folder = folder_with(tmp_path / "a", corpus(8))
    kills = 0
    while generate(folder, numbers.randint(1, 20)) == KILLED:
        assert_nothing_half(folder, expected)
        kills += 1
        assert kills < 500
    assert kills > 1
    assert_finished(folder, expected)


def test_killed_runs_do_not_mix_with_other_corpora(generate, whole, tmp_path):
    _, steps = whole
    other = folder_with(tmp_path / "other", corpus(8, start=7))
    assert generate(other) == 0
    refused = 0
    for kill_at in range(1, steps + 1):
        folder = folder_with(tmp_path / str(kill_at), corpus(8))
        assert generate(folder, kill_at) == KILLED
        # A user starts again: finished files are deleted, but files with unknown names are kept.
        for path in folder.glob("out[-.][0m]*"):
            path.unlink()
        (folder / "corpus").write_text(corpus(8, start=7))
        if generate(folder) == 0:
            assert shards(folder) == shards(other), f"killed at event {kill_at}"
        else:
            refused += 1
            assert (folder / "out.work" / "plan.json").exists() and not (folder / "out.manifest.json").exists()
    assert 0 < refused < steps


def test_kills_during_refusal_leave_nothing(generate, whole, tmp_path):
    expected, _ = whole
    for kill_at in range(1, 200):
        folder = folder_with(tmp_path / str(kill_at), corpus(1))
        ended = generate(folder, kill_at)
        (folder / "corpus").write_text(corpus(8))
        mended = generate(folder) == 0
        if mended:
            assert shards(folder) == expected, f"killed at event {kill_at}"
        if ended != KILLED:
            break
    assert ended and mended and kill_at > 10
