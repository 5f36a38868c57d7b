"""Computes the gradients of a loss that compares all rows of a batch, in memory for one micro-batch.

First, the model computes the outputs of all rows, without keeping activations. Then the loss of all outputs gives the
gradient of each output. Last, the model computes each micro-batch again, with the same dropout masks, and propagates
these gradients to the weights. The result is the gradient of the whole batch.

Paper: L. Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021 (GradCache).

Letters: B rows of a replica, R replicas.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.training.batch_parts import side_by_side, split
from bert_tf.training.gradients import CoupledObjective, Scalars, derived_seeds, summed_over_micro_batches

# Name of the column with the gradients of the outputs.
_UPSTREAM = "upstream"


def accumulate(
    objective: CoupledObjective,
    variables: Sequence[tf.Variable],
    batch: Mapping[str, tf.Tensor],
    seed: tf.Tensor,
    denominators: Mapping[str, tf.Tensor],
    *,
    micro_batches: int = 1,
    parts: int = 1,
    scaled: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> tuple[list[tf.Tensor | None], Scalars]:
    """Computes the gradients of this replica's rows; for the arguments and the result, see `gradients.accumulate`."""

    def run_model(rows, drawn):
        if parts == 1:
            return objective.outputs(rows, drawn)
        return tf.concat(side_by_side(objective.outputs, rows, parts, derived_seeds(drawn, parts)), 0)

    def watched(rows, drawn):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            outputs = run_model(rows, drawn)
        return outputs, lambda upstream: tape.gradient(outputs, variables, output_gradients=upstream)

    if micro_batches == 1:
        outputs, gradients_of = watched(batch, seed)
        upstream, numerators = _of_outputs(objective, outputs, batch, denominators, scaled)
        return gradients_of(upstream), numerators
    seeds, columns = tf.stack(derived_seeds(seed, micro_batches)), split(batch, micro_batches)
    outputs = tf.map_fn(
        lambda index: run_model({name: column[index] for name, column in columns.items()}, seeds[index]),
        tf.range(micro_batches), fn_output_signature=tf.float32, parallel_iterations=1,
    )  # fmt: skip
    outputs = tf.reshape(outputs, [-1, outputs.shape[-1]])
    upstream, numerators = _of_outputs(objective, outputs, batch, denominators, scaled)

    def again(rows, drawn):
        rows = dict(rows)
        own = rows.pop(_UPSTREAM)
        return watched(rows, drawn)[1](own), {}

    sums, _ = summed_over_micro_batches(again, (), variables, {**batch, _UPSTREAM: upstream}, seeds)
    return sums, numerators


def _of_outputs(
    objective: CoupledObjective, outputs: tf.Tensor, batch: Mapping, denominators: Mapping, scaled: Callable
) -> tuple[tf.Tensor, Scalars]:
    """Returns the gradients of this replica's outputs, and the numerators of its rows. Every replica compares its own
    rows with the rows of all replicas."""
    context, columns = tf.distribute.get_replica_context(), objective.columns(batch)
    size = outputs.shape[0] or tf.shape(outputs)[0]
    first = context.replica_id_in_sync_group * size
    if context.num_replicas_in_sync > 1:
        outputs, columns = tf.nest.map_structure(lambda value: context.all_gather(value, axis=0), (outputs, columns))
    numbers = tf.range(tf.shape(outputs)[0])
    is_own = tf.cast((numbers >= first) & (numbers < first + size), tf.float32)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(outputs)
        terms = objective.numerators_of(outputs, columns, is_own)
        loss = scaled(objective.loss(terms["loss"], denominators))
    gradient = tape.gradient(loss, outputs)
    if context.num_replicas_in_sync > 1:
        gradient = context.all_reduce(tf.distribute.ReduceOp.SUM, gradient)
    return gradient[first : first + size], terms["loss"] | terms["metrics"]
