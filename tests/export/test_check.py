"""The files of an export besides the graph, and the results of checks."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.core import storage
from export import loading, saved_model, warmup
from export.check import check
from export.serve.servable import Servable, replay
from export.settings import ExportSettings
from tests.kit import refused


@pytest.fixture
def copied(exported, tmp_path):
    return pathlib.Path(shutil.copytree(exported["scores"], tmp_path / "model/1"))


def texts_of(log):
    return [text.decode() for text in log.predict_log.request.inputs["text_a"].string_val]


def logs(folder):
    path = f"{folder}/{warmup.NAME}"
    return [
        prediction_log_pb2.PredictionLog.FromString(one) for one in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    ("given", "loaded", "name"),
    [
        ("/home/me/sweep", "/home/me/sweep/trials/one", "sweep/trials/one"),
        ("runs/one/", "runs/one/", "one"),
        ("runs/bert_model.ckpt", "runs", "bert_model.ckpt"),
        ("hf://me/model", "/home/me/.cache/model", "hf://me/model"),
    ],
)
def test_exports_record_names_instead_of_paths(given, loaded, name):
    settings = ExportSettings(checkpoint_dir=given, export_dir="/home/me/models/reviews/3")
    names = saved_model._names(settings, types.SimpleNamespace(folder=loaded))
    assert names == {"checkpoint_dir": name, "export_dir": "reviews"}


@pytest.mark.slow
def test_warm_up_has_requests_of_every_signature(exported):
    found = logs(exported["classes"])
    assert [one.WhichOneof("log_type") for one in found] == ["predict_log"] * 3 + ["classify_log"]
    requests = [getattr(one, one.WhichOneof("log_type")).request for one in found]
    assert [one.model_spec.signature_name for one in requests] == ["serving_default"] * 2 + ["tokens", "examples"]
    assert {one.model_spec.name for one in requests} == {"classes"}
    assert len({*map(len, texts_of(found[1]))}) == 8, "of different lengths"
    assert texts_of(found[0]) == [min(texts_of(found[1]), key=len)]
    serialized = requests[3].input.example_list.examples
    assert [one.features.feature["text_a"].bytes_list.value[0].decode() for one in serialized] == texts_of(found[1])
    assert logs(exported["scores"])[3].WhichOneof("log_type") == "regress_log"
    assert "fox" in texts_of(found[1])[0], "fixed texts"
    for folder in exported.values():  # the local server replays these
        servable = Servable(folder)
        assert replay(folder, servable) == 4
        servable.close()


def test_card_names_task_data_scores_and_versions(exported):
    folder = pathlib.Path(exported["classes"])
    card = (folder / "assets/model_card.md").read_text()
    run = folder.parents[1] / "classes-run"
    digest = hashlib.sha256()
    for path in sorted(run.glob("ckpt-1.*")):
        digest.update(path.read_bytes())
    shapes = tf.train.load_checkpoint(str(run / "ckpt-1")).get_variable_to_shape_map()
    count = sum(int(np.prod(shape)) for name, shape in shapes.items() if name.startswith("model/"))
    for line in (
        '- labels: ["0", "1", "2"]', "- kind: classification", "- accuracy: 0.75", "- file: ckpt-1",
        f"- parameters: {count}",
        f"- sha256: {digest.hexdigest()}", f"- tensorflow: {tf.__version__}", f"- checkpoint_dir: {run.name}",
        "- export_dir: classes",
    ):  # fmt: skip
        assert f"\n{line}\n" in card, line
    recorded = json.loads((folder / "assets.extra/export.json").read_text())
    assert (recorded["checkpoint_dir"], recorded["export_dir"]) == ("classes-run", "classes")
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 9 and not any(os.fsencode(folder.parents[1]) in path.read_bytes() for path in written)
    assert "Unknown" in (pathlib.Path(exported["scores"]) / "assets/model_card.md").read_text()
    assert json.loads((folder / "assets/task.json").read_text())["labels"] == ["0", "1", "2"]


def test_the_check_lists_signatures(exported, capsys):
    check(exported["classes"])
    shown = capsys.readouterr().out
    for line in (
        "  serving_default  tensorflow/serving/predict\n    in  text_a: string [?]\n    out label: string [?]\n"
        "    out probabilities: float32 [?, 3]\n",
        "  examples  tensorflow/serving/classify\n    in  inputs: string [?]\n    out classes: string [?, 3]\n",
        "    in  input_ids: int32 [?, ?]\n",
        "answered 4 warm-up requests",
    ):
        assert line in shown
    assert re.search(
        r"\n  size: \d+\.\d MB\n  latency on this machine: [\d.]+ ms for 1 and [\d.]+ ms for 32 inputs", shown
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("saved_model.pb", None, "saved_model.pb: no such file; give the folder of a version"),
        ("saved_model.pb", b"\x0a\xff\xff", "saved_model.pb: is damaged"),
        ("variables/variables.index", None, "cannot be loaded"),
        ("variables/variables.data-00000-of-00001", b"short", "cannot be loaded"),
        ("assets/vocab.txt", None, None),  # the graph contains the vocabulary
        (warmup.NAME, b"no record" * 9, "tf_serving_warmup_requests: request 0 fails"),
        (warmup.NAME, b"short", "tf_serving_warmup_requests: contains no request"),
        (warmup.NAME, None, None),
    ],
)
def test_a_broken_export_is_one_line(copied, name, content, message, capsys):
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_bytes(content)
    if message is None:
        check(str(copied))
        return
    refused(message, check, str(copied))


def test_requests_may_lack_rows_and_a_signature(tmp_path, capsys):
    class Scale(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], name="x"), tf.TensorSpec([], name="factor")])
        def scaled(self, x, factor):
            return {"y": x * factor}

    module, folder = Scale(), str(tmp_path / "1")
    tf.saved_model.save(module, folder, signatures=module.scaled)
    inputs = {"x": np.float32([1, 2]), "factor": np.float32(3)}
    warmup.write(folder, "m", [warmup.Request("predict", "", inputs)])
    check(folder)
    shown = capsys.readouterr().out
    assert "answered 1 warm-up requests" in shown and "latency" not in shown


def test_an_unsupported_operation_is_named(tmp_path):
    class Asks(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def lengths(self, texts):
            return {"lengths": tf.numpy_function(lambda each: np.char.str_len(each), [texts], tf.int64)}

    module = Asks()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.lengths)
    refused(r"the operation PyFunc in function __inference_lengths_\d+ is neither", loading.check, str(tmp_path / "1"))

    model = saved_model_pb2.SavedModel()
    model.meta_graphs.add().graph_def.node.add(name="x", op="SomebodysOp")
    storage.write_text(str(tmp_path / "2/none"), "")
    (tmp_path / "2/saved_model.pb").write_bytes(model.SerializeToString())
    refused("the operation SomebodysOp in the graph is neither", loading.check, str(tmp_path / "2"))
    assert {"FastWordpieceTokenizeWithOffsets", "MatMul", "VarHandleOp", "StatefulPartitionedCall", "While", "Const",
            "RaggedTensorToTensor", "ParseExampleV2"} < loading.allowed()  # fmt: skip
