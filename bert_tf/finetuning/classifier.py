"""Fine-tuning, evaluating and predicting.

Paper: section 3.2 and appendix A.3.

Letters: B batch, S sequence length, N examples, C outputs.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.finetuning.tasks.glue import ClassificationTask, Example
from bert_tf.modeling.heads import ClassificationHead
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from bert_tf.training.metrics import Form, Metric

_LOSS = Metric("loss", "loss", "task")
METRICS = (_LOSS, Metric("accuracy", "acc", "task", form=Form.FRACTION, higher_is_better=True))
_TEXTS_PER_CALL = 4096


class BertClassifier(keras.Model):
    """The encoder with a classification (or regression) head.

    Paper: section 3.2, Figure 4 (a) and (b).
    """

    def __init__(self, config: BertConfig, num_outputs: int, recompute_activations: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = BertEncoder(config, recompute_activations)
        self.head = ClassificationHead(config, num_outputs)

    def call(self, inputs, training=False, seed=None):
        """Adds `logits`, float32 [B, C], to the encoder's outputs; see `BertEncoder`."""
        outputs = self.encoder(inputs, training=training, seed=seed)
        return {**outputs, "logits": self.head(outputs["pooled_output"], training=training, seed=seed)}


class ClassificationObjective:
    """Cross-entropy, or squared error for regression; see `trainer.Objective`."""

    def __init__(self, model: BertClassifier, is_regression: bool):
        self.model = model
        self._is_regression = is_regression
        self.metrics = (_LOSS,) if is_regression else METRICS

    def denominators(self, batch: Mapping[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """Counts the examples of a batch that are not padding, float32 [], for the loss and the accuracy."""
        count = tf.reduce_sum(tf.cast(batch["is_real_example"], tf.float32))
        return {"loss": {"loss": count}, "metrics": {} if self._is_regression else {"accuracy": count}}

    def numerators(self, batch: Mapping[str, tf.Tensor], training: bool, seed) -> dict[str, dict[str, tf.Tensor]]:
        """Sums the loss and the right answers over the examples of a batch, float32 []."""
        logits = self.model(batch, training=training, seed=seed)["logits"]  # [B, C]
        real = tf.cast(batch["is_real_example"], tf.float32)  # [B]
        labels = batch["label_ids"]
        if self._is_regression:
            error = tf.square(logits[:, 0] - labels)
            return {"loss": {"loss": tf.reduce_sum(real * error)}, "metrics": {}}
        labels = tf.cast(labels, tf.int32)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        right = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
        return {
            "loss": {"loss": tf.reduce_sum(real * nll)},
            "metrics": {"accuracy": tf.reduce_sum(real * right)},
        }


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """Examples as ids, not yet packed.

    Attributes:
      segment_a: RaggedTensor int32 [N, (pieces)].
      segment_b: the same, or None for single-text tasks.
      labels: float32 [N], class ids or scores; zeros where the file has none.
    """

    segment_a: tf.RaggedTensor
    segment_b: tf.RaggedTensor | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def encode_examples(examples: Sequence[Example], task: ClassificationTask, tokenizer: BertTokenizer) -> EncodedExamples:
    """Tokenizes a task's examples."""
    encode = tf.function(tokenizer.encode, input_signature=[tf.TensorSpec([None], tf.string)])

    def encode_all(texts):
        parts = [encode(tf.constant(texts[i : i + _TEXTS_PER_CALL])) for i in range(0, len(texts), _TEXTS_PER_CALL)]
        return tf.concat(parts, axis=0)

    labels = [0.0 if e.label is None else task.label_value(e.label) for e in examples]
    return EncodedExamples(
        encode_all([e.text_a for e in examples]),
        encode_all([e.text_b for e in examples]) if task.has_pairs else None,
        np.array(labels, np.float32),
    )


def batches(
    encoded: EncodedExamples,
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    start_step: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Batches of packed examples.

    Training shuffles all examples anew each epoch, in an order that seed alone decides, and repeats
    for ever. Otherwise the examples come once in their order, the last batch filled up with examples
    whose `is_real_example` is 0.

    Args:
      encoded: what to pack.
      tokenizer: gives the ids of [CLS] and [SEP].
      max_seq_length: S.
      batch_size: examples over all replicas; each batch holds one replica's share.
      training: shuffle and repeat.
      seed: seed of the order.
      start_step: steps to pass over, so that a resumed run goes on where it was.
      input_context: this worker's share, where there are several.

    Returns:
      Dataset of dicts: `input_ids`, `input_mask`, `segment_ids` int32 [B, S]; `label_ids` float32 [B];
      `is_real_example`, `example_ids` int32 [B].
    """
    if training:
        order = tf.data.Dataset.range(len(encoded)).shuffle(len(encoded), seed=seed).repeat()
    else:
        missing = -len(encoded) % batch_size
        order = tf.data.Dataset.range(len(encoded) + missing)

    def gather(example_ids):
        real = example_ids < len(encoded)
        rows = tf.where(real, example_ids, 0)
        segment_b = None if encoded.segment_b is None else tf.gather(encoded.segment_b, rows)
        packed = pack(
            tf.gather(encoded.segment_a, rows),
            segment_b,
            max_seq_length=max_seq_length,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
        )
        return packed | {
            "label_ids": tf.gather(tf.constant(encoded.labels), rows),
            "is_real_example": tf.cast(real, tf.int32),
            "example_ids": tf.cast(example_ids, tf.int32),
        }

    dataset = _batch_share(
        order, batch_size, start_step if training else 0, drop_remainder=True, input_context=input_context
    )
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def _batch_share(
    dataset: tf.data.Dataset,
    batch_size: int,
    start_step: int,
    *,
    drop_remainder: bool,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Batches this worker's share of a dataset.

    Args:
      dataset: single elements in an order that all workers agree on.
      batch_size: elements a step over all replicas; each batch holds one replica's share.
      start_step: steps to pass over.
      drop_remainder: whether to leave out a last batch that is not full.
      input_context: which worker this is, where there are several.
    """
    if input_context is None:
        return dataset.skip(start_step * batch_size).batch(batch_size, drop_remainder=drop_remainder)
    workers = input_context.num_input_pipelines
    dataset = dataset.shard(workers, input_context.input_pipeline_id).skip(start_step * (batch_size // workers))
    return dataset.batch(input_context.get_per_replica_batch_size(batch_size), drop_remainder=drop_remainder)


def predict(model: BertClassifier, strategy: tf.distribute.Strategy, dataset, num_examples: int) -> np.ndarray:
    """Runs a model over a finite distributed dataset of `batches`.

    Returns:
      Logits, float32 [N, C], in the examples' order.
    """

    @tf.function
    def step(batch):
        def on_replica(local):
            return local["example_ids"], model(local)["logits"]

        ids, logits = strategy.run(on_replica, args=(batch,))
        return strategy.gather(ids, axis=0), strategy.gather(logits, axis=0)

    result = None
    for batch in dataset:
        ids, logits = (tensor.numpy() for tensor in step(batch))
        if result is None:
            result = np.zeros((num_examples, logits.shape[1]), np.float32)
        real = ids < num_examples
        result[ids[real]] = logits[real]
    return result


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, float32 [N, C]."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def mean_loss(logits: np.ndarray, labels: np.ndarray, is_regression: bool) -> float:
    """The objective's loss over all examples: logits [N, C], labels [N]."""
    if is_regression:
        return float(np.mean(np.square(logits[:, 0] - labels)))
    right = np.take_along_axis(logits, labels.astype(int)[:, None], axis=1)[:, 0]
    return float(np.mean(np.logaddexp.reduce(logits, axis=1) - right))
