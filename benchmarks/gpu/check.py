"""Compares steps in JAX with steps that TensorFlow ran and recorded."""

import pathlib

import jax
import numpy as np

from benchmarks.gpu import bundle
from benchmarks.gpu.program import Steps


def differences(folder: pathlib.Path, name: str) -> dict[str, float]:
    """Runs the recorded steps in JAX, and compares the results with TensorFlow's recorded results.

    Args:
      folder: folder of the bundles.
      name: name of a bundle with recorded steps.

    Returns:
      "metrics": the largest relative difference of a loss or gradient norm after any step. Accuracies are left out,
        because they change in jumps.
      "weights": the largest difference of a weight after the last step.
      "moved": for comparison with "weights", the largest change of a weight in TensorFlow's steps.
    """
    found = bundle.read(folder, name)
    steps = Steps(found, found.case.batch_size, exact=True)
    with np.load(folder / f"{name}.npz") as file:
        kept = dict(file)
    columns = steps.columns(range(found.case.checked_steps))
    compiled = steps.compiled({column: values[:1] for column, values in columns.items()})
    arguments = [found.arguments[index] for index in steps.state]
    start = [kept[f"start/{one.role} {one.name}"] for one in arguments]
    state, worst = [jax.device_put(value) for value in start], 0.0
    for number, expected in enumerate(kept["metrics"]):
        one_batch = {column: values[number : number + 1] for column, values in columns.items()}
        state = compiled(np.int32(1), state, one_batch)
        measured = steps.metrics(state)
        for metric, value in zip(kept["metric_names"], expected, strict=True):
            if not metric.endswith("accuracy"):
                worst = max(worst, abs(measured[metric] - value) / abs(value))
    ends = {f"end/{named}": np.asarray(value) for named, value in steps.named(state).items()}
    weights = [named for named in kept if named.startswith("end/")]
    return {
        "metrics": worst,
        "weights": max(float(np.abs(ends[named] - kept[named]).max()) for named in weights),
        "moved": max(float(np.abs(kept[named] - kept[named.replace("end/", "start/")]).max()) for named in weights),
    }
