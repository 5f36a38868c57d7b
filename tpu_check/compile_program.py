r"""Compiles a program for a TPU chip without a TPU, and writes its memory, FLOPs and bytes accessed as JSON.

It runs in the environment of the TPU compiler, which has no TensorFlow, so it imports nothing from this repository.

python tpu_check/compile_program.py step.mlir --topology=v5e:2x2 --accelerator_type=v5litepod-4 --output=step.json
"""

import argparse
import json
import os
import pathlib
import re
import time

# Matches "Ran out of memory in memory space hbm. Used 20.15G of 15.75G hbm."
_OUT_OF_MEMORY = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def compile_program(program: str, topology: str, accelerator_type: str) -> tuple[dict, str]:
    """Compiles a program for the first chip of a topology.

    Args:
      program: StableHLO text.
      topology: the TPU compiler's name of the topology.
      accelerator_type: type of the TPU VM.

    Returns:
      A dict of results, and the text of the optimized program ("" if the program does not compile). The results are
      `arguments`, `outputs`, `aliased` (outputs that reuse the memory of an argument), `temporaries`, `code` and
      `accessed` in bytes, and `flops`. If compilation fails, the result is `error`; if memory is too small, also
      `memory_used` and `memory_limit` in bytes.
    """
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",  # do not query the metadata server of a TPU VM, which would take minutes to time out
        TPU_ACCELERATOR_TYPE=accelerator_type,
        TPU_WORKER_HOSTNAMES="localhost",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # no TPU is used, so several processes may load the library
        JAX_PLATFORMS="cpu",
    )
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
    try:
        compiled = device.client.compile(module, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    except RuntimeError as error:
        return _refusal(str(error)), ""
    memory, cost = compiled.get_compiled_memory_stats(), compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    found = {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "flops": cost["flops"],
        "accessed": cost["bytes accessed"],
    }
    return found, "\n".join(part.to_string() for part in compiled.hlo_modules())


def _refusal(message: str) -> dict:
    refusal = {"error": " ".join(message.split())[:500]}
    memory = _OUT_OF_MEMORY.search(message)
    if memory:
        used, used_unit, limit, limit_unit = memory.groups()
        refusal["memory_used"] = int(float(used) * _UNITS[used_unit])
        refusal["memory_limit"] = int(float(limit) * _UNITS[limit_unit])
    return refusal


def main() -> None:
    """Compiles one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    for name in ("topology", "accelerator_type"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    start = time.monotonic()
    found, optimized = compile_program(arguments.program.read_text(), arguments.topology, arguments.accelerator_type)
    found["seconds"] = round(time.monotonic() - start, 1)
    if optimized:
        arguments.output.with_suffix(".hlo").write_text(optimized)
    # Write this file last and atomically: its existence marks the program as compiled.
    unfinished = arguments.output.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=2) + "\n")
    unfinished.replace(arguments.output)


if __name__ == "__main__":
    main()
