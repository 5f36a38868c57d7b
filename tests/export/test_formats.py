"""Exports in bfloat16 and for small devices, compared with float32 exports of the same weights."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import SquadTask
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf import tagging
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import CONFIG, PAIRS, put_together


def exported_again(exported, folder, **options) -> str:
    """Exports the shared classifier in another form."""
    run = f"{os.path.dirname(exported['classes'])}-run"
    return export_saved_model(ExportSettings(checkpoint_dir=run, export_dir=str(folder), **options))


def serving(*folders):
    return (tf.saved_model.load(folder).signatures["serving_default"] for folder in folders)


@pytest.mark.slow
def test_bfloat16_exports_take_half_the_bytes(exported, tmp_path):
    other = exported_again(exported, tmp_path, dtype="bfloat16")
    assert keras.mixed_precision.global_policy().name == "float32", "as before"
    texts = tf.constant([a for a, _ in PAIRS])
    serve, half = serving(exported["classes"], other)
    expected, found = serve(text_a=texts)["probabilities"].numpy(), half(text_a=texts)["probabilities"]
    assert found.dtype == tf.float32
    assert 0 < np.abs(found - expected).max() < 0.01 < np.ptp(expected[:, 0])
    reader = tf.train.load_checkpoint(f"{other}/variables/variables")
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    kinds = {(len(shapes[name]), dtypes[name]) for name in shapes if name.startswith("weights")}
    assert kinds == {(1, tf.float32), (2, tf.bfloat16)}
    large, small = (
        os.path.getsize(f"{path}/variables/variables.data-00000-of-00001") for path in (exported["classes"], other)
    )
    saved = 2 * sum(np.prod(shape) for shape in shapes.values() if len(shape) == 2)
    assert large - small == pytest.approx(saved, rel=0.01)


@pytest.mark.slow
def test_an_export_for_gpus_gives_the_same_answers(exported, tmp_path):
    """The graph for a GPU has whole layers instead of halves."""
    other = exported_again(exported, tmp_path, device="gpu")
    texts = tf.constant([a for a, _ in PAIRS])
    halves, whole = serving(exported["classes"], other)
    expected = halves(text_a=texts)["probabilities"]
    np.testing.assert_allclose(whole(text_a=texts)["probabilities"], expected, atol=1e-5)


def check_small_device(saved, other, tokenizer, atol):
    """Compares a .tflite with the SavedModel, in batches and rows of several sizes."""
    task = make_task(3, has_pairs=False)
    columns = task.encode([Example(a, None, None) for a, _ in PAIRS], tokenizer, 24)
    rows = {name: values.numpy() for name, values in task.model_inputs(columns, tokenizer, 24).items()}
    interpreter = tf.lite.Interpreter(f"{other}/model.tflite")
    assert set(interpreter.get_signature_list()) == {"tokens"}
    run, model = interpreter.get_signature_runner("tokens"), tf.saved_model.load(saved)
    for count, length in ((len(PAIRS), 24), (1, 24), (3, 9)):
        part = {name: values[:count, :length] for name, values in rows.items()}
        wanted = model.signatures["tokens"](**{name: tf.constant(values) for name, values in part.items()})
        np.testing.assert_allclose(run(**part)["probabilities"], wanted["probabilities"], atol=atol)
    assert np.ptp(wanted["probabilities"][:, 0]) > atol, "the texts make a difference"
    assert {"vocab.txt", "task.json", "labels.txt", "bert_config.json", "model_card.md"} < set(os.listdir(other))


@pytest.mark.slow
def test_litert_file_answers_equal_saved_model(exported, tokenizer, tmp_path):
    other = exported_again(exported, tmp_path, format="litert")
    check_small_device(exported["classes"], other, tokenizer, 1e-4)


TASKS = {
    "classification": make_task(3, has_pairs=False), "tagging": tagging.make_task(),
    "questions": SquadTask(Decoding(), 8, 10), "embeddings": None,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", TASKS)
def test_other_kinds_and_heads_are_written_for_litert(kind, vocab_file, tmp_path):
    """The export itself compares the answers of the file and of the model."""
    options = {"checkpoint_dir": f"{tmp_path}/run", "export_dir": f"{tmp_path}/1", "format": "litert"}
    has_bilstm = kind in ("classification", "tagging")
    if TASKS[kind]:
        put_together(tmp_path / "run", vocab_file, TASKS[kind], 32, has_bilstm)
    else:
        write_pretrained(tmp_path / "run", vocab_file)
        options["task_name"] = kind
    folder = export_saved_model(ExportSettings(**options))
    if not has_bilstm:
        assert os.path.exists(f"{folder}/model.tflite")
        return
    run = tf.lite.Interpreter(f"{folder}/model.tflite").get_signature_runner("tokens")
    for batch, length in ((1, 24), (3, 9)):  # both dimensions are dynamic
        answers = run(**dict.fromkeys(("input_ids", "input_mask", "segment_ids"), np.ones([batch, length], np.int32)))
        assert np.isfinite(answers["probabilities"]).all()


@pytest.mark.slow
def test_weights_of_8_bits_answer_almost_the_same(tmp_path, vocab_file, tokenizer):
    # TensorFlow's converter leaves small matrices as they are.
    config = dataclasses.replace(CONFIG, hidden_size=64, intermediate_size=256, hidden_act="gelu_erf")
    model = put_together(tmp_path / "run", vocab_file, make_task(3, has_pairs=False), config=config)
    flags = ExportSettings(checkpoint_dir=f"{tmp_path}/run", export_dir=f"{tmp_path}/saved")
    saved = export_saved_model(flags)
    small = dataclasses.replace(flags, export_dir=f"{tmp_path}/small", format="litert", quantize="int8")
    other = export_saved_model(small)
    check_small_device(saved, other, tokenizer, 0.05)
    weights = sum(np.prod(variable.shape) for variable in model.variables)
    assert os.path.getsize(f"{other}/model.tflite") < 4 * weights / 2
