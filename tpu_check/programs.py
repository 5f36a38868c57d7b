"""Programs on their way to a chip: what they must not hold, and what the compiler says of them, kept for a rerun."""

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

# A size that is known only at run time, and the operations that make one.
_DYNAMIC = re.compile(r"tensor<[^>]*\?|\bstablehlo\.(?:dynamic_reshape|dynamic_iota|real_dynamic_slice|dynamic_pad)\b"
                      r"|@(?:PadToStatic|SliceToDynamic)\b|\bset_dimension_size\b")  # fmt: skip
# What waits for the host in the midst of a step.
_HOST = re.compile(
    r"\bstablehlo\.(?:infeed|outfeed|send|recv)\b|\bcustom_call @(?:\w*callback\w*|MoveToHost|MoveToDevice)"
)
_HOST_WHEN_COMPILED = re.compile(
    r" (?:infeed|outfeed)\(|is_host_transfer=true|custom_call_target=\"(?:\w*callback\w*|MoveToHost|MoveToDevice)\""
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program on one chip; sizes in bytes.

    Attributes:
      arguments: weights, optimizer, and the batch.
      temporaries: what lives within a step.
      total: all that the chip's memory must hold.
      flops: of a step, elementwise arithmetic included.
      accessed: read and written by all fusions of a step, wherever it lies; the compiler's own count.
      moved: from and to the chip's memory, see `traffic`, by the operations of the model.
    """

    arguments: int
    temporaries: int
    total: int
    flops: float
    accessed: float
    moved: Mapping[str, int]


class DoesNotFit(InputError):
    """The program compiles, but not into the chip's memory.

    Attributes:
      used: bytes it would take.
      limit: bytes there are.
    """

    def __init__(self, message: str, used: int, limit: int):
        super().__init__(message)
        self.used, self.limit = used, limit


def check(program: str) -> None:
    """Refuses a program that a TPU would run badly or not at all.

    Args:
      program: StableHLO text.

    Raises:
      InputError: names the operation.
    """
    for kind, pattern in (("a shape that is not static", _DYNAMIC), ("a call to the host", _HOST)):
        found = pattern.search(program)
        if found:
            line = program[program.rfind("\n", 0, found.start()) + 1 : found.end()].strip()[-200:]
            raise InputError(f"{kind} inside the step: {line}")


class Compiler:
    """The TPU compiler, in an environment of its own.

    Args:
      python: of that environment.
      cache_dir: where programs and what became of them are kept.
    """

    def __init__(self, python: str, cache_dir: str):
        if not pathlib.Path(python).exists():
            raise InputError(f"--compiler={python}: no such file; make tpu-check installs the TPU compiler")
        self._python, self._cache = python, pathlib.Path(cache_dir)

    def compile(self, program: str, chip: Chip) -> Compiled:
        """Compiles, unless that has been done before.

        Args:
          program: StableHLO text.
          chip: what for.

        Raises:
          DoesNotFit: the chip's memory does not suffice.
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
                f"needs {gib(used)} GiB, of which {chip.name} has {gib(limit)} to use; take a smaller batch",
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
        """The compiler's version, by the folders of its installed packages."""
        site = sorted(pathlib.Path(self._python).parent.parent.glob("lib/python*/site-packages/libtpu-*.dist-info"))
        return site[0].name if site else ""


def gib(size: float) -> str:
    """Bytes as GiB, for people."""
    return f"{size / (1 << 30):.2f}"
