"""Checks and times bundles: the half of the benchmark that does not need TensorFlow.

Each peer has its own process, and waits while another process is timed. Rounds alternate, so that other load on the
machine affects all peers.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

from benchmarks.gpu import bundle, largest_batch
from benchmarks.gpu.bundle import Bundle
from benchmarks.gpu.worker import COMPILED, EAGER, OURS
from bert_tf.compile_check.programs import Compiled, DoesNotFit

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = {
    OURS: "bert_tf",
    COMPILED: "Hugging Face BertForPreTraining, torch.compile",
    EAGER: "the same without torch.compile",
}
# Largest allowed relative difference of a loss or gradient norm from TensorFlow's value on a CPU. The causes of such
# differences are rounding and the order of sums.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}


class Worker:
    """The process of a peer; see `worker`.

    Attributes:
      setup: the first answer of the process; None if the step does not fit.
      needed: if the step does not fit, the number of bytes that the step needs; 0 if unknown.
    """

    def __init__(self, folder: pathlib.Path, case: str, peer: str, batch_size: int):
        command = [sys.executable, "-m", "benchmarks.gpu.worker", str(folder.resolve()), case, peer, str(batch_size)]
        # Each process must allocate memory only as needed, because several processes share the device.
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".95"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._command = command
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
        self.setup = self._answer()
        self.needed = self.setup.get("needed", 0)
        if self.setup.get("out_of_memory"):
            self.setup = None

    def round(self, steps: int) -> dict:
        """Lets the process run and time a number of steps; returns the answer of the process."""
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            sys.exit(f"error: the process ended with exit code {self._process.returncode}: {' '.join(self._command)}")
        return json.loads(line)

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def run(arguments: argparse.Namespace) -> None:
    """Checks the requested bundles that have recorded steps, then times the requested bundles."""
    wanted = [name for name in arguments.cases.split(",") if name in bundle.names(arguments.folder)]
    if not wanted:
        sys.exit(
            f"error: {arguments.folder}: no bundle of --cases; write bundles with `python -m benchmarks.gpu lower`"
        )
    for name in wanted:
        found = bundle.read(arguments.folder, name)
        if found.case.checked_steps:
            _check(arguments.folder, name, found)
    for name in wanted:
        found = bundle.read(arguments.folder, name)
        # Checked steps are too small for a meaningful time. Time a checked step only if no other step is requested.
        if not found.case.checked_steps or len(wanted) == 1:
            _time(arguments, name, found)


def _check(folder: pathlib.Path, name: str, found: Bundle) -> None:
    worker = Worker(folder, name, "check", found.case.batch_size)
    worker.stop()
    differences = {key: f"{value:.1e}" for key, value in worker.setup.items()}
    print(f"{name}, {found.case.checked_steps} steps, largest differences from TensorFlow on a CPU: {differences}")
    if not worker.setup["metrics"] <= _TOLERANCE[found.case.dtype]:
        sys.exit(f"error: {name}: a loss differs by more than {_TOLERANCE[found.case.dtype]:.0e}, so no step is timed")


def _time(arguments: argparse.Namespace, name: str, found: Bundle) -> None:
    """Times the peers on one case, and prints a table."""
    case, batch_size = found.case, arguments.batch_size or found.case.batch_size
    # Hugging Face's model does not support packed rows.
    peers = [peer for peer in arguments.peers.split(",") if peer == OURS or not case.packed]
    print(
        f"\n{name}: L={case.layers} H={case.hidden} A={case.heads} B={batch_size} S={case.length} P={case.predictions}"
        f" {case.dtype}{', two examples per row' if case.packed else ''}",
        flush=True,
    )
    workers, rounds = {}, {peer: [] for peer in peers}
    try:
        for peer in peers:  # sequentially, because each setup uses the whole machine
            worker = workers[peer] = Worker(arguments.folder, name, peer, batch_size)
            if worker.setup is None:
                print(f"  {PEERS[peer]:<48} {batch_size} rows do not fit")
                continue
            print(f"  {PEERS[peer]:<48} set up in {worker.setup['setup']:.0f} s; {worker.setup['name']}", flush=True)
        for _ in range(arguments.rounds):
            for peer, worker in workers.items():
                if worker.setup:
                    rounds[peer].append(worker.round(arguments.steps))
    finally:
        for worker in workers.values():
            worker.stop()
    rounds = {peer: measured for peer, measured in rounds.items() if measured}
    if not rounds:
        return
    rate = max(one["product_rate"] for measured in rounds.values() for one in measured)
    print(f"  a large bfloat16 product runs at {rate / 1e12:.1f} TFLOP/s; shares count only FLOPs actually computed")
    ours = min((one["seconds"] for one in rounds.get(OURS, [])), default=math.nan)
    for peer, measured in rounds.items():
        seconds = min(one["seconds"] for one in measured)
        flops = batch_size * (found.flops if peer == OURS else found.full_flops)
        facts = {
            "case": name, "peer": peer, "batch_size": batch_size, "seconds": seconds,
            "sequences_per_second": batch_size * case.examples / seconds, "share": flops / seconds / rate,
            "product_rate": rate, "memory": workers[peer].setup["memory"], "loss": measured[-1]["loss"],
            "rounds": [one["seconds"] for one in measured], "on": workers[peer].setup["name"],
        }  # fmt: skip
        print(
            f"  {PEERS[peer]:<48} {1e3 * seconds:9.2f} ms {facts['sequences_per_second']:9.1f} sequences/s "
            f"{facts['share']:5.1%} {facts['memory'] / 2**30:7.2f} GiB {seconds / ours:5.2f} times ours, "
            f"loss {facts['loss']:.3f}",
            flush=True,
        )
        _keep(arguments.output, facts)
        if not math.isfinite(facts["loss"]):
            sys.exit(f"error: {name}: the loss of {PEERS[peer]} is not finite")
    if arguments.largest_batch:
        for peer in rounds:
            largest = _largest(arguments.folder, name, peer, batch_size)
            print(f"  {PEERS[peer]:<48} largest batch {largest.fits}; {largest.refused} rows do not fit", flush=True)
            _keep(arguments.output, {"case": name, "peer": peer, "fits": largest.fits, "refused": largest.refused})


def _largest(folder: pathlib.Path, name: str, peer: str, start: int) -> largest_batch.Found:
    """Searches for the largest batch size with which a peer can run a step."""
    fitted = {}

    def measured(batch_size: int) -> Compiled:
        worker = Worker(folder, name, peer, batch_size)
        worker.stop()
        if worker.setup is None:
            # PyTorch does not report the required memory, so scale the memory of a smaller batch by the number of rows.
            rows = max((rows for rows in fitted if rows < batch_size), default=0)
            needed, limit = worker.needed, max((limit for _, limit in fitted.values()), default=1)
            needed = needed or (int(fitted[rows][0] * batch_size / rows) if rows else 2 * limit)
            raise DoesNotFit("", max(needed, limit + 1), limit)
        if not worker.setup["limit"]:
            sys.exit("error: --largest_batch: this device does not report its memory; remove the flag")
        fitted[batch_size] = worker.setup["memory"], worker.setup["limit"]
        return Compiled(0, 0, worker.setup["memory"], 0.0, 0.0, pathlib.Path())

    return largest_batch.search(measured, start)


def _keep(path: pathlib.Path | None, facts: dict) -> None:
    if path:
        with path.open("a") as file:
            file.write(json.dumps(facts) + "\n")
