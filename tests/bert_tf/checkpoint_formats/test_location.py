import pickle
import zipfile

import pytest
import tensorflow as tf

from bert_tf.runs import evaluations
from bert_tf.runs.evaluations import Evaluations
from bert_tf.runs.location import Location, locate
from tests.kit import refused


def checkpoint(folder, name):
    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(folder / name))


def test_a_folder_means_its_latest_checkpoint(tmp_path):
    checkpoint(tmp_path, "a")
    assert locate(str(tmp_path)) == Location(str(tmp_path / "a"), False)
    checkpoint(tmp_path, "b")
    refused("holds 2 checkpoints, a, b; give one of them", locate, str(tmp_path))
    checkpoint(tmp_path, "bert_model.ckpt")
    assert locate(str(tmp_path)).path == str(tmp_path / "bert_model.ckpt")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "b"\n')
    assert locate(str(tmp_path)).path == locate(str(tmp_path / "checkpoint")).path == str(tmp_path / "b")
    (tmp_path / "model.safetensors").touch()
    assert locate(str(tmp_path)) == Location(str(tmp_path / "model.safetensors"), True)


def test_run_folder_means_best_checkpoint_on_dev_data(tmp_path):
    for step in (3, 7):
        tf.train.Checkpoint(global_step=tf.Variable(step)).write(str(tmp_path / f"ckpt-{step}"))
    assert locate(str(tmp_path)).path == str(tmp_path / "ckpt-7")
    scores = {3: {"f1": 0.9}, 7: {"f1": 0.8}, 9: {"f1": 1.0}}
    evaluations.write(str(tmp_path), Evaluations("f1", scores=scores))
    assert locate(str(tmp_path)).path == str(tmp_path / "ckpt-3")
    assert locate(str(tmp_path / "ckpt-7")).path == str(tmp_path / "ckpt-7")
    data = tmp_path / "ckpt-3.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    refused(r"best checkpoint .* cannot be used .*; .* its own path, .*/ckpt-7$", locate, str(tmp_path))


class Harmful:
    def __reduce__(self):
        return (open, ("opened_by_the_pickle", "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "epoch.ckpt"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.core
def test_pickles_are_refused_unopened(tmp_path, monkeypatch, name, zipped):
    monkeypatch.chdir(tmp_path)
    if zipped:
        with zipfile.ZipFile(name, "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(Harmful()))
    else:
        (tmp_path / name).write_bytes(pickle.dumps(Harmful(), protocol=2))
    message = "is a pickle, .* not opened; save the model as safetensors"
    refused(message, locate, str(tmp_path / name))
    if not name.endswith(".ckpt"):
        refused(message, locate, str(tmp_path))
    assert not (tmp_path / "opened_by_the_pickle").exists()


def test_other_files_are_no_checkpoints(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x08")
    (tmp_path / "notes.txt").write_text("hello")
    for name in ("model.onnx", "notes.txt"):
        refused("is neither a TensorFlow checkpoint nor safetensors", locate, str(tmp_path / name))
    (tmp_path / "model.keras").write_bytes(b"PK\x03\x04")
    refused("is a Keras 3 object, not a checkpoint", locate, str(tmp_path / "model.keras"))
    refused("holds no checkpoint; give a folder", locate, str(tmp_path))
    refused("no such checkpoint", locate, str(tmp_path / "x.safetensors"))
