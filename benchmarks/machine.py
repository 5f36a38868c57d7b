"""Describes the machine of a benchmark, because speeds depend on the processor."""

import os
import pathlib
import platform
import re
import subprocess
import sys

_CPUINFO = pathlib.Path("/proc/cpuinfo")
# Maps flags in /proc/cpuinfo to the names of bfloat16 instructions.
_BFLOAT16 = {"amx_bf16": "AMX bf16", "avx512_bf16": "AVX-512 bf16"}


def describe(cpuinfo: str | None = None) -> str:
    """Returns one line: the processor, the number of usable cores, and the processor's bfloat16 instructions.

    Args:
      cpuinfo: text of /proc/cpuinfo; if None, this function reads the file. A missing file counts as empty.
    """
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text() if _CPUINFO.exists() else ""
    facts = dict(re.findall(r"^([^\t:]+)\s*:[ \t]*(.*)$", cpuinfo, re.MULTILINE))
    flags = facts.get("flags", "").split()
    name = facts.get("model name") or _name_elsewhere() or "processor unknown"
    # Only x86 has these flags, so bfloat16 instructions of other processors are not reported.
    bfloat16 = [what if flag in flags else f"no {what}" for flag, what in _BFLOAT16.items()] if flags else []
    return ", ".join([name, f"usable cores: {_cores()}", *bfloat16])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name_elsewhere() -> str:
    """Returns the processor's name on macOS and ARM, where /proc/cpuinfo does not contain this name."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if found:
            return found
    return platform.processor() or platform.machine()
