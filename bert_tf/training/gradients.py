"""Computes the gradients of the per-replica batch, at once or in micro-batches.

Paper: appendix A.2, batches of 256 rows. Micro-batches allow this batch size if fewer rows fit into a device's memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf
import tf_keras as keras

from bert_tf.modeling.dropout import fold_in
from bert_tf.training import metrics
from bert_tf.training.batch_parts import side_by_side, split

Scalars = dict[str, tf.Tensor]


class Objective(Protocol):
    """The task that a model is trained on."""

    couples_rows: bool  # whether the loss compares all rows of a batch. If so, the objective is a `CoupledObjective`.
    model: keras.Model
    metrics: tuple[metrics.Metric, ...]  # declarations of all loss terms, measured metrics and derived metrics

    def denominators(self, batch: Mapping) -> dict[str, dict[str, tf.Tensor]]:
        """Computes the denominators of the means, without running the model. Returns "loss": the denominator of each
        term of the loss by name, float32 []. "metrics": the denominator of each metric by name, float32 []. Both
        entries have the same names as in `numerators`."""

    def numerators(self, batch: Mapping, training: bool, seed: tf.Tensor | None) -> dict[str, dict[str, tf.Tensor]]:
        """Runs the model on a per-replica batch. Returns "loss": the numerator of each term of the loss by name,
        float32 []. "metrics": the numerator of each metric by name, float32 []. Metrics do not affect the gradients."""

    def loss(self, numerators: Scalars, denominators: Scalars) -> tf.Tensor:
        """Computes the loss, float32 []: the sum of numerator / denominator over the terms of the loss. If the
        numerators cover only some rows and the denominators cover all rows, the result is the contribution of the rows
        that the numerators cover."""


class CoupledObjective(Objective, Protocol):
    """An objective whose loss compares all rows of a batch; see `cached_gradients`."""

    def outputs(self, batch: Mapping, seed: tf.Tensor) -> tf.Tensor:
        """Runs the model on rows in training; returns float32 [rows, ...]."""

    def columns(self, batch: Mapping) -> dict[str, tf.Tensor]:
        """Returns the columns that the loss reads, [rows, ...]."""

    def numerators_of(self, outputs: tf.Tensor, columns: Mapping, is_own: tf.Tensor) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the numerators of the rows with `is_own`, float32 [rows], among the outputs of all replicas."""


def sums_over_replicas(values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Sums scalars over all replicas; call it in replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return dict(values)
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(list(values.values())))
    return dict(zip(values, tf.unstack(sums), strict=True))


def accumulate(
    objective: Objective,
    names: Sequence[str],
    variables: list[tf.Variable],
    batch: Mapping[str, tf.Tensor],
    seed: tf.Tensor,
    denominators: Mapping[str, tf.Tensor],
    *,
    micro_batches: int = 1,
    parts: int = 1,
    scaled: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    compiled: bool = False,
) -> tuple[list[tf.Tensor | None], Scalars]:
    """Computes the gradients of this replica's share of the loss, and sums the numerators over micro-batches. Memory
    contains the activations of only one micro-batch at a time. XLA can compile the loop over micro-batches, because all
    shapes are static and the loop does not communicate with other replicas.
    `batch`: the per-replica batch; `micro_batches` times `parts` must divide the number of rows.
    `seed`: seed of the dropout masks, int32 [2]. If there are several micro-batches or parts, each gets its own seed,
      which is derived from this seed.
    `denominators`: denominator of each loss term, float32 []. It is the sum over the batches of all replicas, so all
      predictions have equal weight, no matter which replica or micro-batch computes them.
    `micro_batches`: number of micro-batches.
    `parts`: number of parts of a micro-batch that are computed at the same time; see `batch_parts`.
    `scaled`: function that maps the loss to the value that is differentiated, such as the scaled loss.
    `compiled`: whether XLA compiles the whole computation as one program. Replicas communicate only before and after
      this program.
    Returns a list with one gradient per weight; a gradient is None if the loss does not depend on the weight. The
    numerators by name, float32 [] each."""

    def of_rows(rows, drawn):
        # The tape watches only these weights, so there is no backward pass through the frozen layers below.
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            terms = objective.numerators(rows, training=True, seed=drawn)
            loss = scaled(objective.loss(terms["loss"], denominators))
        return tape.gradient(loss, variables), terms["loss"] | terms["metrics"]

    seeds = derived_seeds(seed, micro_batches)

    def of_micro_batch(rows, drawn):
        return of_rows(rows, drawn) if parts == 1 else _in_parts(of_rows, rows, drawn, parts)

    def of_all_rows():
        if micro_batches == 1:
            return of_micro_batch(batch, seed)
        return summed_over_micro_batches(of_micro_batch, names, variables, batch, tf.stack(seeds))

    # Each replica has its own function, which captures the replica's own copies of the weights.
    return (tf.function(of_all_rows, jit_compile=True, autograph=False) if compiled else of_all_rows)()


def derived_seeds(seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    return [fold_in(seed, index) for index in range(count)] if count > 1 else [seed]


def _in_parts(of_rows: Callable, batch: Mapping, seed: tf.Tensor, count: int) -> tuple[list, Scalars]:
    """Applies `of_rows` to equal parts of a batch at the same time, and sums the results."""
    gradients, numerators = zip(*side_by_side(of_rows, batch, count, derived_seeds(seed, count)), strict=True)
    sums = [None if of_one[0] is None else _sum(of_one) for of_one in zip(*gradients, strict=True)]
    return sums, tf.nest.map_structure(lambda *terms: tf.add_n(terms), *numerators)


def _sum(terms: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor | tf.IndexedSlices:
    """Sums gradients of one weight; gradients of embedding tables stay sparse."""
    if not all(isinstance(term, tf.IndexedSlices) for term in terms):
        return tf.add_n([tf.convert_to_tensor(term) for term in terms])
    values, indices = (tf.concat([getattr(term, name) for term in terms], 0) for name in ("values", "indices"))
    return tf.IndexedSlices(values, indices, terms[0].dense_shape)


def summed_over_micro_batches(
    of_rows: Callable, names: Sequence[str], variables: list[tf.Variable], batch: Mapping, seeds: tf.Tensor
) -> tuple[list[tf.Tensor | None], Scalars]:
    """Applies `of_rows` to micro-batches one after another, and sums the results; `seeds` has a row for each."""
    count = seeds.shape[0]
    columns = split(batch, count)
    reached = []

    def add(index, sums, numerators):
        rows = {name: value[index] for name, value in columns.items()}
        gradients, more = of_rows(rows, seeds[index])
        reached[:] = [gradient is not None for gradient in gradients]
        pairs = zip(sums, gradients, strict=True)
        sums = [total if g is None else total + tf.convert_to_tensor(g) for total, g in pairs]
        return index + 1, sums, tf.nest.map_structure(tf.add, numerators, more)

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, sums, numerators = tf.while_loop(
        lambda index, *_: index < count,
        add,
        [tf.constant(0), zeros, {name: tf.zeros([]) for name in names}],
        parallel_iterations=1,  # otherwise, memory would contain the activations of several micro-batches
        maximum_iterations=count,
    )
    return [total if there else None for total, there in zip(sums, reached, strict=True)], numerators
