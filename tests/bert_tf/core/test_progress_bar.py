import logging
import sys

import pytest

from bert_tf.core import progress_bar


@pytest.fixture(autouse=True)
def no_notebook(monkeypatch):
    """Another test of this process may have run a notebook."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


@pytest.fixture
def now(monkeypatch):
    """The time in seconds, in a list."""
    time = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: time[0])
    return time


def test_line_is_due_every_ten_seconds_and_at_the_end(now):
    bar = progress_bar.ProgressBar("work", 100, "units", done=40)
    due = []
    for now[0], is_last in ((9.0, False), (11.0, False), (12.0, False), (20.0, True)):
        due.append(bar.advance(5, is_last=is_last))
    assert due == [False, True, False, True]
    assert bar.done == 60 and bar.rate == 1.0 and bar.time_left == "0:40", "what was done before counts in no rate"


def test_on_a_terminal_there_is_a_bar_and_no_line(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = progress_bar.ProgressBar("work", 100, "units")
    assert not bar.advance(50, "half of it", is_last=True)
    bar.close()
    shown = capsys.readouterr().err
    assert "work 50/100 units" in shown and "half of it" in shown


def test_compilation_counts_in_no_rate(now):
    bar = progress_bar.ProgressBar("work", 101, "units", compiles=True)
    now[0] = 60.0
    assert bar.advance(1) and (bar.rate, bar.time_left) == (0.0, "")
    now[0] = 70.0
    bar.advance(20)
    assert bar.rate == 2.0 and bar.time_left == "0:40"
    bar.end_compilation(5)
    assert bar.done == 21, "it has ended before"


@pytest.mark.parametrize(
    "total, unit, expected",
    [
        (8_000_000, "B", "counting: 2.0 of 8.0 MB, 0.1 MB/s, 1:00 left"),
        (None, "B", "counting: 2.0 MB, 0.1 MB/s"),
        (4_000_000, "tokens", "counting: 2,000,000 of 4,000,000 tokens, 100,000 tokens/s, 0:20 left"),
    ],
)
def test_logs_every_ten_seconds_without_terminal(now, caplog, total, unit, expected):
    with caplog.at_level(logging.INFO), progress_bar.ProgressBar("counting", total, unit) as shown:
        for now[0] in (5.0, 9.0):
            shown.update(500_000)
        assert not caplog.records
        now[0] = 20.0
        shown.update(1_000_000)
        now[0] = 21.0
        shown.update(1)
    assert [record.getMessage() for record in caplog.records] == [expected]
