"""The model card of an export: the model, its training data, its scores, and the versions of the packages."""

import glob
import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint_formats import pair
from bert_tf.checkpoint_formats.hugging_face import INDEX_SUFFIX
from bert_tf.core import storage
from bert_tf.runs import evaluations, run_record
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.trained import Trained
from bert_tf.training import metrics_file

NAME = "model_card.md"
_PACKAGES = ("bert_tf", "tensorflow", "tensorflow-text", "tf-keras")
# Relative tolerance for comparing thresholds. Files store thresholds as decimal numbers.
_TOLERANCE = 1e-6


def text(source: Trained, settings: Mapping[str, Any]) -> str:
    described, config = source.description, source.config
    is_run = tf.io.gfile.exists(os.path.join(source.folder, run_record.NAME))
    data = run_record.read_phases(source.folder)[-1].data if is_run else {}
    parts = {
        "Task": {
            "name": described.task_name,
            "kind": described.kind,
            "labels": list(described.labels),
            "max_seq_length": described.max_seq_length,
            "do_lower_case": source.tokenizer.do_lower_case,
            "strip_accents": source.tokenizer.strip_accents,
            **described.parameters,
        },
        "Model": {
            "layers": config.num_hidden_layers,
            "hidden size": config.hidden_size,
            "attention heads": config.num_attention_heads,
            "vocabulary": config.vocab_size,
            "parameters": sum(int(variable.shape.num_elements()) for variable in source.model.variables),
        },
        "Data": {**described.data, **data},
        "Scores on the dev data": _scores(source),
        **_other_scores(source),
        "Checkpoint": {
            "file": ", ".join(map(os.path.basename, source.checkpoint.split(pair.SEPARATOR))),
            "sha256": _sha256(source.checkpoint),
        },
        "Versions": {name: _version(name) for name in _PACKAGES},
        "Settings of the export": settings,
    }
    blocks = [f"# {described.task_name}", *(_block(title, entries) for title, entries in parts.items())]
    return "\n\n".join(blocks) + "\n"


def _block(title: str, entries: Mapping[str, Any]) -> str:
    lines = [f"- {name}: {_shown(value)}" for name, value in entries.items()] or ["Unknown."]
    return "\n".join([f"## {title}", "", *lines])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _scores(source: Trained) -> dict[str, Any]:
    """Returns the checkpoint's scores on the dev data: from the last evaluation or from evaluations during training."""
    recorded = evaluations.read(source.folder)
    # Evaluations during training do not record their thresholds.
    of_training = {} if "thresholds" in source.description.parameters else recorded.scores.get(source.step, {})
    shown = _exported(source, [_results(source.folder, source.step), of_training])
    return ({"data": recorded.data} if recorded.data and shown else {}) | shown


def _other_scores(source: Trained) -> dict[str, dict[str, Any]]:
    """Maps section titles to this checkpoint's scores on data other than the dev data."""
    lines = metrics_file.read(source.folder)
    data = {line["split"]: {"data": line["data"]} for line in lines if "data" in line}
    folders = metrics_file.other_data(source.folder).items()
    scores = {name: _exported(source, [_results(folder, source.step)]) for name, folder in folders}
    return {
        f"Scores on {name}, which is not the dev data": data.get(name, {}) | shown
        for name, shown in scores.items() if shown
    }  # fmt: skip


def _exported(source: Trained, candidates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the first candidate that belongs to this export."""
    parameters, refused = source.description.parameters, {}
    for results in filter(None, candidates):
        scores = {name.removeprefix("eval_"): value for name, value in results.items()}
        if (step := scores.get("global_step", source.step)) != source.step:
            refused = {"not shown": f"the last evaluation was at step {step:g}, but this export has step {source.step}"}
            continue
        used = {name: value for name, value in scores.items() if name in parameters}
        if all(np.allclose(value, parameters[name], rtol=_TOLERANCE, atol=0) for name, value in used.items()):
            return scores | ({"global_step": source.step} if "global_step" in scores else {})  # a whole number
        said = ", ".join(f"{name} {_shown(value)}" for name, value in used.items())
        refused = {"not shown": f"the last evaluation had {said}, unlike this export; evaluate again"}
    return refused


def _results(folder: str, step: int) -> dict[str, Any]:
    """Returns the scores of a folder's last evaluation, with the `thresholds` if the evaluation was at this step."""
    results, thresholds = metrics_file.read_results(folder), multi_label.evaluated_thresholds(folder)
    is_of_step = results.get("global_step", step) == step
    return results | ({"thresholds": thresholds} if thresholds and is_of_step else {})


def _sha256(checkpoint: str) -> str:
    """Returns the SHA-256 of a checkpoint's concatenated files, in the order of their names."""
    files = []
    for path in checkpoint.split(pair.SEPARATOR):
        stem, is_index = glob.escape(path.removesuffix(INDEX_SUFFIX)), path.endswith(INDEX_SUFFIX)
        parts = sorted(tf.io.gfile.glob(f"{stem}-*.safetensors" if is_index else f"{stem}.*"))
        files += [path] if tf.io.gfile.exists(path) and not is_index else parts
    return storage.sha256(*files)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
