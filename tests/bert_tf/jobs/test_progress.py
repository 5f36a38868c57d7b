import logging

import pytest

from bert_tf.core import progress_bar
from bert_tf.jobs import progress


@pytest.mark.parametrize(
    "total, unit, expected",
    [
        (8_000_000, "B", "counting: 2.0 of 8.0 MB, 0.1 MB/s, 1:00 left"),
        (None, "B", "counting: 2.0 MB, 0.1 MB/s"),
        (4_000_000, "tokens", "counting: 2,000,000 of 4,000,000 tokens, 100,000 tokens/s, 0:20 left"),
    ],
)
def test_without_a_terminal_a_line_comes_every_ten_seconds(monkeypatch, caplog, total, unit, expected):
    now = [100.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO), progress.Progress("counting", total, unit) as shown:
        for now[0] in (105.0, 109.0):
            shown.update(500_000)
        assert not caplog.records
        now[0] = 120.0
        shown.update(1_000_000)
        now[0] = 121.0
        shown.update(1)
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_what_includes_compilation_has_no_rate(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO), progress.Progress("predicting", 100, "rows", compiles=True) as shown:
        for now[0], rows in ((15.0, 10), (30.0, 6), (45.0, 15)):
            shown.update(rows)
    assert [record.getMessage() for record in caplog.records] == [
        "predicting: 10 of 100 rows",
        "predicting: 16 of 100 rows, 0.4 rows/s, 3:30 left",
        "predicting: 31 of 100 rows, 0.7 rows/s, 1:38 left",
    ]
