"""Gradients of a replica's share of a step, worked out in one go or a micro-batch at a time.

Paper: appendix A.2: one step is a batch of 256 rows, however many of them fit into a device.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

# A batch and a seed to ratios of the loss's terms and of the metrics, see `trainer.Objective`.
Losses = Callable[[Mapping[str, tf.Tensor], tf.Tensor], dict[str, dict]]
Ratios = dict[str, tuple[tf.Tensor, tf.Tensor]]


def sums_over_replicas(values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Sums scalars over all replicas; in replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return dict(values)
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(list(values.values())))
    return dict(zip(values, tf.unstack(sums), strict=True))


def share_of_loss(ratios: Ratios, denominators: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """What these numerators add to the loss over the whole batch, whose `denominators` are given."""
    parts = [tf.math.divide_no_nan(ratios[name][0], whole) for name, whole in denominators.items()]
    return tf.add_n(parts)


def accumulated(
    losses: Losses,
    names: Sequence[str],
    variables: list[tf.Variable],
    batch: Mapping[str, tf.Tensor],
    seed: tf.Tensor,
    denominators: Mapping[str, tf.Tensor],
    *,
    micro_batches: int = 1,
    scaled: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> tuple[list[tf.Tensor | None], Ratios]:
    """Gradients of this replica's share of the loss, and the ratios, summed over micro-batches.

    The activations of one micro-batch are in memory at a time. All shapes are static, nothing is reduced over
    replicas here, so the loop compiles as it stands.

    Args:
      losses: ratios of a batch.
      names: of all of them.
      variables: the weights.
      batch: this replica's, whose first dimension `micro_batches` divides.
      seed: int32 [2] for the dropout masks; each of several micro-batches has its own from it.
      denominators: of each term of the loss, float32 [], over the whole batch of all replicas: so a prediction weighs
        the same in whichever replica and micro-batch it is.
      micro_batches: how many.
      scaled: the loss that is derived, from the loss.

    Returns:
      One gradient a weight, None for those that the loss does not reach; and ratios by their names.
    """

    def of_rows(rows, drawn):
        with tf.GradientTape() as tape:
            terms = losses(rows, drawn)
            loss = scaled(share_of_loss(terms["loss"], denominators))
        return tape.gradient(loss, variables), terms["loss"] | terms["metrics"]

    return (
        of_rows(batch, seed) if micro_batches == 1 else _summed(of_rows, names, variables, batch, seed, micro_batches)
    )


def _summed(
    of_rows: Callable, names: Sequence[str], variables: list[tf.Variable], batch: Mapping, seed: tf.Tensor, parts: int
) -> tuple[list[tf.Tensor | None], Ratios]:
    """What `of_rows` gives of rows and seed, added up over the parts of a batch, one after the other."""
    columns = {
        name: tf.reshape(value, [parts, value.shape[0] // parts, *value.shape[1:]]) for name, value in batch.items()
    }
    reached = []

    def add(index, sums, ratios):
        rows = {name: value[index] for name, value in columns.items()}
        gradients, more = of_rows(rows, tf.random.experimental.stateless_fold_in(seed, index))
        reached[:] = [gradient is not None for gradient in gradients]
        pairs = zip(sums, gradients, strict=True)
        sums = [total if g is None else total + tf.convert_to_tensor(g) for total, g in pairs]
        return index + 1, sums, tf.nest.map_structure(tf.add, ratios, more)

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, sums, ratios = tf.while_loop(
        lambda index, *_: index < parts,
        add,
        [tf.constant(0), zeros, {name: (tf.zeros([]), tf.zeros([])) for name in names}],
        parallel_iterations=1,  # or memory would hold several
        maximum_iterations=parts,
    )
    return [total if there else None for total, there in zip(sums, reached, strict=True)], ratios
