import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.checkpoint_formats.tensor_bundle import of_optimizer
from bert_tf.core.errors import InputError
from bert_tf.input.record_order import Position
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, evaluations
from bert_tf.runs.checkpoint_folder import KEPT, ResumePoint, step_of
from bert_tf.runs.location import locate


def checkpoint(step: int) -> tf.train.Checkpoint:
    values = {"global_step": tf.Variable(step, dtype=tf.int64), "data_position": tf.Variable([1, 2, step])}
    return tf.train.Checkpoint(**values, values=tf.Variable(tf.fill([100], float(step))))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with checkpoints of steps 0, 3 and 6."""
    folder = tmp_path_factory.mktemp("saved")
    for step in (0, 3, 6):
        assert checkpoint_folder.save(str(folder), checkpoint(step), step) == f"{folder}/ckpt-{step}"
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def flip(path, where: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def data(folder, step):
    return folder / f"ckpt-{step}.data-00000-of-00001"


DAMAGES = {
    "data cut off": lambda folder, step: os.truncate(data(folder, step), data(folder, step).stat().st_size - 1),
    "data missing": lambda folder, step: data(folder, step).unlink(),
    "first byte of the data": lambda folder, step: flip(data(folder, step), 0),
    "a byte of the data": lambda folder, step: flip(data(folder, step), 0.5),
    "data of another one": lambda folder, step: shutil.copy(data(folder, 0), data(folder, step)),
    "index cut off": lambda folder, step: os.truncate(folder / f"ckpt-{step}.index", 100),
    "index empty": lambda folder, step: os.truncate(folder / f"ckpt-{step}.index", 0),
    "index missing": lambda folder, step: (folder / f"ckpt-{step}.index").unlink(),
    "a byte of the index": lambda folder, step: flip(folder / f"ckpt-{step}.index", 0.3),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checkpoint_before_a_damaged_one_is_used(folder, damage, caplog):
    DAMAGES[damage](folder, 6)
    assert checkpoint_folder.newest_intact(str(folder)) == ResumePoint(f"{folder}/ckpt-3", (f"{folder}/ckpt-6",))
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"{folder}/ckpt-6: ")
    assert line.endswith(f"; using {folder}/ckpt-3, the newest intact checkpoint")
    assert locate(str(folder)).path == f"{folder}/ckpt-3"


@pytest.mark.parametrize(
    "text",
    [None, "", "\n", "model_check", "\0\xff", 'model_checkpoint_path: "ckpt-9"\n', 'model_checkpoint_path: "ckpt-'],
    ids=["missing", "empty", "a line", "cut off", "garbage", "another's", "cut in the name"],
)
def test_the_newest_is_found_without_its_index(folder, text):
    (folder / "checkpoint").unlink()
    if text is not None:
        (folder / "checkpoint").write_text(text, encoding="latin-1")
    found = checkpoint_folder.newest_intact(str(folder))
    assert (found.prefix, found.step, found.position) == (f"{folder}/ckpt-6", 6, Position(1, 2, 6))
    checkpoint_folder.tidy(str(folder), found)
    assert checkpoint_folder.save(str(folder), checkpoint(9), 9) == tf.train.latest_checkpoint(str(folder))


def test_an_older_one_that_a_person_names_is_taken(folder):
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-3"\n')
    assert checkpoint_folder.newest_intact(str(folder)) == ResumePoint(f"{folder}/ckpt-3")


def test_only_damaged_checkpoints_are_reported(folder, tmp_path):
    for step, damage in ((0, "data missing"), (3, "index empty"), (6, "a byte of the data")):
        DAMAGES[damage](folder, step)
    message = rf"^{re.escape(str(folder))}: all checkpoints are damaged \(.*ckpt-6.*ckpt-3.*ckpt-0"
    with pytest.raises(InputError, match=message):
        checkpoint_folder.newest_intact(str(folder))
    assert checkpoint_folder.newest_intact(str(tmp_path / "nothing")) == ResumePoint() and ResumePoint().step == 0
    with pytest.raises(InputError, match="nothing: no such folder"):
        checkpoint_folder.check_there(str(tmp_path / "nothing"))


def test_damaged_checkpoints_are_kept_aside(folder):
    for turn in range(2):
        DAMAGES["a byte of the data"](folder, 6)
        damaged = data(folder, 6).read_bytes()
        checkpoint_folder.tidy(str(folder), checkpoint_folder.newest_intact(str(folder)))
        assert (folder / "damaged" / str(turn) / "ckpt-6.data-00000-of-00001").read_bytes() == damaged
        assert checkpoint_folder.newest_intact(str(folder)) == ResumePoint(f"{folder}/ckpt-3")
        checkpoint_folder.save(str(folder), checkpoint(6), 6)
        assert checkpoint_folder.newest_intact(str(folder)) == ResumePoint(f"{folder}/ckpt-6")


def test_tidy_removes_only_what_a_kill_left(folder):
    left = ["saving.tmp-0123/ckpt-9_temp/part-00000-of-00001", "checkpoint.tmp-0123", "ckpt-1.data-00000-of-00001"]
    others = ["vocab.txt", "train/events", "report.html.tmp-0123", "encoder-1.data-00000-of-00001"]
    for name in (*left, *others):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("x")
    before = sorted(path.name for path in folder.rglob("*"))
    checkpoint_folder.tidy(str(folder), checkpoint_folder.newest_intact(str(folder)))
    gone = {"saving.tmp-0123", "ckpt-9_temp", *(os.path.basename(name) for name in left)}
    assert sorted(path.name for path in folder.rglob("*")) == [name for name in before if name not in gone]


@pytest.mark.parametrize("where", ["disk", "ram://"])
def test_the_newest_are_kept_wherever_the_folder_is(tmp_path, where):
    folder = str(tmp_path / "run") if where == "disk" else f"{where}{tmp_path}"
    tf.io.gfile.makedirs(folder)
    for step in range(KEPT + 3):
        checkpoint_folder.save(folder, checkpoint(step), step)
    assert sorted(checkpoint_folder.numbered(folder)) == list(range(3, KEPT + 3))
    state = tf.train.get_checkpoint_state(folder)
    assert list(state.all_model_checkpoint_paths) == [f"{folder}/ckpt-{step}" for step in range(3, KEPT + 3)]
    assert not [name for name in tf.io.gfile.listdir(folder) if "saving" in name]
    checkpoint_folder.save(folder, checkpoint(20), 20, 0)
    assert sorted(checkpoint_folder.numbered(folder)) == [*range(3, KEPT + 3), 20], "0 keeps all"
    checkpoint_folder.save(folder, checkpoint(21), 21, 2)
    assert sorted(checkpoint_folder.numbered(folder)) == [20, 21]


@pytest.fixture
def evaluated(tmp_path):
    """A folder, and a function that adds a step's checkpoint with moments, keeps two, and records the step's score."""
    folder = str(tmp_path)
    model, optimizer = keras.Sequential([keras.layers.Dense(100)]), keras.optimizers.Adam()
    model.build([None, 3])
    optimizer.build(model.trainable_variables)

    def save(step, score):
        for variable in (*model.variables, *optimizer.variables):
            variable.assign(tf.cast(tf.fill(variable.shape, step), variable.dtype))
        values = {"global_step": tf.Variable(step, dtype=tf.int64), "model": model, "optimizer": optimizer}
        checkpoint_folder.save(folder, tf.train.Checkpoint(**values), step, 2)
        scores = {**evaluations.read(folder).scores, step: {"f1": score}}
        evaluations.write(folder, evaluations.Evaluations("f1", scores=scores))

    return folder, save


def test_the_best_weights_are_kept_while_best(evaluated):
    folder, save = evaluated
    size = None
    for step, score in {1: 0.7, 2: 0.9, 3: 0.5, 4: 0.6, 5: 0.95}.items():
        save(step, score)
        size = size or sum(tf.io.gfile.stat(path).length for path in tf.io.gfile.glob(f"{folder}/ckpt-1.data*"))
        assert sorted(checkpoint_folder.numbered(folder)) == [step - 1, step][-step:]
        assert [step_of(path) for path in checkpoint_folder.best_weights(folder)] == [2] * (step > 3)
        assert chosen_checkpoint.best(folder, checkpoint_folder.newest_intact(folder), "").step == {1: 1, 5: 5}.get(
            step, 2
        )
    (weights,) = tf.io.gfile.glob(f"{folder}/best-2.data*")
    assert tf.io.gfile.stat(weights).length < size / 2, "of three values for each weight, one"
    assert not of_optimizer(tf.train.load_checkpoint(f"{folder}/best-2").get_variable_to_shape_map())
    model = keras.Sequential([keras.layers.Dense(100)])
    model.build([None, 3])
    status = tf.train.Checkpoint(model=model).restore(f"{folder}/best-2")
    status.assert_existing_objects_matched().expect_partial()
    assert np.unique(np.concatenate([variable.numpy().ravel() for variable in model.variables])) == [2]
    os.truncate(f"{folder}/ckpt-5.index", 100)
    assert chosen_checkpoint.best(folder, checkpoint_folder.newest_intact(folder), "").step == 2, (
        "of the steps up to 4, to which training falls back"
    )
    os.truncate(f"{weights[: -len('.data-00000-of-00001')]}.index", 100)
    with pytest.raises(InputError, match=r"best checkpoint .* cannot be used \(.*best-2: cannot be read"):
        chosen_checkpoint.best(folder, checkpoint_folder.newest_intact(folder), "")


def test_a_failed_save_deletes_nothing_good(folder, monkeypatch):
    before = sorted(os.listdir(folder))

    def fail(self, prefix):
        with open(f"{prefix}.data-00000-of-00001", "w") as file:
            file.write("half")
        raise tf.errors.ResourceExhaustedError(None, None, f"{prefix}; No space left on device")

    monkeypatch.setattr(tf.train.Checkpoint, "write", fail)
    message = r"ckpt-9: cannot be saved \(No space left on device\); earlier checkpoints are intact"
    with pytest.raises(InputError, match=message):
        checkpoint_folder.save(str(folder), checkpoint(9), 9)
    assert sorted(os.listdir(folder)) == before and checkpoint_folder.newest_intact(str(folder)).step == 6


@pytest.mark.parametrize("where", ["the reader", "the files"])
def test_unreadable_is_not_damaged(folder, monkeypatch, where):
    before = sorted(os.listdir(folder))
    error = tf.errors.UnavailableError(None, None, "the store does\nnot answer")

    def fail(self, *_):
        raise error

    if where == "the reader":
        monkeypatch.setattr(tf.train, "load_checkpoint", fail)
    else:  # for the reader, missing permission looks like damage, so the files are checked
        DAMAGES["a byte of the data"](folder, 6)
        monkeypatch.setattr(tf.io.gfile.GFile, "read", fail)
    message = r"ckpt-6: cannot be read now \(the store does not answer\); nothing was changed; fix"
    with pytest.raises(InputError, match=message):
        checkpoint_folder.newest_intact(str(folder))
    assert sorted(os.listdir(folder)) == before


def test_refuses_folder_without_checkpoint(tmp_path):
    for folder, message in (
        (tmp_path / "missing", "no such folder"),
        (tmp_path, "holds no checkpoint; give a folder where training has saved a checkpoint"),
    ):
        with pytest.raises(InputError, match=message):
            checkpoint_folder.check_there(str(folder))
    (tmp_path / checkpoint_folder.ENSEMBLE_NAME).write_text("{}")
    with pytest.raises(InputError, match="an ensemble, .* give --ensemble_checkpoints with the checkpoints"):
        checkpoint_folder.check_there(str(tmp_path))
