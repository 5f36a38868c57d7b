"""Writes the token signature as a `.tflite` file for small devices. `export.saved_model` adds the tokenizer's files.

Letters: N choices per example.
"""

import os
import re
import tempfile
import warnings
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from export import signatures, version_folder
from export.kinds.base import ServedModel

_TOLERANCE = 1e-4


def write(served: ServedModel, folder: str, quantize: bool, rows: Mapping[str, np.ndarray]) -> None:
    """Writes `model.tflite`: the token signature, converted to TensorFlow Lite's built-in operations.
    `served`: the model. The file has no string outputs, because clients can read the labels from `labels.txt`.
    `folder`: the folder to write `model.tflite` into.
    `quantize`: whether to store the weights with 8 bits. If so, the interpreter quantizes activations at run time
      (dynamic-range quantization).
    `rows`: inputs of the token signature, int32 [B, S] or [B, N, S]. For these inputs, the outputs of the file are
      compared with the outputs of the model."""
    function = _numbers(served)
    with tempfile.TemporaryDirectory() as temporary:
        tf.saved_model.save(served, temporary, signatures={signatures.TOKENS: function})
        converter = tf.lite.TFLiteConverter.from_saved_model(temporary, signature_keys=[signatures.TOKENS])
        converter.optimizations = [tf.lite.Optimize.DEFAULT] if quantize else []
        try:
            content = converter.convert()
        except Exception as error:
            operations = sorted(set(re.findall(r"'tf\.(\w+)' op ", str(error))))
            raise _refusal(f"it cannot express {', '.join(operations)}" if operations else str(error)) from error
    path = os.path.join(folder, version_folder.LITERT)
    with storage.atomic_path(path) as unnamed, tf.io.gfile.GFile(unnamed, "wb") as file:
        file.write(content)
    expected = function(**{name: tf.constant(values) for name, values in rows.items()})
    _check(path, content, rows, {name: value.numpy() for name, value in expected.items()}, quantize)


def _numbers(served: ServedModel) -> tf.types.experimental.ConcreteFunction:
    """Returns the token signature without string outputs."""

    def answer(**rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: value for name, value in served.answer_tokens(rows).items() if value.dtype != tf.string}

    spec = served.token_spec()
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name in signatures.TOKEN_INPUTS}
    return tf.function(answer, autograph=False).get_concrete_function(**named)


def _refusal(reason: str) -> InputError:
    first_line = (reason.splitlines() or [""])[0][:300]
    return InputError(
        f"--format=litert: TensorFlow Lite cannot run this model ({first_line}); give --format=saved_model"
    )


def _check(path: str, content: bytes, rows: Mapping[str, np.ndarray], expected, is_quantized: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow warns that another package will replace its interpreter
        try:
            answers = tf.lite.Interpreter(model_content=content).get_signature_runner(signatures.TOKENS)(**rows)
        except (RuntimeError, ValueError) as error:  # the converter wrote operations that cannot run
            raise _refusal(str(error)) from error
    for name, value in answers.items():
        if not np.all(np.isfinite(value)):
            raise InputError(f"{path}: output {name} is not finite; leave out --quantize, or train again")
        if is_quantized or value.dtype == bool:
            continue
        difference, scale = np.abs(value - expected[name]).max(), max(1.0, np.abs(expected[name]).max())
        if difference > _TOLERANCE * scale:
            raise InputError(f"{path}: output {name} differs by {difference:.2g} from the model's output; report this")
