import json
import os
import stat
import sys
from unittest import mock

import pytest

from benchmarks.compile_check import compile_program, programs, steps
from benchmarks.compile_check.check import run_check
from benchmarks.compile_check.chips import CHIPS
from benchmarks.compile_check.settings import CompileCheckSettings
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from tests.kit import refused

V5E = CHIPS["v5e"]
FOUND = {
    "arguments": 3 << 30, "outputs": 3 << 30, "aliased": 2 << 30, "temporaries": 5 << 30, "code": 1 << 30,
    "flops": 2e12, "accessed": 3e10, "seconds": 1.0,
}  # fmt: skip
HLO = """HloModule step

ENTRY %main () -> f32[2,128] {
  ROOT %d = f32[2,128] slice-done(%s)
}
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes a fake compiler that writes the given results, and counts its runs in the file `runs`."""
    monkeypatch.chdir(tmp_path)  # the folder of the cached results

    def make(found: dict, hlo: str = HLO, crash: str = "") -> programs.Compiler:
        script = tmp_path / "python"
        script.write_text(
            f"#!{sys.executable}\n"
            "import pathlib, sys\n"
            f"with open({str(tmp_path / 'runs')!r}, 'a') as runs: runs.write('.')\n"
            f"crash = {crash!r}\n"
            "if crash: sys.exit(crash)\n"
            "output = pathlib.Path(sys.argv[-1].removeprefix('--output='))\n"
            f"output.with_suffix('.hlo').write_text({hlo!r})\n"
            f"output.write_text({json.dumps(found)!r})\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return programs.Compiler({"tpu": str(script), "gpu": str(script)}, str(tmp_path / "cache"))

    return make


def refusal(message: str) -> dict:
    """What the script writes if the compiler refuses a program with a message; a stub replaces JAX."""
    jax = mock.MagicMock()
    device = jax.experimental.topologies.get_topology_desc.return_value.devices.__getitem__.return_value
    device.client.compile.side_effect = RuntimeError(message)
    modules = {"jax.experimental": jax.experimental}
    modules |= {f"jax._src.{name}": jax for name in ("interpreters", "lib", "lib.mlir")}
    with mock.patch.dict(sys.modules, modules), mock.patch.dict(os.environ):
        return compile_program.compile_program("module {}", "tpu", "v5e:2x2")[0]


def test_program_too_large_reports_needed_memory(compiler):
    found = refusal("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.25G of 15.75G hbm.")
    with pytest.raises(programs.DoesNotFit, match=r"needs 20.25 GiB, but v5e has 15.75 available") as caught:
        compiler(found).compile("module {}", V5E)
    assert caught.value.used == 81 << 28


@pytest.mark.parametrize(
    ("found", "hlo", "crash", "message"),
    [
        (refusal("UNIMPLEMENTED: no\n such op"), HLO, "", "does not compile: UNIMPLEMENTED: no such op"),
        (FOUND, HLO.replace("slice-done(%s)", "outfeed(%s)"), "", "a call to the host"),
        (FOUND, HLO, "no libtpu", "ended with code 1: no libtpu"),
    ],
)
def test_failures_are_one_line(compiler, found, hlo, crash, message):
    refused(message, compiler(found, hlo, crash).compile, "module {}", V5E)


@pytest.mark.parametrize(
    "line",
    [
        "%1 = stablehlo.custom_call @xla_python_cpu_callback(%0) : (tensor<4xf32>) -> tensor<4xf32>",
        '%1 = "stablehlo.send"(%0, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token',
        "%1 = stablehlo.dynamic_reshape %0, %s : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>",
        "%1 = stablehlo.add %0, %0 : tensor<?x4xf32>",
    ],
)
def test_host_calls_and_dynamic_shapes_are_refused(line):
    refused("inside the step", programs.check, f"func.func @main() {{\n {line}\n}}")


def check_settings(tmp_path, python, *more) -> CompileCheckSettings:
    (tmp_path / "bert_config.json").write_text(
        '{"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, '
        '"intermediate_size": 32}'
    )
    return parse(
        CompileCheckSettings,
        [
            f"--bert_config_file={tmp_path}/bert_config.json", "--train_batch_size=2", "--max_seq_length=8",
            "--max_predictions_per_seq=2", f"--tpu_compiler={python}", *more,
        ],
    )  # fmt: skip


def traced_elsewhere(config, shape, device) -> str:
    """Replaces `steps.our_step`, which takes seconds."""
    return f"module {{}} // {shape}"


@pytest.mark.slow
def test_table_has_row_per_chip_and_failure_is_error(compiler, tmp_path, capsys, monkeypatch):
    compiler(FOUND)
    run_check(check_settings(tmp_path, tmp_path / "python"))
    monkeypatch.setattr(steps, "our_step", traced_elsewhere)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("L=1 H=16")]
    assert [row.split()[4] for row in rows] == ["v5e", "v4"]
    assert "10.2" in rows[0] and rows[0].endswith(".hlo")  # ms: 2 TFLOP at 197 TFLOP/s

    compiler(refusal("Used 20.25G of 15.75G hbm"))
    with pytest.raises(InputError, match="1 of 1 steps failed"):
        run_check(check_settings(tmp_path, tmp_path / "python", "--chips=v5e", "--max_seq_length=9"))
    assert "S=9, B=2, v5e: needs 20.25 GiB" in capsys.readouterr().err


def test_the_memory_of_a_gpu_is_checked(compiler, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(steps, "our_step", traced_elsewhere)
    compiler(FOUND)
    flags = f"--gpu_compiler={tmp_path}/python", "--chips=h200,a100"
    run_check(check_settings(tmp_path, tmp_path / "missing", *flags))
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[4] for row in rows if row.startswith("L=1 H=16")] == ["h200", "a100"]

    too_large = {**FOUND, "temporaries": 90 << 30}
    compiler(too_large)
    with pytest.raises(InputError, match="1 of 2 steps failed"):
        run_check(check_settings(tmp_path, tmp_path / "missing", *flags, "--max_seq_length=9"))
    assert "B=2, a100: needs 95.00 GiB, but a100 has 80.00 available" in capsys.readouterr().err
