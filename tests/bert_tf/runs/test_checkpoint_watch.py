import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.runs import checkpoint_watch


class Run:
    """The folder of a fake trainer, whose actions while the evaluator waits are given in advance."""

    def __init__(self, folder, monkeypatch, kept=5):
        self.folder, self.now, self.meanwhile = str(folder), 0.0, []
        self._checkpoint = tf.train.Checkpoint(value=tf.Variable(0))
        self._manager = tf.train.CheckpointManager(self._checkpoint, self.folder, max_to_keep=kept)
        monkeypatch.setattr(checkpoint_watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(checkpoint_watch.time, "sleep", self._sleep)

    def _sleep(self, seconds):
        self.now += seconds
        for step in self.meanwhile.pop(0) if self.meanwhile else ():
            self.save(step)

    def save(self, *steps):
        for step in steps:
            self._manager.save(checkpoint_number=step)

    def followed(self, timeout, last=None):
        prefixes = checkpoint_watch.follow(self.folder, timeout, lambda step: step == last)
        return [int(prefix.rsplit("-", 1)[1]) for prefix in prefixes]


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path / "run", monkeypatch)


def test_without_a_timeout_the_latest_alone_is_given(run):
    run.save(0, 5, 10)
    assert run.followed(0) == [10] and run.now == 0


def test_every_new_checkpoint_is_given_once_until_the_last(run):
    run.save(0, 5)
    run.meanwhile = [(), (10,), (15, 20), (), (25,), (30,)]
    assert run.followed(60, last=25) == [5, 10, 15, 20, 25]


def test_waiting_ends_when_none_has_come_for_the_timeout(run):
    run.save(5)
    run.meanwhile = [(), (), (10,)]
    assert run.followed(7) == [5, 10]
    assert run.now == pytest.approx(3 + 7, abs=1)


def test_a_folder_that_is_not_there_yet_is_waited_for(run):
    run.meanwhile = [(), (), (0,)]
    assert run.followed(30, last=0) == [0]


@pytest.mark.parametrize(
    ("timeout", "message"), [(0, "holds no checkpoint; give"), (9, "no checkpoint after 9 seconds")]
)
def test_no_checkpoint_in_time_is_a_clear_error(run, timeout, message):
    with pytest.raises(InputError, match=message):
        run.followed(timeout)


def test_deleted_checkpoints_are_told_from_damaged_ones(run, monkeypatch, tmp_path):
    other = Run(tmp_path / "other", monkeypatch, kept=1)
    other.save(1, 2)
    assert not checkpoint_watch.is_there(f"{other.folder}/ckpt-1")
    assert checkpoint_watch.is_there(f"{other.folder}/ckpt-2")
    assert other.followed(0) == [2]
