"""Converts training steps to StableHLO, and writes them as bundles: the half of the benchmark that needs TensorFlow.

The program is `Trainer.train_step` on one replica: forward and backward pass, clipping, AdamW, metrics and step
counters. The arguments of the program are the batch and all variables. The results are the variables' new values.
"""

import pathlib
import re

import numpy as np
import tensorflow as tf

from benchmarks.gpu import cases
from benchmarks.gpu.bundle import Argument, Bundle, template, write
from benchmarks.gpu.cases import Case
from bert_tf.compile_check import programs, steps
from bert_tf.config import BertConfig
from bert_tf.settings import DeviceSettings
from bert_tf.training import flops
from bert_tf.training.trainer import Trainer

# The first two batch sizes give the template, and the third verifies the template. Programs for smaller batches do not
# agree with the template: packed steps for small batches contain more unused operations, which XLA would remove.
_BATCH_SIZES = (64, 96, 112)
_ALIAS = re.compile(r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>")


def lower(folder: pathlib.Path, names: list[str]) -> None:
    """Writes a bundle for each named case, and prints the bundle's size."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        case = cases.CASES[name]
        path = write(folder, name, _bundle(case, folder / f"{name}.npz"))
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", flush=True)


def _bundle(case: Case, kept: pathlib.Path) -> Bundle:
    config = BertConfig(
        case.vocabulary, case.hidden, case.layers, case.heads, 4 * case.hidden,
        max_position_embeddings=max(case.length, 64), type_vocab_size=2,
    )  # fmt: skip
    with steps.dtype_policy(case.dtype):
        # Use the shortest warm-up, so that the recorded steps change the weights.
        trainer = steps.make_trainer(config, DeviceSettings(dtype=case.dtype), warmup_steps=1)

        def step(batch):
            trainer.train_step(iter([batch]))

        jitted = tf.function(step, jit_compile=True)
        lowered = {size: _program(jitted, case, size) for size in _BATCH_SIZES}
        arguments = _arguments(trainer, jitted.get_concrete_function(_batch(case, _BATCH_SIZES[0], 0)), lowered)
        if case.checked_steps:
            _keep_steps(trainer, jitted, case, kept)
    full = flops.training_flops(config, case.length, case.predictions, outputs=2)
    spared = flops.unread_position_flops(config, case.length, case.predictions + case.examples)
    return Bundle(case, arguments, full - spared, full, template(lowered))


def _program(jitted, case: Case, batch_size: int) -> str:
    program = steps.lowered_function(jitted, _batch(case, batch_size, 0))
    programs.check(program)
    # Remove source locations, because they contain paths of this machine.
    return re.sub(r'^(#loc\d* = loc\()"[^"]*":\d+:\d+\)', r"\1unknown)", program, flags=re.MULTILINE)


def _batch(case: Case, batch_size: int, seed: int) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values) for name, values in cases.batch(case, batch_size, seed).items()}


def _arguments(trainer: Trainer, function, lowered: dict[int, str]) -> tuple[Argument, ...]:
    """Returns the program's arguments: the columns of the batch, sorted by name, then the function's variables."""
    program = lowered[_BATCH_SIZES[0]]
    results = {int(argument): int(result) for argument, result in _ALIAS.findall(program)}
    variables = {id(variable.handle): variable for variable in function.graph.variables}
    roles = _roles(trainer)
    named = [("batch", name) for name in sorted(function.structured_input_signature[0][0])]
    for handle in function.captured_inputs:
        named.append(roles.get(id(handle), ("other", variables[id(handle)].name)))
    signature = program[program.index("func.func @main(") :].split(") -> ")[0]
    assert len(re.findall(r"%arg\d+: ", signature)) == len(named), "the program has other arguments than the step"
    return tuple(Argument(role, name, results.get(index)) for index, (role, name) in enumerate(named))


def _roles(trainer: Trainer) -> dict[int, tuple[str, str]]:
    """Maps the id of each variable's handle to the variable's role and name.

    The variables themselves cannot be keys, because mixed precision wraps variables in other objects.
    """
    optimizer, found = trainer.optimizer, {}
    for number, weight in enumerate(trainer.objective.model.trainable_variables):
        index, name = optimizer._index_dict[optimizer._var_key(weight)], f"{number} {weight.name}"
        for role, variable in (("weight", weight), ("m", optimizer._m[index]), ("v", optimizer._v[index])):
            found[id(variable.handle)] = (role, name)
    for name, mean in trainer._means.items():
        found[id(mean.total.handle)] = ("total", name)
        found[id(mean.count.handle)] = ("weight_of_mean", name)
    return found


def _keep_steps(trainer: Trainer, jitted, case: Case, path: pathlib.Path) -> None:
    """Runs steps with TensorFlow and records them in a file.

    The file contains the variables before the first step, the weights after the last step, and the metrics after each
    step.
    """
    roles = _roles(trainer)
    variables = {}
    for variable in jitted.get_concrete_function(_batch(case, case.batch_size, 0)).graph.variables:
        role, name = roles.get(id(variable.handle), ("other", variable.name))
        variables[f"{role} {name}"] = variable
    kept = {f"start/{name}": variable.numpy() for name, variable in variables.items()}
    metrics = []
    for number in range(case.checked_steps):
        jitted(_batch(case, case.batch_size, number))
        metrics.append([float(mean.result()) for mean in trainer._means.values()])
    ends = {name: variable for name, variable in variables.items() if name.startswith("weight ")}
    kept |= {f"end/{name}": variable.numpy() for name, variable in ends.items()}
    np.savez_compressed(path, metric_names=np.array(list(trainer._means)), metrics=np.array(metrics), **kept)
