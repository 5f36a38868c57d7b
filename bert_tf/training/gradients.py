"""Gradients of a replica's share of a step, for the whole per-replica batch or one micro-batch at a time.

Paper: appendix A.2: one step is a batch of 256 rows, however many of them fit into a device.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf
import tf_keras as keras

from bert_tf.training import metrics
from bert_tf.training.batch_parts import side_by_side, split

Scalars = dict[str, tf.Tensor]


class Objective(Protocol):
    """The task that a model is trained on.

    Attributes:
      model: the model.
      metrics: declares all loss terms and metrics, and those that are derived from them.
    """

    model: keras.Model
    metrics: tuple[metrics.Metric, ...]

    def denominators(self, batch: Mapping) -> dict[str, dict[str, tf.Tensor]]:
        """Computes what the numerators are divided by, without running the model.

        Returns:
          "loss" and "metrics": name to a denominator, float32 [], for each name that `numerators` returns.
        """

    def numerators(self, batch: Mapping, training: bool, seed: tf.Tensor | None) -> dict[str, dict[str, tf.Tensor]]:
        """Runs the model on a per-replica batch.

        Returns:
          "loss": name to a numerator, float32 [], for each term of the loss.
          "metrics": the same for what is only measured.
        """

    def loss(self, numerators: Scalars, denominators: Scalars) -> tf.Tensor:
        """Computes the loss, float32 [], the sum of the means of its terms.

        The result is the loss of a batch, or the share of some rows in it where the denominators are those of all rows.
        """


def sums_over_replicas(values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Sums scalars over all replicas; in replica context."""
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
    """Computes the gradients of this replica's share of the loss, and sums the numerators over micro-batches.

    The activations of one micro-batch are in memory at a time. All shapes are static and nothing is reduced over
    replicas here, so XLA compiles the loop.

    Args:
      objective: model and loss.
      names: of all numerators.
      variables: the weights.
      batch: the per-replica batch, whose first dimension `micro_batches` times `parts` divides.
      seed: int32 [2] for the dropout masks; each of several micro-batches or parts gets its own, derived from it.
      denominators: of each loss term, float32 [], over the whole batch of all replicas. So a prediction weighs
        the same in every replica and micro-batch.
      micro_batches: how many.
      parts: number of parts of a micro-batch that are computed at the same time; see `batch_parts`.
      scaled: maps the loss to the value whose gradients are taken.
      compiled: let XLA compile all of it as one program. A replica exchanges values with others only before and after.

    Returns:
      One gradient for each weight, None where the loss does not depend on it; and the numerators by name.
    """

    def of_rows(rows, drawn):
        # only these weights are watched, so nothing is computed for the gradients of frozen layers below them
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            terms = objective.numerators(rows, training=True, seed=drawn)
            loss = scaled(objective.loss(terms["loss"], denominators))
        return tape.gradient(loss, variables), terms["loss"] | terms["metrics"]

    # Outside of the compiled program, because XLA derives other seeds than TensorFlow does.
    seeds = _derived(seed, micro_batches)

    def of_micro_batch(rows, drawn):
        return of_rows(rows, drawn) if parts == 1 else _in_parts(of_rows, rows, drawn, parts)

    def of_all_rows():
        if micro_batches == 1:
            return of_micro_batch(batch, seed)
        return _summed(of_micro_batch, names, variables, batch, tf.stack(seeds))

    # A function of this replica alone: it captures the replica's own copies of the weights.
    return (tf.function(of_all_rows, jit_compile=True, autograph=False) if compiled else of_all_rows)()


def _derived(seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    fold_in = tf.random.experimental.stateless_fold_in
    return [fold_in(seed, index) for index in range(count)] if count > 1 else [seed]


def _in_parts(of_rows: Callable, batch: Mapping, seed: tf.Tensor, count: int) -> tuple[list, Scalars]:
    """Adds up what `of_rows` returns for equal parts of a batch, which are computed at the same time."""
    gradients, numerators = zip(*side_by_side(of_rows, batch, count, _derived(seed, count)), strict=True)
    sums = [None if of_one[0] is None else _sum(of_one) for of_one in zip(*gradients, strict=True)]
    return sums, tf.nest.map_structure(lambda *terms: tf.add_n(terms), *numerators)


def _sum(terms: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor | tf.IndexedSlices:
    """Adds up gradients of one weight; that of a table stays one of the rows that were read."""
    if not all(isinstance(term, tf.IndexedSlices) for term in terms):
        return tf.add_n([tf.convert_to_tensor(term) for term in terms])
    values, indices = (tf.concat([getattr(term, name) for term in terms], 0) for name in ("values", "indices"))
    return tf.IndexedSlices(values, indices, terms[0].dense_shape)


def _summed(
    of_rows: Callable, names: Sequence[str], variables: list[tf.Variable], batch: Mapping, seeds: tf.Tensor
) -> tuple[list[tf.Tensor | None], Scalars]:
    """Adds up what `of_rows` returns for the parts of a batch, one after the other; each has a row of `seeds`."""
    parts = seeds.shape[0]
    columns = split(batch, parts)
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
        lambda index, *_: index < parts,
        add,
        [tf.constant(0), zeros, {name: tf.zeros([]) for name in names}],
        parallel_iterations=1,  # otherwise memory would hold the activations of several
        maximum_iterations=parts,
    )
    return [total if there else None for total, there in zip(sums, reached, strict=True)], numerators
