"""Runs a bundle's step with JAX: many steps in one program, with the state on the device."""

import dataclasses
import re
from collections.abc import Callable, Mapping

import jax

jax.config.update("jax_enable_x64", True)  # step counters are int64

import jax.numpy as jnp
import numpy as np
from jax import export
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from benchmarks.gpu import cases
from benchmarks.gpu.bundle import Bundle

_DTYPES = {"i1": np.bool_, "i32": np.int32, "i64": np.int64, "f32": np.float32}
_INITIAL_RANGE = 0.02
# The values of all arguments that are not batch columns: variables, moments, metrics and counters.
State = list[jax.Array]


class Steps:
    """The steps of a bundle for one batch size.

    Args:
      bundle: the bundle with the step.
      batch_size: B.
      exact: whether to compute float32 products in float32. Otherwise, a GPU rounds the factors to fewer bits.

    Attributes:
      state: indices of the arguments that are not batch columns, in the order of a `State`.
      platform: JAX's name of the platform.
    """

    def __init__(self, bundle: Bundle, batch_size: int, exact: bool = False):
        self._bundle, self._batch_size = bundle, batch_size
        text = bundle.program(batch_size)
        if exact:
            text = text.replace("precision = [DEFAULT, DEFAULT]", "precision = [HIGHEST, HIGHEST]")
        signature = text[text.index("func.func @main(") :].split(") -> ")[0]
        types = re.findall(r"%arg\d+: tensor<([^>]*)>", signature)
        self._arguments = [_shape(kind) for kind in types]
        places = {one.result: index for index, one in enumerate(bundle.arguments) if one.result is not None}
        self._changed = [places[result] for result in range(len(places))]  # the argument that each result replaces
        self.state = [index for index, one in enumerate(bundle.arguments) if one.role != "batch"]
        self.platform = jax.devices()[0].platform
        self._step = self._exported(text)

    def _exported(self, text: str) -> Callable:
        """Wraps the program into a function that JAX can trace."""
        # jax.export takes the aliasing of arguments and results from `jax.jit`, so remove the program's own aliasing.
        text = re.sub(r"^(module @\S+) attributes \{.*\} \{", r"\1 {", text, flags=re.MULTILINE)
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            serialized = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
        results = [self._arguments[index] for index in self._changed]

        def same_signature(*_):
            return tuple(jnp.zeros(result.shape, result.dtype) for result in results)

        platform = {"gpu": "cuda"}.get(self.platform, self.platform)
        shell = export.export(jax.jit(same_signature, keep_unused=True), platforms=[platform])(*self._arguments)
        kept = tuple(range(len(self._arguments)))
        return dataclasses.replace(shell, mlir_module_serialized=serialized, module_kept_var_idx=kept).call

    def columns(self, seeds: range) -> dict[str, jax.Array]:
        """Returns the columns of one batch per seed, on the device; the batches are stacked along the first axis."""
        drawn = [cases.batch(self._bundle.case, self._batch_size, seed) for seed in seeds]
        return {name: jnp.asarray(np.stack([one[name] for one in drawn])) for name in drawn[0]}

    def run(self, count: int | jax.Array, state: State, columns: Mapping[str, jax.Array]) -> State:
        """Runs steps in a loop on the device; `compiled` compiles this method.

        Args:
          count: number of steps.
          state: the arguments that are not batch columns.
          columns: stacked batches, see `columns`. The steps use the batches in turn.

        Returns:
          The state after the last step.
        """
        batches = len(next(iter(columns.values())))

        def step(number, state):
            given = dict(zip(self.state, state, strict=True))
            for index, one in enumerate(self._bundle.arguments):
                if one.role == "batch":
                    given[index] = jax.lax.dynamic_index_in_dim(columns[one.name], number % batches, keepdims=False)
            given |= zip(self._changed, self._step(*(given[index] for index in range(len(given)))), strict=True)
            return [given[index] for index in self.state]

        return jax.lax.fori_loop(0, count, step, list(state))

    def compiled(self, columns: Mapping[str, jax.Array]):
        """Compiles `run`. The compiled function reuses the memory of its argument `state`."""
        shapes = [self._arguments[index] for index in self.state]
        count = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.jit(self.run, donate_argnums=1).lower(count, shapes, dict(columns)).compile()

    def initial_state(self) -> State:
        """Draws matrices on the device from a normal distribution. Layer-norm scales are 1; everything else is 0."""

        def draw(key):
            return [self._initial(index, jax.random.fold_in(key, index)) for index in self.state]

        return jax.jit(draw)(jax.random.key(0))

    def _initial(self, index: int, key: jax.Array) -> jax.Array:
        one, shape = self._bundle.arguments[index], self._arguments[index]
        if one.role == "weight":
            if one.name.endswith("gamma:0"):
                return jnp.ones(shape.shape, shape.dtype)
            if not one.name.endswith(("beta:0", "bias:0")):
                return _INITIAL_RANGE * jax.random.normal(key, shape.shape, shape.dtype)
        return jnp.zeros(shape.shape, shape.dtype)

    def named(self, state: State) -> dict[str, jax.Array]:
        """Returns the state as a map from "ROLE NAME" to the value, in the form that `lower` records."""
        arguments = [self._bundle.arguments[index] for index in self.state]
        return {f"{one.role} {one.name}": value for one, value in zip(arguments, state, strict=True)}

    def metrics(self, state: State) -> dict[str, float]:
        """Returns the means of all metrics since the first step."""
        found = self.named(state)
        totals = {name.removeprefix("total "): float(found[name]) for name in found if name.startswith("total ")}
        return {name: total / float(found[f"weight_of_mean {name}"]) for name, total in totals.items()}


def _shape(kind: str) -> jax.ShapeDtypeStruct:
    *sizes, dtype = kind.split("x")
    return jax.ShapeDtypeStruct(tuple(map(int, sizes)), _DTYPES[dtype])
