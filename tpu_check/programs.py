"""Checks programs and compiles them for a chip, with a cache of the compiler's results."""

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
from collections.abc import Mapping

from tfrecords.errors import InputError
from tpu_check import traffic
from tpu_check.chips import Chip

_COMPILE = pathlib.Path(__file__).with_name("compile_program.py")

# Dynamic sizes, and the operations that produce them.
_DYNAMIC = re.compile(r"tensor<[^>]*\?|\bstablehlo\.(?:dynamic_reshape|dynamic_iota|real_dynamic_slice|dynamic_pad)\b"
                      r"|@(?:PadToStatic|SliceToDynamic)\b|\bset_dimension_size\b")  # fmt: skip
# Operations that wait for the host within a step.
_HOST = re.compile(
    r"\bstablehlo\.(?:infeed|outfeed|send|recv)\b|\bcustom_call @(?:\w*callback\w*|MoveToHost|MoveToDevice)"
)
_HOST_WHEN_COMPILED = re.compile(
    r" (?:infeed|outfeed)\(|is_host_transfer=true|custom_call_target=\"(?:\w*callback\w*|MoveToHost|MoveToDevice)\""
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The compiler's results for a program on one chip; sizes in bytes.

    Attributes:
      arguments: size of weights, optimizer state, and batch.
      temporaries: size of temporaries within a step.
      total: total memory use.
      flops: FLOPs of a step, including elementwise arithmetic.
      accessed: bytes read and written by all fusions of a step, in any memory; the compiler's own count.
      moved: bytes moved from and to the chip's memory, by operation of the model; see `traffic`.
    """

    arguments: int
    temporaries: int
    total: int
    flops: float
    accessed: float
    moved: Mapping[str, int]


class DoesNotFit(InputError):
    """The program needs more memory than the chip has.

    Attributes:
      used: bytes needed.
      limit: bytes available.
    """

    def __init__(self, message: str, used: int, limit: int):
        super().__init__(message)
        self.used, self.limit = used, limit


def check(program: str) -> None:
    """Checks that a program has only static shapes and does not call the host, as a TPU needs it.

    Args:
      program: StableHLO text.

    Raises:
      InputError: names the operation.
    """
    for kind, pattern in (("a dynamic shape", _DYNAMIC), ("a call to the host", _HOST)):
        found = pattern.search(program)
        if found:
            line = program[program.rfind("\n", 0, found.start()) + 1 : found.end()].strip()[-200:]
            raise InputError(f"{kind} inside the step: {line}")


class Compiler:
    """The TPU compiler, which runs in a separate environment.

    Args:
      python: path of that environment's Python.
      cache_dir: folder for programs and their results.

    Raises:
      InputError: the Python does not exist.
    """

    def __init__(self, python: str, cache_dir: str):
        if not pathlib.Path(python).exists():
            raise InputError(f"--compiler={python}: no such file; make tpu-check installs the TPU compiler")
        self._python, self._cache = python, pathlib.Path(cache_dir)

    def compile(self, program: str, chip: Chip) -> Compiled:
        """Compiles a program, or reads the result from the cache.

        Args:
          program: StableHLO text.
          chip: the chip to compile for.

        Raises:
          DoesNotFit: the program needs more memory than the chip has.
          InputError: the program does not compile, or calls the host.
        """
        key = hashlib.sha256(f"{self._version()} {chip.topology}\n{program}".encode()).hexdigest()[:24]
        outcome, source = self._cache / f"{key}.json", self._cache / f"{key}.mlir"
        if not outcome.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            source.write_text(program)
            self._run(source, outcome, chip)
        found = json.loads(outcome.read_text())
        if "memory_used" in found:
            used, limit = found["memory_used"], found["memory_limit"]
            raise DoesNotFit(
                f"needs {gib(used)} GiB, but {chip.name} has {gib(limit)} available; use a smaller batch",
                used,
                limit,
            )
        if "error" in found:
            raise InputError(f"does not compile: {found['error']}")
        compiled = outcome.with_suffix(".hlo").read_text()
        host = _HOST_WHEN_COMPILED.search(compiled)
        if host:
            raise InputError(f"a call to the host inside the compiled step: {host[0].strip()}")
        total = found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"] + found["code"]
        names = ("arguments", "temporaries", "flops", "accessed")
        return Compiled(total=total, moved=traffic.by_operation(compiled), **{name: found[name] for name in names})

    def _run(self, source: pathlib.Path, outcome: pathlib.Path, chip: Chip) -> None:
        command = [
            self._python, str(_COMPILE), str(source), f"--topology={chip.topology}",
            f"--accelerator_type={chip.accelerator_type}", f"--output={outcome}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if not outcome.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise InputError(f"the TPU compiler ended with code {done.returncode}: {lines[-1] if lines else ''}")

    def _version(self) -> str:
        """Returns the compiler's version from the name of its package's metadata folder."""
        site = sorted(pathlib.Path(self._python).parent.parent.glob("lib/python*/site-packages/libtpu-*.dist-info"))
        return site[0].name if site else ""


def gib(size: float) -> str:
    """Formats bytes as GiB."""
    return f"{size / (1 << 30):.2f}"
