"""Makes batches of encoded rows according to a plan; several rows may share a packed row."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core.datasets import without_autotune
from bert_tf.finetuning.row_plan import PackedShape, RowPlan, plan_evaluation
from bert_tf.finetuning.task import Split, Task
from bert_tf.input.per_replica import per_replica_batches
from bert_tf.tokenization import BertTokenizer

# Number of tokens in a batch of `one_pass`, including padding. Larger batches are not faster on a CPU.
_TOKENS_PER_BATCH = 4096
# In a packed batch, the columns with an entry for each row have this prefix. The other columns describe packed rows.
_ROW = "row/"


def row_columns(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the columns that have an entry for each row, [B, ...]. The batch may be packed or unpacked."""
    packed = {name.removeprefix(_ROW): column for name, column in batch.items() if name.startswith(_ROW)}
    return packed or dict(batch)


def one_pass(
    split: Split, task: Task, tokenizer: BertTokenizer, max_seq_length: int, strategy: tf.distribute.Strategy,
    packed_for: BertConfig | None,
) -> tuple[RowPlan, Callable[[tf.distribute.InputContext], tf.data.Dataset]]:  # fmt: skip
    """Returns a plan of one pass over a split, and a function that returns the batches of a worker."""
    slices = strategy.num_replicas_in_sync
    plan = plan_evaluation(
        split.lengths,
        batch_size=max(1, _TOKENS_PER_BATCH // max_seq_length) * slices,
        max_seq_length=max_seq_length,
        slices=slices,
        packed_for=packed_for,
        rows_per_example=task.rows_per_example(split),
    )
    options = {"max_seq_length": max_seq_length, "slices": slices}
    return plan, lambda context: row_batches(split, task, tokenizer, plan, **options, input_context=context)


def row_batches(
    split: Split,
    task: Task,
    tokenizer: BertTokenizer,
    plan: RowPlan,
    *,
    max_seq_length: int,
    slices: int = 1,
    slices_per_replica: int = 1,
    start: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of the batches of a plan; see `row_plan` for slices.
    `split`: a split with N rows.
    `task`: task that makes the model's inputs, and that determines what the batch size counts; see
      `Task.rows_per_example`.
    `tokenizer`: provides the ids of special tokens.
    `max_seq_length`: sequence length, S.
    `slices`: number of the plan's slices in a global batch. Each element of the dataset is one per-replica
      batch.
    `slices_per_replica`: number of slices in a per-replica batch.
    `start`: number of batches to skip.
    `input_context`: the context that identifies this worker; None for a single replica.
    Returns dataset of dicts. Each dict has the task's `model_inputs` and the dense columns of the rows. If the split
    has stored activations or a teacher's outputs, the dict has `activations` or `teacher_outputs`. Each dict also has:
    - `row_weights`: float32 [B], 0 for padding rows, which only fill the batch, and 1 for all other rows.
    - `row_ids`: int64 [B], indices of the rows; N for padding rows.
    - `data_position`: int32 [B, 3], the `Position` after the batch.
    In a packed batch, all these columns except `data_position` have the prefix "row/"; see `row_columns`. A packed
    batch also has the encoder's inputs for R packed rows, and these columns:
    - `slots`: int32 [B], index of each row among the R K pooled outputs of the encoder.
    - `starts`: int32 [B], index of each row's first token among the R W positions of the encoder's outputs."""
    count, rows_per_example = len(split), task.rows_per_example(split)
    num_examples = count if rows_per_example is None else len(rows_per_example)
    ids = tf.constant(plan.ids.reshape(-1, slices * plan.ids.shape[1]))
    size = ids.shape[1]
    places = None if plan.places is None else tf.constant(plan.places.reshape(-1, size, 3))

    # These two functions have no Python control flow. AutoGraph's analysis of them would take longer than tracing.
    @tf.autograph.experimental.do_not_convert
    def batch_of(number):
        used = (number + 1) * plan.examples * slices
        position = tf.cast(tf.stack([used // num_examples, used % num_examples, 0]), tf.int32)
        batch = {"row_ids": tf.cast(ids[number], tf.int64)}
        batch["data_position"] = tf.repeat(position[tf.newaxis], size, axis=0)
        return batch if places is None else batch | {"places": places[number]}

    @tf.autograph.experimental.do_not_convert
    def gather(batch):
        row_ids, position = batch["row_ids"], batch["data_position"]
        real = row_ids < count
        rows = tf.where(real, row_ids, 0)
        columns = {name: tf.gather(column, rows) for name, column in split.columns.items()}
        inputs = task.model_inputs(columns, tokenizer, max_seq_length)
        if split.activations is not None:
            inputs["activations"] = split.activations.of_rows(rows)
        if split.teacher_outputs is not None:
            inputs["teacher_outputs"] = split.teacher_outputs.of_rows(rows)
        # Operations on ragged columns lose the static number of rows. Micro-batches and TPUs need this number.
        inputs = {name: tf.ensure_shape(value, [rows.shape[0], *value.shape[1:]]) for name, value in inputs.items()}
        dense = {name: column for name, column in columns.items() if not isinstance(column, tf.RaggedTensor)}
        own = dense | inputs | {"row_ids": row_ids, "row_weights": tf.cast(real, tf.float32)}
        if places is None:
            return own | {"data_position": position}
        packed = _packed(inputs, batch["places"], real, plan.shape, slices_per_replica)
        return packed | {_ROW + name: column for name, column in own.items()} | {"data_position": position}

    batches = tf.data.Dataset.range(start, ids.shape[0]).map(batch_of)
    per_replica = per_replica_batches(batches, size, input_context)
    gathered = per_replica.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return without_autotune(gathered.prefetch(tf.data.AUTOTUNE))


def _packed(
    inputs: Mapping[str, tf.Tensor], places: tf.Tensor, real: tf.Tensor, shape: PackedShape, slices_per_replica: int
) -> dict[str, tf.Tensor]:
    """Moves rows into packed rows."""
    size, length = places.shape[0], inputs["input_ids"].shape[1]
    rows, width, most = shape.rows * slices_per_replica, shape.width, shape.sequences
    row, start, number = tf.unstack(places, axis=1)  # [B]
    own_row = row + tf.range(size) // (size // slices_per_replica) * shape.rows
    column = tf.range(length)[tf.newaxis]  # [1, S]
    used = (inputs["input_mask"] > 0) & real[:, tf.newaxis]

    def laid(values, positions, used, size):
        # Unused values go to an additional entry at the end. This entry is removed below.
        indices = tf.where(used, positions, rows * size)
        laid = tf.scatter_nd(tf.reshape(indices, [-1, 1]), tf.reshape(values, [-1]), [rows * size + 1])
        return tf.reshape(laid[:-1], [rows, size])

    def tokens(values):
        values = tf.broadcast_to(values, [size, length])  # some values are [B, 1] or [1, S]
        return laid(values, (own_row * width + start)[:, tf.newaxis] + column, used, width)

    sequence_ids = tokens(number[:, tf.newaxis] + 1)
    return {
        "input_ids": tokens(inputs["input_ids"]),
        "input_mask": tf.cast(sequence_ids > 0, tf.int32),
        "segment_ids": tokens(inputs["segment_ids"]),
        "position_ids": tokens(column),
        "sequence_ids": sequence_ids,
        "cls_positions": laid(start, own_row * most + number, real, most),
        "slots": row * most + number,
        "starts": row * width + start,
    }
