"""What a benchmark runs on: a speed means little without its processor."""

import os
import pathlib
import platform
import re
import subprocess
import sys

_CPUINFO = pathlib.Path("/proc/cpuinfo")
# Flags of /proc/cpuinfo, and what they say about bfloat16 products.
_BFLOAT16 = {"amx_bf16": "AMX bf16", "avx512_bf16": "AVX-512 bf16"}


def describe(cpuinfo: str | None = None) -> str:
    """One line: the processor, the cores that this process may use, and its instructions for bfloat16.

    Args:
      cpuinfo: text of /proc/cpuinfo; None reads it where there is one.
    """
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text() if _CPUINFO.exists() else ""
    facts = dict(re.findall(r"^([^\t:]+)\s*:[ \t]*(.*)$", cpuinfo, re.MULTILINE))
    flags = facts.get("flags", "").split()
    name = facts.get("model name") or _name_elsewhere() or "processor unknown"
    # only x86 has these flags; of others it says nothing rather than no
    bfloat16 = [what if flag in flags else f"no {what}" for flag, what in _BFLOAT16.items()] if flags else []
    return ", ".join([name, f"usable cores: {_cores()}", *bfloat16])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name_elsewhere() -> str:
    """The processor's name on macOS and on ARM, whose /proc/cpuinfo has none."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if found:
            return found
    return platform.processor() or platform.machine()
