"""Lowers training steps, compiles them for each chip, and prints the results in one table.

Letters: B rows in a batch, S sequence length, P predictions.
"""

import sys
from collections.abc import Callable, Iterator

from absl import logging

from benchmarks.compile_check import steps
from benchmarks.compile_check.chips import CHIPS, GPU, TPU, Chip
from benchmarks.compile_check.programs import Compiled, Compiler, check, gib
from benchmarks.compile_check.settings import CompileCheckSettings
from benchmarks.compile_check.steps import Shape
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.modeling.compilation import for_tpu
from bert_tf.settings import DeviceSettings
from bert_tf.training import flops

# Folder in which the compilers' results are cached.
_RESULTS = "compiled_programs"
_STANDARD = (
    ("base", Shape(32, 128, 20)),
    ("base", Shape(16, 512, 80)),
    ("large", Shape(8, 512, 80)),
)
_LEGEND = """
GiB: the chip's memory for args (weights, optimizer state and batch), for temp (temporary values within the step), and
in total. /formula: TFLOP divided by the TFLOP of the matrix products (bert_tf/training/flops.py). GB: bytes that all
fusions read and write, including a TPU core's own memory, as the compiler counts them. ms: the least time for the FLOPs
and for these bytes at the chip's published peaks. Only with a GPU present can the compiler choose between its own
matrix products and those of NVIDIA's library.
"""
_HEADER = (
    f"{'':<47} {'GiB':>22} {'':>17} {'GB':>8} {'ms':>16}\n"
    f"{'model':<11} {'S':>4} {'B':>4} {'chip':<4} {'step':<20} {'args':>6} {'temp':>7} {'total':>7} "
    f"{'TFLOP':>7} {'/formula':>8} {'accessed':>8} {'FLOPs':>7} {'accessed':>8}  program"
)


def _line(model: str, shape: Shape, chip: Chip, step: str, compiled: Compiled, formula: float) -> str:
    """Formats a row of the table; `formula` is the step's number of FLOPs according to `flops.training_flops`."""
    return (
        f"{model:<11} {shape.length:>4} {shape.batch_size:>4} {chip.name:<4} {step:<20} "
        f"{gib(compiled.arguments):>6} {gib(compiled.temporaries):>7} {gib(compiled.total):>7} "
        f"{compiled.flops / 1e12:>7.2f} {compiled.flops / formula:>8.3f} "
        f"{compiled.accessed / 1e9:>8.2f} "
        f"{1e3 * compiled.flops / chip.flops:>7.1f} {1e3 * compiled.accessed / chip.bandwidth:>8.1f}  "
        f"{compiled.program}"
    )


def run_check(
    settings: CompileCheckSettings,
    name: str = "bert_tf",
    make: Callable[[BertConfig, Shape, DeviceSettings], str] | None = None,
) -> None:
    """Compiles all steps and prints the table.

    Args:
      name: name of the implementation, for the table and for error messages.
      make: function that lowers a step of the implementation to StableHLO; None for `steps.our_step`.
    """
    chips = [CHIPS[chip] for chip in settings.chips.split(",")]
    paths = {TPU: settings.tpu_compiler, GPU: settings.gpu_compiler}
    compiler = Compiler({chip.kind: paths[chip.kind] for chip in chips}, _RESULTS)
    device = DeviceSettings(
        dtype=settings.dtype, optimizer=settings.optimizer, recompute_activations=settings.recompute_activations
    )
    cases, failures = list(_cases(settings)), []
    print(f"{_LEGEND}\n{_HEADER}", flush=True)
    for model, config, shape in cases:
        formula = shape.batch_size * flops.training_flops(config, shape.length, shape.predictions, outputs=2)
        programs: dict[str, str] = {}
        for chip in chips:
            try:
                if chip.kind not in programs:
                    logging.info("%s: lowering to StableHLO, S=%d B=%d", name, shape.length, shape.batch_size)
                    with for_tpu(chip.kind == TPU):
                        programs[chip.kind] = (make or steps.our_step)(config, shape, device)
                    check(programs[chip.kind])
                compiled = compiler.compile(programs[chip.kind], chip)
            except InputError as error:
                failures.append(f"{name}, {model}, S={shape.length}, B={shape.batch_size}, {chip.name}: {error}")
                continue
            print(_line(model, shape, chip, name, compiled, formula), flush=True)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    if failures:
        raise InputError(f"{len(failures)} of {len(cases) * len(chips)} steps failed")


def _cases(settings: CompileCheckSettings) -> Iterator[tuple[str, BertConfig, Shape]]:
    if not settings.bert_config_file:
        for name, shape in _STANDARD:
            yield name, BertConfig.named(name), shape
        return
    config = BertConfig.from_json_file(settings.bert_config_file)
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    shape = Shape(settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq)
    yield f"L={config.num_hidden_layers} H={config.hidden_size}", config, shape
