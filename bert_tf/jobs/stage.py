"""Runs the tasks of one stage of a job, and repeats no task that is finished, even by an earlier, interrupted run."""

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

from bert_tf.core.progress_bar import ProgressBar
from bert_tf.jobs.runner import Runner

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run_stage(
    what: str,
    unit: str,
    runner: Runner,
    tasks: Sequence[_Task],
    do: Callable[[_Task], _Result],
    read: Callable[[_Task], _Result | None],
    *,
    amount: Callable[[_Task], int] = lambda task: 1,
    compiles: bool = False,
) -> list[_Result]:
    """Returns the results of all tasks, in order, and shows the progress.
    `what`: a short name of the work, for the progress bar.
    `unit`: the unit of `amount`.
    `do`: picklable function that executes a task: it writes the task's files atomically, the file that marks the task
      as finished last, and returns the result.
    `read`: picklable function that returns the result of a finished task; None if the task is unfinished.
    `compiles`: whether the first task includes compilation, which the rate shall not include."""
    results = {index: result for index, task in enumerate(tasks) if (result := read(task)) is not None}
    todo = [(index, task) for index, task in enumerate(tasks) if index not in results]
    with ProgressBar(what, sum(map(amount, tasks)), unit, compiles=compiles) as progress:
        progress.add_done_before(sum(amount(tasks[index]) for index in results))
        for index, result in runner.map(functools.partial(_execute, do, read), todo):
            results[index] = result
            progress.update(amount(tasks[index]))
    return [results[index] for index in range(len(tasks))]


def _execute(do: Callable, read: Callable, numbered: tuple[int, _Task]) -> tuple[int, _Result]:
    index, task = numbered
    result = read(task)  # a cluster may run a task again
    return index, do(task) if result is None else result
