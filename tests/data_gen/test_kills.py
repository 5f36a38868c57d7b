"""SIGKILL at every step of a run on the file system; see `kill_driver.py` for steps."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

from tfrecords import reader

pytestmark = pytest.mark.slow
WORDS = "the of and to in a is that for it as was with be by on".split()


def corpus(documents, start=0):
    """Writes documents of four sentences with words of the vocabulary."""
    sentences = ((start + 3 * d + 5 * s for s in range(4)) for d in range(documents))
    return "\n\n".join("\n".join(" ".join(WORDS[(i + k) % 16] for k in range(6)) for i in d) for d in sentences)


class Driver:
    """The process that forks the generator."""

    def __init__(self, vocab_file):
        self.vocab_file = vocab_file
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("kill_driver.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        )  # fmt: skip

    def run(self, folder, kill_at=None, trace=None):
        """Returns whether a run finished: False if it was killed at its step, None if it raised an error."""
        settings = {
            "input_file": str(folder / "corpus"), "vocab_file": self.vocab_file, "output_file": str(folder / "out@2"),
            "max_seq_length": 16, "max_predictions_per_seq": 3, "dupe_factor": 2,
        }  # fmt: skip
        request = {"settings": settings, "kill_at": kill_at, "trace": str(trace or os.devnull)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return False
        return True if os.waitstatus_to_exitcode(status) == 0 else None


@pytest.fixture(scope="module")
def driver(vocab_file):
    found = Driver(vocab_file)
    yield found
    found.process.communicate()


def folder_with(path, text):
    path.mkdir()
    (path / "corpus").write_text(text)
    return path


def shards(folder):
    return {path.name: path.read_bytes() for path in folder.glob("out-*-of-00002")}


@pytest.fixture(scope="module")
def whole(driver, tmp_path_factory):
    """The shards of an undisturbed run, and its number of steps."""
    folder = folder_with(tmp_path_factory.mktemp("whole") / "a", corpus(8))
    assert driver.run(folder, trace=folder / "trace")
    return shards(folder), len((folder / "trace").read_text().splitlines())


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


def test_a_kill_at_any_step_leaves_nothing_half(driver, whole, tmp_path):
    expected, steps = whole
    assert steps > 80
    for kill_at in range(1, steps + 1):
        folder = folder_with(tmp_path / str(kill_at), corpus(8))
        assert driver.run(folder, kill_at) is False
        assert_nothing_half(folder, expected)
        assert driver.run(folder), f"killed at step {kill_at}"
        assert_finished(folder, expected)


@pytest.mark.parametrize("seed", range(4))
def test_kill_after_kill(driver, whole, tmp_path, seed):
    expected, _ = whole
    numbers = random.Random(seed)
    folder = folder_with(tmp_path / "a", corpus(8))
    kills = 0
    while driver.run(folder, numbers.randint(1, 40)) is False:
        assert_nothing_half(folder, expected)
        kills += 1
        assert kills < 500
    assert kills > 1
    assert_finished(folder, expected)


def test_killed_runs_do_not_mix_with_other_corpora(driver, whole, tmp_path):
    _, steps = whole
    other = folder_with(tmp_path / "other", corpus(8, start=7))
    assert driver.run(other)
    refused = 0
    for kill_at in range(1, steps + 1):
        folder = folder_with(tmp_path / str(kill_at), corpus(8))
        assert driver.run(folder, kill_at) is False
        # A user starts again: finished files are deleted, but files with unknown names are kept.
        for path in folder.glob("out[-.][0m]*"):
            path.unlink()
        (folder / "corpus").write_text(corpus(8, start=7))
        if driver.run(folder):
            assert shards(folder) == shards(other), f"killed at step {kill_at}"
        else:
            refused += 1
            assert (folder / "out.work" / "plan.json").exists() and not (folder / "out.manifest.json").exists()
    assert 0 < refused < steps


def test_kills_during_refusal_leave_nothing(driver, whole, tmp_path):
    expected, _ = whole
    trace = tmp_path / "trace"
    for kill_at in range(1, 200):
        folder = folder_with(tmp_path / str(kill_at), corpus(1))
        ended = driver.run(folder, kill_at, trace)
        (folder / "corpus").write_text(corpus(8))
        mended = driver.run(folder)
        if mended:
            assert shards(folder) == expected, f"killed at step {kill_at}"
        if ended is None:
            break
    assert mended and kill_at > 10
