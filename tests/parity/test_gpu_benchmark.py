"""The pre-training step under JAX against TensorFlow, through both halves of `benchmarks/gpu`.

TensorFlow lowers the step and runs a few steps itself; XLA runs the lowered step in a process without TensorFlow.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(*words) -> subprocess.CompletedProcess:
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bundles")
    done = call("benchmarks.gpu", "lower", folder, "--cases=tiny_float32,tiny")
    assert done.returncode == 0, done.stderr
    # a program with folded dropout counters would be much longer
    assert all(path.stat().st_size < 100_000 for path in folder.glob("*.json.xz"))
    return folder


@pytest.mark.parametrize(
    ("case", "metrics", "weights"),
    # if rounding to bfloat16 changes the sign of a small gradient, Adam moves the weight in the other direction
    [("tiny_float32", 1e-6, 1e-6), ("tiny", 1e-3, 2e-3)],
)
def test_steps_under_jax_are_tensorflows(bundles, case, metrics, weights):
    done = call("benchmarks.gpu.worker", bundles, case, "check", 8)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["moved"] > 1e-3
    assert found["metrics"] <= metrics and found["weights"] <= weights


def test_a_run_checks_then_times_both_implementations(bundles, tmp_path):
    flags = "--cases=tiny", "--peers=bert_tf,eager", "--batch_size=4", "--steps=2", "--rounds=1"
    done = call("benchmarks.gpu", "run", bundles, *flags, f"--output={tmp_path}/out.jsonl")
    assert done.returncode == 0, done.stderr
    assert "largest differences from TensorFlow on a CPU" in done.stdout and "L=2 H=32 A=2 B=4 S=32 P=5" in done.stdout
    ours, peer = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert [ours["peer"], peer["peer"]] == ["bert_tf", "eager"]
    for facts in (ours, peer):
        assert facts["batch_size"] == 4 and facts["sequences_per_second"] == pytest.approx(4 / facts["seconds"])
        assert np.log(500) / 2 < facts["loss"] < 2 * np.log(500)  # random weights cannot predict one of 500 tokens
    assert ours["memory"] > 1 << 20  # three copies of 45,000 float32 weights, and activations


def test_a_step_with_another_loss_is_not_timed(bundles, tmp_path):
    shutil.copy(bundles / "tiny_float32.json.xz", tmp_path)
    with np.load(bundles / "tiny_float32.npz") as kept:
        np.savez(tmp_path / "tiny_float32.npz", **{**kept, "metrics": kept["metrics"] + 0.01})
    done = call("benchmarks.gpu", "run", tmp_path, "--cases=tiny_float32")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: tiny_float32: a loss differs by more than 1e-04")
    assert "sequences/s" not in done.stdout
