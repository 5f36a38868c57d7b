"""Checks programs, compiles programs for a chip, and caches the compiler's results."""

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
from collections.abc import Mapping

from benchmarks.compile_check.chips import GPU, TPU, Chip
from bert_tf.core.errors import InputError

_COMPILE = pathlib.Path(__file__).with_name("compile_program.py")
# The Python package that contains the compiler for each kind of chip.
_PACKAGE = {TPU: "libtpu", GPU: "jax_cuda13_pjrt"}

# Dynamic sizes, and the operations that produce them.
_DYNAMIC = re.compile(r"tensor<[^>]*\?|\bstablehlo\.(?:dynamic_reshape|dynamic_iota|real_dynamic_slice|dynamic_pad)\b"
                      r"|@(?:PadToStatic|SliceToDynamic)\b|\bset_dimension_size\b")  # fmt: skip
# Operations for which a step waits for the host.
_HOST = re.compile(
    r"\bstablehlo\.(?:infeed|outfeed|send|recv)\b|\bcustom_call @(?:\w*callback\w*|MoveToHost|MoveToDevice)"
)
_HOST_WHEN_COMPILED = re.compile(
    r" (?:infeed|outfeed)\(|is_host_transfer=true|custom_call_target=\"(?:\w*callback\w*|MoveToHost|MoveToDevice)\""
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The compiler's results for a program on one chip.

    Attributes:
      arguments: bytes of weights, optimizer state and batch.
      temporaries: bytes of temporary values within a step.
      total: bytes of all memory that a step uses.
      flops: FLOPs of a step, including elementwise arithmetic.
      accessed: bytes that all fusions of a step read and write in any memory, as the compiler counts them.
    """

    arguments: int
    temporaries: int
    total: int
    flops: float
    accessed: float
    program: pathlib.Path


class DoesNotFit(InputError):
    """The program needs more memory than the chip has.

    Attributes:
      used: number of bytes that the program needs.
      limit: number of bytes that are available.
    """

    def __init__(self, message: str, used: int, limit: int):
        super().__init__(message)
        self.used, self.limit = used, limit


def check(program: str) -> None:
    """Checks that a program has only static shapes and does not call the host, as TPUs require."""
    for kind, pattern in (("a dynamic shape", _DYNAMIC), ("a call to the host", _HOST)):
        found = pattern.search(program)
        if found:
            line = program[program.rfind("\n", 0, found.start()) + 1 : found.end()].strip()[-200:]
            raise InputError(f"{kind} inside the step: {line}")


class Compiler:
    """The compilers, each of which runs in a separate environment.

    Args:
      python: path of the Python interpreter in the compiler's environment, by kind of chip.
    """

    def __init__(self, python: Mapping[str, str], cache_dir: str):
        for kind, path in python.items():
            if not pathlib.Path(path).exists():
                raise InputError(f"--{kind}_compiler={path}: no such file; `make {kind}-check` installs the compiler")
        self._python, self._cache = python, pathlib.Path(cache_dir)

    def compile(self, program: str, chip: Chip) -> Compiled:
        """Compiles a program, or reads the results of an earlier compilation from the cache.

        Raises:
          DoesNotFit: the program needs more memory than the chip has.
        """
        key = hashlib.sha256(f"{self._version(chip)} {chip.target}\n{program}".encode()).hexdigest()[:24]
        outcome, source = self._cache / f"{key}.json", self._cache / f"{key}.mlir"
        if not outcome.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            source.write_text(program)
            self._run(source, outcome, chip)
        found = json.loads(outcome.read_text())
        if "memory_used" in found:
            raise _does_not_fit(found["memory_used"], found["memory_limit"], chip)
        if "error" in found:
            raise InputError(f"does not compile: {found['error']}")
        optimized = outcome.with_suffix(".hlo")
        host = _HOST_WHEN_COMPILED.search(optimized.read_text())
        if host:
            raise InputError(f"a call to the host inside the compiled step: {host[0].strip()}")
        total = found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"] + found["code"]
        if total > chip.memory:  # the GPU compiler does not check the size of the memory
            raise _does_not_fit(total, chip.memory, chip)
        names = ("arguments", "temporaries", "flops", "accessed")
        return Compiled(total=total, program=optimized, **{name: found[name] for name in names})

    def _run(self, source: pathlib.Path, outcome: pathlib.Path, chip: Chip) -> None:
        command = [
            self._python[chip.kind], str(_COMPILE), str(source), f"--kind={chip.kind}", f"--target={chip.target}",
            f"--accelerator_type={chip.accelerator_type}", f"--output={outcome}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if not outcome.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise InputError(f"the compiler ended with code {done.returncode}: {lines[-1] if lines else ''}")

    def _version(self, chip: Chip) -> str:
        """Returns the name of the metadata folder of the compiler's package, which contains the version."""
        site = pathlib.Path(self._python[chip.kind]).parent.parent
        found = sorted(site.glob(f"lib/python*/site-packages/{_PACKAGE[chip.kind]}-*.dist-info"))
        return found[0].name if found else ""


def _does_not_fit(used: int, limit: int, chip: Chip) -> DoesNotFit:
    message = f"needs {gib(used)} GiB, but {chip.name} has {gib(limit)} available; use a smaller batch"
    return DoesNotFit(message, used, limit)


def gib(size: float) -> str:
    """Formats bytes as GiB."""
    return f"{size / (1 << 30):.2f}"
