"""Lowers training steps, compiles them for each chip, and prints the results in one table.

Letters: B batch, S sequence length, P predictions.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator

from absl import logging

from bert_tf.compile_check import largest_batch, steps
from bert_tf.compile_check.chips import CHIPS, GPU, TPU, Chip
from bert_tf.compile_check.programs import Compiled, Compiler, check, gib
from bert_tf.compile_check.settings import CompileCheckSettings
from bert_tf.compile_check.steps import Shape
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.settings import DeviceSettings
from bert_tf.training import flops

# Folder of the compilers' results, which a rerun reads.
_RESULTS = "compiled_programs"
_STANDARD = (
    ("base", Shape(32, 128, 20)),
    ("base", Shape(16, 512, 80)),
    ("large", Shape(8, 512, 80)),
)
_OURS, _RECOMPUTED, _OFFICIAL = "bert_tf", "bert_tf, recomputed", "tf-models-official"
_LEGEND = """
GiB of the chip's memory: args = weights, optimizer and batch; temp = temporaries within the step; total. /formula:
FLOPs divided by the FLOPs of the matrix products (bert_tf/training/flops.py). GB accessed: by all fusions, including
accesses to a TPU core's own memory (the compiler's count). GB moved: from and to the chip's memory. ms: lower bounds of
the times for FLOPs, bytes moved and bytes accessed at the chip's published peaks; the larger of the first two bounds
the step. A GPU's row is followed by its kernels, each of which also takes some microseconds to launch. Small: below
1 MiB. The compiler chooses between its own products and those of NVIDIA's library only on a GPU.
"""
_HEADER = (
    f"{'':<47} {'GiB':>22} {'':>17} {'GB':>22} {'ms':>23}\n"
    f"{'model':<11} {'S':>4} {'B':>4} {'chip':<4} {'step':<20} {'args':>6} {'temp':>7} {'total':>7} "
    f"{'TFLOP':>7} {'/formula':>8} {'accessed':>8} {'/official':>9} {'moved':>6} "
    f"{'FLOPs':>7} {'moved':>7} {'accessed':>8}"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One step compiled for one chip.

    Attributes:
      model: name of the model.
      shape: shape of the batch.
      chip: the chip for which the step was compiled.
      step: name of the implementation.
      compiled: the compiler's results.
      formula: FLOPs of the step by `flops.training_flops`.
    """

    model: str
    shape: Shape
    chip: Chip
    step: str
    compiled: Compiled
    formula: float

    def line(self, official: Compiled | None) -> str:
        """Formats the row, with the ratio to tf-models-official's step if there is one."""
        found, chip, moved = self.compiled, self.chip, sum(self.compiled.moved.values())
        ratio = f"{found.accessed / official.accessed:.2f}" if official else ""
        return (
            f"{self.model:<11} {self.shape.length:>4} {self.shape.batch_size:>4} {chip.name:<4} {self.step:<20} "
            f"{gib(found.arguments):>6} {gib(found.temporaries):>7} {gib(found.total):>7} "
            f"{found.flops / 1e12:>7.2f} {found.flops / self.formula:>8.3f} "
            f"{found.accessed / 1e9:>8.2f} {ratio:>9} {moved / 1e9:>6.2f} "
            f"{1e3 * found.flops / chip.flops:>7.1f} {1e3 * moved / chip.bandwidth:>7.1f} "
            f"{1e3 * found.accessed / chip.bandwidth:>8.1f}"
        )


def run_check(settings: CompileCheckSettings) -> None:
    """Compiles all steps and prints the table.

    Raises:
      InputError: after the table, if a step does not compile, does not fit, has dynamic shapes, or calls the host.
    """
    paths = {TPU: settings.tpu_compiler, GPU: settings.gpu_compiler}
    compiler = Compiler({chip.kind: paths[chip.kind] for chip in _chips(settings)}, _RESULTS)
    cases = list(_cases(settings))
    whose = (_OFFICIAL, _OURS) if settings.compare_official else (_OURS,)
    failures = []
    print(f"{_LEGEND}\n{_HEADER}", flush=True)
    for model, config, shape in cases:
        programs = {step: _program(settings, step, config) for step in whose}
        for chip in _chips(settings):
            official = None
            for step in whose:
                try:
                    compiled = compiler.compile(programs[step](shape), chip)
                except InputError as error:
                    failures.append(f"{step}, {model}, S={shape.length}, B={shape.batch_size}, {chip.name}: {error}")
                    continue
                official = compiled if step == _OFFICIAL else official
                print(Row(model, shape, chip, step, compiled, _formula(config, shape)).line(official), flush=True)
                if compiled.kernels:
                    print(f"{'':<22}{compiled.kernels.describe()}", flush=True)
    if settings.find_largest_batch:
        _show_largest(settings, compiler, *cases[-1])
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    if failures:
        raise InputError(f"{len(failures)} of {len(cases) * len(whose) * len(_chips(settings))} steps failed")


def _cases(settings: CompileCheckSettings) -> Iterator[tuple[str, BertConfig, Shape]]:
    if not settings.bert_config_file:
        for name, shape in _STANDARD:
            yield name, BertConfig.named(name), shape
        return
    config = BertConfig.from_json_file(settings.bert_config_file)
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    shape = Shape(settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq)
    yield f"L={config.num_hidden_layers} H={config.hidden_size}", config, shape


def _chips(settings: CompileCheckSettings) -> list[Chip]:
    return [CHIPS[name] for name in settings.chips.split(",")]


def _formula(config: BertConfig, shape: Shape) -> float:
    return shape.batch_size * flops.training_flops(config, shape.length, shape.predictions, outputs=2)


def _program(settings: CompileCheckSettings, step: str, config: BertConfig) -> Callable[[Shape], str]:
    """Returns a function from a shape to the checked program of a step; programs are cached."""
    recompute = settings.recompute_activations or step == _RECOMPUTED
    device = DeviceSettings(dtype=settings.dtype, optimizer=settings.optimizer, recompute_activations=recompute)
    make = steps.official_step if step == _OFFICIAL else steps.our_step
    made = {}

    def program(shape: Shape) -> str:
        if shape not in made:
            logging.info("%s: lowering to StableHLO, S=%d B=%d", step, shape.length, shape.batch_size)
            made[shape] = make(config, shape, device)
            if step != _OFFICIAL:
                check(made[shape])
        return made[shape]

    return program


def _show_largest(
    settings: CompileCheckSettings, compiler: Compiler, model: str, config: BertConfig, shape: Shape
) -> None:
    chip = _chips(settings)[0]
    print(f"\nlargest batch of {model} at S={shape.length} on {chip.name}, {chip.memory >> 30} GiB")
    for step in (_OURS, _RECOMPUTED, *([_OFFICIAL] if settings.compare_official else [])):
        program = _program(settings, step, config)

        def compiled(batch_size, program=program):
            return compiler.compile(program(dataclasses.replace(shape, batch_size=batch_size)), chip)

        found = largest_batch.search(compiled, shape.batch_size)
        print(f"  {step:<40} {found.fits:>5} rows; {found.refused} do not fit", flush=True)
