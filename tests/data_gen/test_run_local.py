import contextlib
import errno
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import LocalRunner
from tests.data_gen.processes import is_alive
from tests.waiting import wait_until

# Tasks are Python expressions, since workers cannot import tests: `runner.map(eval, ...)`.
PID = "__import__('os').getpid()"
FAIL = "(_ for _ in ()).throw(__import__('bert_tf.core.errors', fromlist=['InputError']).InputError('as asked'))"


class Gate:
    """A named pipe at which tasks wait until the test or another task opens it."""

    def __init__(self, path):
        os.mkfifo(path)
        self._path = str(path)
        self.opened = f"open({self._path!r}, 'w').close()"

    def passed(self, then: str = "None") -> str:
        """Returns a task that waits, and then returns the value of an expression."""
        return f"(open({self._path!r}).close(), {then})[1]"

    def is_waited_at(self) -> bool:
        """Returns whether a task waits, and releases it."""
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO, error
            return False
        return True


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(2, preload=["data_gen.token_blocks", "data_gen.examples"]) as found:
        yield found


def pids_of(runner, workers=2):
    """Returns the process ids of the workers."""
    pids = set()
    wait_until(lambda: pids.update(runner.map(eval, [PID] * 10 * workers)) or len(pids) == workers)
    return pids


def test_every_task_is_done_once(runner, gate):
    assert sorted(runner.map(eval, [f"{i}**2" for i in range(100)])) == [i**2 for i in range(100)]
    assert list(runner.map(eval, [])) == []
    assert next(runner.map(eval, [gate.passed("'slow'"), "'quick'"])) == "quick"
    assert os.getpid() not in pids_of(runner)


def test_one_worker_runs_tasks_in_this_process():
    with LocalRunner(1) as runner:
        assert set(runner.map(eval, [PID] * 3)) == {os.getpid()}
        with pytest.raises(InputError, match="as asked"):
            list(runner.map(eval, ["1", FAIL]))


def test_what_a_task_raises_comes_home(runner):
    with pytest.raises(InputError, match="^as asked$"):
        list(runner.map(eval, ["1", FAIL, "2"]))
    with pytest.raises(ZeroDivisionError):
        list(runner.map(eval, ["1/0"]))
    # an answer that cannot be sent is reported at once
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        list(runner.map(eval, ["lambda: 1"]))


def test_no_worker_continues_after_an_error(runner, gate, tmp_path):
    begun = Gate(tmp_path / "begun")
    with pytest.raises(InputError):
        list(runner.map(eval, [f"({begun.opened}, {gate.passed()})", begun.passed(FAIL)]))
    assert not gate.is_waited_at()
    assert sorted(runner.map(eval, ["1", "2", "3"])) == [1, 2, 3]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV"])
def test_dead_worker_is_reported_and_others_end(how, gate):
    with LocalRunner(2, preload=["data_gen.token_blocks", "data_gen.examples"]) as runner:
        other = next(runner.map(eval, [PID]))
        die = f"__import__('os').kill({PID}, __import__('signal').{how})"
        with pytest.raises(ChildProcessError, match="a worker process died .*run the same command again"):
            list(runner.map(eval, [die, gate.passed()]))
    assert not is_alive(other)


def test_workers_ignore_terminal_signals(runner):
    pids = pids_of(runner)
    for pid in pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert pids_of(runner) == pids


@pytest.mark.slow
def test_no_worker_outlives_a_killed_main(gate, tmp_path):
    begun = Gate(tmp_path / "begun")
    computing = begun.passed("all(i == 0 for i in iter(int, 1))")
    program = f"""
        from bert_tf.jobs.run_local import LocalRunner
        if __name__ == "__main__":
            with LocalRunner(3, preload=["data_gen.token_blocks", "data_gen.examples"]) as runner:
                pids = set()
                while len(pids) < 3:
                    pids.update(runner.map(eval, [{PID!r}] * 30))
                print(*pids, flush=True)
                list(runner.map(eval, [{computing!r}, {gate.passed()!r}]))  # and one is idle
    """
    main = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in main.stdout.readline().split()]
    assert len(pids) == 3 and all(is_alive(pid) for pid in pids)
    wait_until(begun.is_waited_at)
    main.kill()
    main.wait()
    with contextlib.closing(main.stdout):
        wait_until(lambda: not any(map(is_alive, pids)))
