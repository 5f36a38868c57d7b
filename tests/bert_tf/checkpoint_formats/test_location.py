"""Which checkpoint a path means; a damaged one is refused in one line, or intact if the damage is in unread bytes."""

import json
import pickle
import random
import shutil
import zipfile

import h5py
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.errors import InputError
from bert_tf.runs import evaluations
from bert_tf.runs.evaluations import Evaluations
from bert_tf.runs.location import Location, locate
from bert_tf.settings import ConversionSettings
from tests.bert_tf.checkpoint_formats.models import CONFIG, original_values, random_values, save_original, values_of
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


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Changes, cuts off or removes bytes, mostly near the beginning, where the formats have headers."""
    data = bytearray(data)
    reach = len(data) if rng.random() < 0.3 else min(len(data), 400)
    kind = rng.choice(["change", "cut", "take out"])
    if kind == "change":
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(reach)] = rng.randrange(256)
    elif kind == "cut":
        data = data[: rng.randrange(len(data))]
    else:
        start = rng.randrange(reach)
        del data[start : start + rng.randrange(1, 50)]
    return bytes(data)


@pytest.mark.quick_cases("tf1", "hugging_face")
@pytest.mark.parametrize("format", ["bert_tf", "tf1", "tf_models", "hugging_face"])
def test_damage_ends_in_a_line(tmp_path, format):
    source, whole, copy = tmp_path / "source", tmp_path / "whole", tmp_path / "copy"
    source.mkdir()
    save_original(source, original_values(random_values()))
    convert_checkpoint(ConversionSettings(input=str(source), output=str(whole), format=format))
    files = [path.name for path in sorted(whole.iterdir()) if path.name != "conversion.json"]
    rng, refused = random.Random(0), 0
    for _ in range(80):
        shutil.copytree(whole, copy)
        file = copy / rng.choice(files)
        file.write_bytes(damaged(file.read_bytes(), rng))
        try:
            contents = checkpoints.open_checkpoint(str(copy))
            contents.check_pretrained(contents.require_config())
            values_of(contents)
        except InputError as error:
            assert "\n" not in str(error).strip()
            refused += 1
        shutil.rmtree(copy)
    assert refused > 40


def test_a_table_of_the_wrong_size_is_never_read(tmp_path):
    """The decoder of a masked-LM head is compared with the word embeddings, which here would need terabytes."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **CONFIG.to_dict(), "hidden_act": "gelu"}))
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file.create_dataset("m/tf_m/bert/embeddings/LayerNorm/gamma:0", (CONFIG.hidden_size,), "f4")
        for name in ("bert/embeddings/word_embeddings/weight:0", "cls/predictions/decoder/weight:0"):
            file.create_dataset(f"m/tf_m/{name}", (1 << 40, CONFIG.hidden_size), "f4", chunks=(1 << 10, 16))
    contents = checkpoints.open_checkpoint(str(tmp_path))
    refused("tf_model.h5: the tensor .* is missing", contents.check_pretrained, contents.require_config())
