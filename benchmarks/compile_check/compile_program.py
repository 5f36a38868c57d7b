r"""Compiles a program for a chip that this machine lacks, and writes memory, FLOPs and bytes accessed as JSON.

The script runs in the compiler's environment, which lacks TensorFlow. Therefore the script does not import any module
of this repository.

python benchmarks/compile_check/compile_program.py step.mlir --kind=tpu --target=v5e:2x2 \
    --accelerator_type=v5litepod-4 --output=step.json
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


def compile_program(program: str, kind: str, target: str, accelerator_type: str = "") -> tuple[dict, str]:
    """Compiles a program for one chip.

    Args:
      kind: "tpu" or "gpu".
      target: the TPU compiler's name of the topology, or XLA's target configuration of the GPU.
      accelerator_type: type of the TPU VM; "" for a GPU.

    Returns:
      A dictionary of results, and the text of the optimized program ("" if the program does not compile). The results:
      `arguments`, `outputs`, `temporaries`, `code`: sizes in bytes.
      `aliased`: size in bytes of the outputs that reuse the memory of an argument.
      `accessed`: number of bytes that the program reads and writes.
      `flops`: number of FLOPs.
      If compilation fails, the dictionary has only `error`. If it fails because the chip's memory is too small, the
      dictionary also has `memory_used` and `memory_limit`, in bytes.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    device = _tpu(target, accelerator_type) if kind == "tpu" else _gpu(target)

    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(program)
    try:
        compiled = device.client.compile(module, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    except RuntimeError as error:
        return _refusal(str(error)), ""
    memory, cost = compiled.get_compiled_memory_stats(), _cost(compiled, kind)
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


def _tpu(topology: str, accelerator_type: str):
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",  # the query of a TPU VM's metadata server would take minutes to time out
        TPU_ACCELERATOR_TYPE=accelerator_type,
        TPU_WORKER_HOSTNAMES="localhost",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # no TPU is used, so several processes may load the library
    )
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]


def _gpu(configuration: str):
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # this machine has neither a driver nor CUDA's libraries
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="cuda", target_config=configuration, topology="1x1x1").devices[0]


def _cost(compiled, kind: str) -> dict[str, float]:
    if kind == "gpu":  # the GPU compiler has no cost analysis, but XLA has a general analysis
        import jax
        from jax._src.lib import _jax

        return _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, compiled.hlo_modules()[0])
    cost = compiled.cost_analysis()
    return cost[0] if isinstance(cost, list) else cost


def _refusal(message: str) -> dict:
    refusal = {"error": " ".join(message.split())[:500]}
    memory = _OUT_OF_MEMORY.search(message)
    if memory:
        used, used_unit, limit, limit_unit = memory.groups()
        refusal["memory_used"] = int(float(used) * _UNITS[used_unit])
        refusal["memory_limit"] = int(float(limit) * _UNITS[limit_unit])
    return refusal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--kind", required=True, choices=("tpu", "gpu"))
    parser.add_argument("--target", required=True)
    parser.add_argument("--accelerator_type", default="")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    start = time.monotonic()
    program = arguments.program.read_text()
    found, optimized = compile_program(program, arguments.kind, arguments.target, arguments.accelerator_type)
    found["seconds"] = round(time.monotonic() - start, 1)
    if optimized:
        arguments.output.with_suffix(".hlo").write_text(optimized)
    # Write this file last and atomically, because `programs` regards the program as compiled if the file exists.
    unfinished = arguments.output.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=2) + "\n")
    unfinished.replace(arguments.output)


if __name__ == "__main__":
    main()
