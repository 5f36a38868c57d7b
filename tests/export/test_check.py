"""What lies in an export besides the graph, and what its own check finds."""

import hashlib
import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.core.errors import InputError
from export import warmup
from export.saved_model import export_saved_model
from export.serve.servable import Servable
from export.serve.warmup import replay
from export.settings import ExportSettings
from tests.bert_tf.classification import make_task
from tests.export import operations
from tests.export.conftest import DEV_TEXTS
from tests.export.exports import put_together


def texts_of(log):
    return [text.decode() for text in log.predict_log.request.inputs["text_a"].string_val]


def logs(folder):
    path = f"{folder}/{warmup.NAME}"
    return [
        prediction_log_pb2.PredictionLog.FromString(one) for one in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]


def test_the_warm_up_has_real_requests_of_every_signature_in_tf_servings_messages(exported):
    found = logs(exported["classes"])
    assert [one.WhichOneof("log_type") for one in found] == ["predict_log"] * 3 + ["classify_log"]
    requests = [getattr(one, one.WhichOneof("log_type")).request for one in found]
    assert [one.model_spec.signature_name for one in requests] == ["serving_default"] * 2 + ["tokens", "examples"]
    assert {one.model_spec.name for one in requests} == {"classes"}
    assert texts_of(found[0]) == [min(DEV_TEXTS, key=len)]
    assert set(texts_of(found[1])) == set(DEV_TEXTS), "the texts are of the run's dev data"
    serialized = requests[3].input.example_list.examples
    assert [one.features.feature["text_a"].bytes_list.value[0].decode() for one in serialized] == texts_of(found[1])
    assert logs(exported["scores"])[3].WhichOneof("log_type") == "regress_log"
    assert "fox" in texts_of(logs(exported["scores"])[0])[0] + texts_of(logs(exported["scores"])[1])[0], "fixed texts"
    for folder in exported.values():  # as the local server replays them
        servable = Servable(folder)
        assert replay(folder, servable) == 4
        servable.close()


def test_the_card_names_task_data_scores_checkpoint_and_versions(exported):
    folder = pathlib.Path(exported["classes"])
    card = (folder / "assets/model_card.md").read_text()
    run = folder.parents[1] / "classes-run"
    digest = hashlib.sha256()
    for path in sorted(run.glob("ckpt-1.*")):
        digest.update(path.read_bytes())
    for line in (
        '- labels: ["0", "1", "2"]', "- kind: classification", "- accuracy: 0.75", "- file: ckpt-1",
        f"- sha256: {digest.hexdigest()}", f"- tensorflow: {tf.__version__}", f"- checkpoint_dir: {run}",
    ):  # fmt: skip
        assert f"\n{line}\n" in card, line
    assert "Unknown" in (pathlib.Path(exported["scores"]) / "assets/model_card.md").read_text()
    assert json.loads((folder / "assets/task.json").read_text())["labels"] == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["classes", "scores"])
def test_tf_serving_has_all_operations(exported, name):
    assert not operations.foreign(exported[name])


def test_an_export_that_fails_its_check_names_the_folder_that_was_asked_for(vocab_file, tmp_path):
    put_together(tmp_path / "run", vocab_file, make_task(2), spread=float("nan"))
    with pytest.raises(InputError, match=f"^{tmp_path}/out: .*output probabilities is not finite"):
        export_saved_model(ExportSettings(checkpoint_dir=f"{tmp_path}/run", export_dir=f"{tmp_path}/out/"))
    assert os.listdir(tmp_path / "out") == []


def test_a_function_of_this_process_is_no_operation_of_tf_serving(tmp_path):
    class Asks(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def lengths(self, texts):
            return {"lengths": tf.numpy_function(lambda each: np.char.str_len(each), [texts], tf.int64)}

    module = Asks()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.lengths)
    assert operations.foreign(str(tmp_path / "1")) == {"PyFunc"}
