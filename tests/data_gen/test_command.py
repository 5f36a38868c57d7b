"""The generator as a command: how it stops, and which files it leaves."""

import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.jobs.run_local import LocalRunner
from tests.data_gen.conftest import Generator
from tests.data_gen.processes import descendants, is_alive
from tests.waiting import wait_until
from tfrecords import reader

pytestmark = pytest.mark.slow


def command(generator, corpus, *flags, output="out@3"):
    return [
        sys.executable, "-m", "data_gen.create_pretraining_data", f"--input_file={corpus}", "--max_seq_length=32",
        f"--vocab_file={generator.vocab_file}", f"--output_file={generator.folder / output}",
        "--max_predictions_per_seq=5", "--dupe_factor=2", *flags,
    ]  # fmt: skip


def start(*arguments, **named):
    return subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True, **named)


def workers_of(pid):
    """Returns the workers, which are children of the fork server, a child of main."""
    return [worker for child in descendants(pid) for worker in descendants(child)]


def whole_shards(folder):
    return {path.name: path.read_bytes() for path in folder.glob("out-*-of-00003")}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Returns a command with a few seconds of work."""
    path = tmp_path_factory.mktemp("corpus") / "corpus"
    numbers = random.Random(1)
    words = "the of and to in a is that for it as was with be by on not he his but at are this have from".split()
    with path.open("w") as file:
        for line in range(60_000):
            file.write(" ".join(numbers.choices(words, k=12)) + ("\n\n" if line % 20 == 19 else "\n"))
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory, vocab_file, corpus):
    generator = Generator(tmp_path_factory.mktemp("whole"), vocab_file, str(corpus))
    with LocalRunner(1) as runner:
        generator.run("out@3", runner=runner)
    return whole_shards(generator.folder)


def test_same_bytes_after_kill_stop_and_lost_worker(generator, corpus, expected):
    """Sends SIGKILL, SIGTERM and Ctrl-C to main and SIGKILL to a worker, then lets the command finish."""
    folder, numbers = generator.folder, random.Random()
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None):
        process = start(generator, corpus, "--num_workers=2")
        while len(workers := workers_of(process.pid)) < 2 and process.poll() is None:
            time.sleep(0.05)
        time.sleep(numbers.uniform(0, 2))  # at any moment, also after the end
        below = list(descendants(process.pid))
        if process.poll() is not None:
            break  # the command had already finished
        if how is None:
            os.kill(workers[0], signal.SIGKILL)
        elif how is signal.SIGINT:
            os.killpg(process.pid, how)  # like a terminal
        else:
            process.send_signal(how)
        _, said = process.communicate(timeout=600)
        wait_until(lambda: not any(map(is_alive, below)))  # noqa: B023  it is called at once
        if process.returncode != 0:
            code = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, None: 1}[how]
            assert (process.returncode, "Traceback" in said) == (code, False), said
            assert not (folder / "out.manifest.json").exists()
            if how is not signal.SIGKILL:
                last = said.strip().splitlines()[-1]
                assert ("run the same command again" in last) and said.count("again") == 1, said
        found = whole_shards(folder)
        assert found == {name: expected[name] for name in found}
    done = start(generator, corpus, "--num_workers=3")
    _, said = done.communicate(timeout=1200)
    assert done.returncode == 0, said
    assert whole_shards(folder) == expected
    assert not list(reader.find_faults(str(folder / "out.manifest.json")))
    assert not [name for name in generator.files() if "work" in name or "tmp-" in name]


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_an_unwritable_file_is_one_line(generator, corpus, expected):
    full = start(generator, corpus, "--num_workers=1", preexec_fn=limit_files)
    _, said = full.communicate(timeout=1200)
    assert full.returncode == 1
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "File too large" in errors[0] and "Traceback" not in said, said
    assert not [name for name in generator.files() if name.startswith("out-") or "tmp-" in name]
    again = start(generator, corpus, "--num_workers=1")
    _, said = again.communicate(timeout=1200)
    assert again.returncode == 0, said
    assert whole_shards(generator.folder) == expected
