"""Compiles functions of tensors with XLA, either separately or as parts of a compiled step.

On a CPU, TensorFlow runs the matrix products, and XLA compiles the functions between them, one at a time.
On a TPU, XLA compiles the whole step, with the forward and the backward pass in one program. Without optimization
barriers, XLA would store float32 values that the next operation rounds anyway, and values that the backward pass should
compute again.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util

# Below this number of values, compiling and launching a function takes more time than it saves.
_LARGE = 1 << 16

# Whether TensorFlow is tracing a function that `compiled` compiles separately.
_compiled_alone = contextvars.ContextVar("compiled_alone", default=False)
# Whether a step is traced for a TPU that is not present; see `for_tpu`.
_for_tpu = contextvars.ContextVar("for_tpu", default=False)


def inside_xla() -> bool:
    """Returns whether XLA compiles the whole surrounding graph, not only a function given to `compiled`."""
    in_context = control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    return in_context and not _compiled_alone.get()


def keeps_axes() -> bool:
    """Returns whether XLA compiles the surrounding graph for a TPU, where it chooses the layout of each activation.
    There, reshaping an activation to a matrix would force a layout and cost copies. Everywhere else, activations become
    matrices: the libraries of CPUs and GPUs multiply matrices."""
    on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
    return inside_xla() and (on_tpu or _for_tpu.get())


@contextlib.contextmanager
def for_tpu(wanted: bool = True) -> Iterator[None]:
    """Traces steps for a TPU, although no TPU is present."""
    token = _for_tpu.set(wanted)
    try:
        yield
    finally:
        _for_tpu.reset(token)


def optimization_barrier(*tensors: tf.Tensor):
    """Returns the same tensors; XLA does not optimize across this point, so XLA stores the tensors in their dtype."""
    if inside_xla():
        tensors = _barrier(*tensors)
    return tensors if len(tensors) > 1 else tensors[0]


@tf.custom_gradient
def _barrier(*tensors):
    return xla.optimization_barrier(*tensors), lambda *upstream: upstream


def compiled(function: Callable) -> Callable:
    """Compiles a function of tensors with XLA; keyword arguments are Python values. Inside XLA, and if the first tensor
    is small or has an unknown shape, the function is not compiled separately."""

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def compiled_function(*arguments, **options):
        context = contextvars.copy_context()
        context.run(_compiled_alone.set, True)
        return context.run(function, *arguments, **options)

    @functools.wraps(function)
    def call(*arguments, **options):
        large = (tf.nest.flatten(arguments)[0].shape.num_elements() or 0) >= _LARGE
        return (compiled_function if large and not inside_xla() else function)(*arguments, **options)

    return call


def compiled_with_gradient(function: Callable) -> Callable:
    """Compiles a function of tensors, and its gradient as a second function of the same inputs. The backward pass
    computes the function again, so the forward pass stores only the inputs. All floating-point arguments get gradients.
    See `compiled` for the calls that are compiled separately."""
    forward = compiled(function)

    @compiled
    def gradient(arguments, upstream, **options):
        arguments = optimization_barrier(*arguments)
        inputs = [argument for argument in arguments if argument.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*arguments, **options)
        return optimization_barrier(*tape.gradient(outputs, inputs, upstream))

    @functools.wraps(function)
    def call(*arguments, **options):
        @tf.custom_gradient
        def run(*arguments):
            def backward(upstream):
                gradients = iter(tf.nest.flatten(gradient(arguments, upstream, **options)))
                return tuple(next(gradients) if argument.dtype.is_floating else None for argument in arguments)

            return forward(*arguments, **options), backward

        return run(*arguments)

    return call
