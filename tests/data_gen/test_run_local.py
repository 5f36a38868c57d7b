import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from data_gen.run_local import LocalRunner
from tfrecords.errors import InputError

# Tasks are Python expressions, as workers can import no test: `runner.map(eval, ...)`.
PID = "__import__('os').getpid()"
FAIL = "(_ for _ in ()).throw(__import__('tfrecords.errors').errors.InputError('as asked'))"


def sleep(seconds, then="None"):
    return f"(__import__('time').sleep({seconds}), {then})[1]"


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(pid, seconds=20):
    limit = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not is_alive(pid)


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(2) as found:
        yield found


def test_every_task_is_done_once_by_the_workers_and_answers_come_as_they_are_done(runner):
    assert sorted(runner.map(eval, [f"{i}**2" for i in range(100)])) == [i**2 for i in range(100)]
    assert list(runner.map(eval, [])) == []
    assert next(runner.map(eval, [sleep(1, "'slow'"), "'quick'"])) == "quick"
    pids = set(runner.map(eval, [sleep(0.05, PID)] * 8))
    assert len(pids) == 2 and os.getpid() not in pids


def test_tasks_are_taken_one_by_one_as_workers_are_free(runner):
    taken = []

    def tasks():
        for i in range(50):
            taken.append(i)
            yield str(i)

    answers = runner.map(eval, tasks())
    next(answers)
    assert len(taken) <= 3
    answers.close()


def test_one_worker_is_this_process_and_takes_tasks_one_by_one():
    with LocalRunner(1) as runner:
        assert set(runner.map(eval, [PID] * 3)) == {os.getpid()}
        with pytest.raises(InputError, match="as asked"):
            list(runner.map(eval, ["1", FAIL]))


def test_the_number_of_workers_is_that_of_the_cores_unless_given():
    assert LocalRunner().num_workers == len(os.sched_getaffinity(0))
    assert LocalRunner(7).num_workers == 7


def test_what_a_task_raises_comes_home(runner):
    with pytest.raises(InputError, match="^as asked$"):
        list(runner.map(eval, ["1", FAIL, "2"]))
    with pytest.raises(ZeroDivisionError):
        list(runner.map(eval, ["1/0"]))
    # an answer that cannot be sent is told, not waited for
    with pytest.raises(RuntimeError, match="lambda"):
        list(runner.map(eval, ["lambda: 1"]))


def test_after_an_error_no_worker_works_on_and_no_old_answer_comes(runner, tmp_path):
    late = tmp_path / "late"
    with pytest.raises(InputError):
        list(runner.map(eval, [sleep(0.5, f"open({str(late)!r}, 'w').close() or 'stale'"), FAIL]))
    assert sorted(runner.map(eval, ["1", "2", "3"])) == [1, 2, 3]
    time.sleep(0.7)
    assert not late.exists()


def test_an_abandoned_call_leaves_no_answers(runner):
    answers = runner.map(eval, ["'first'", sleep(0.2, "'stale'"), sleep(0.2, "'stale'")])
    assert next(answers) == "first"
    answers.close()
    assert sorted(runner.map(eval, ["1", "2", "3", "4"])) == [1, 2, 3, 4]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV"])
def test_a_worker_that_dies_is_told_at_once_and_the_others_end(how):
    with LocalRunner(2) as runner:
        other = next(runner.map(eval, [PID]))
        die = f"__import__('os').kill({PID}, __import__('signal').{how})"
        started = time.monotonic()
        with pytest.raises(ChildProcessError, match=f"a worker process died .*{how}.*run the same command again"):
            list(runner.map(eval, [die, sleep(60)]))
        assert time.monotonic() - started < 30
    assert not is_alive(other)


def test_a_worker_that_dies_while_it_is_idle_is_told():
    with LocalRunner(2) as runner:
        for pid in {*runner.map(eval, [sleep(0.2, PID)] * 4)}:
            os.kill(pid, signal.SIGKILL)
            assert ends(pid)
        with pytest.raises(ChildProcessError, match="SIGKILL"):
            list(runner.map(eval, ["1", "2"]))


def test_workers_ignore_the_signals_that_the_terminal_sends_to_all(runner):
    pids = {*runner.map(eval, [sleep(0.2, PID)] * 4)}
    for pid in pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    assert {*runner.map(eval, [sleep(0.2, PID)] * 4)} == pids


def test_leaving_ends_busy_workers():
    with LocalRunner(2) as runner:
        pids = {*runner.map(eval, [sleep(0.2, PID)] * 4)}
        answers = runner.map(eval, ["1", sleep(60), sleep(60)])
        next(answers)
    assert len(pids) == 2 and not any(is_alive(pid) for pid in pids)


@pytest.mark.slow
def test_no_worker_outlives_a_killed_main():
    program = f"""
        from data_gen.run_local import LocalRunner
        if __name__ == "__main__":
            with LocalRunner(3) as runner:
                print(*set(runner.map(eval, [{sleep(0.3, PID)!r}] * 9)), flush=True)
                list(runner.map(eval, ["all(i == 0 for i in iter(int, 1))", {sleep(600)!r}]))  # and one is idle
    """
    main = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in main.stdout.readline().split()]
    assert len(pids) == 3 and all(is_alive(pid) for pid in pids)
    time.sleep(0.2)
    main.kill()
    main.wait()
    with contextlib.closing(main.stdout):
        assert all(ends(pid) for pid in pids)
