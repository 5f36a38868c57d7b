import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

import machine

CORES = f"usable cores: {len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"
XEON = (
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n\n"
)
EPYC = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7B13\nflags\t\t: fpu avx2\nbugs\t\t:\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd4f\n\n"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (2 * XEON, f"Intel(R) Xeon(R) Processor, {CORES}, AMX bf16, AVX-512 bf16"),
        (EPYC, f"AMD EPYC 7B13, {CORES}, no AMX bf16, no AVX-512 bf16"),
        (ARM, f"aarch64, {CORES}"),
        ("", f"aarch64, {CORES}"),
    ],
)
def test_the_processor_is_named_with_its_cores_and_its_bfloat16(cpuinfo, expected, monkeypatch):
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(machine.sys, "platform", "linux")
    assert machine.describe(cpuinfo) == expected


def test_macos_is_asked_for_the_name(monkeypatch):
    answer = machine.subprocess.CompletedProcess([], 0, stdout="Apple M2\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert machine.describe("") == f"Apple M2, {CORES}"


def test_every_benchmark_names_the_machine():
    texts = {path.stem: path.read_text() for path in pathlib.Path(machine.__file__).parent.glob("*.py")}
    started = {stem for stem, text in texts.items() if "__main__" in text}
    silent = {stem for stem in started if "machine.describe()" not in texts[stem]}
    assert silent == {"run", "official_step"}, "which runs the others; which times nothing"
