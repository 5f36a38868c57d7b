"""A trainer that repeats one batch for ever."""

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.distributed import strategies
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from bert_tf.settings import DeviceSettings
from bert_tf.training.trainer import Trainer, make_optimizer
from tests.bert_tf.classification import make_classifier, make_task
from tests.small_configs import small_config

CONFIG = small_config(40, 8, dropout=0.0, max_position_embeddings=16)

ROWS, LENGTH, PREDICTIONS = 8, 10, 4


def batch(objective) -> dict[str, np.ndarray]:
    """Returns rows with 4, 4, 4, 1, 1, 1, 1, 0 predictions: all halves and quarters have different numbers."""
    rng = np.random.default_rng(3)
    rows = {
        "input_ids": rng.integers(5, 40, [ROWS, LENGTH]).astype(np.int32),
        "input_mask": np.ones([ROWS, LENGTH], np.int32),
        "segment_ids": np.repeat([[0, 1]], LENGTH // 2, axis=1).repeat(ROWS, axis=0).astype(np.int32),
    }
    if objective is FineTuningObjective:
        weights = np.array([1, 1, 1, 1, 1, 0, 0, 1], np.float32)
        return {**rows, "label_ids": rng.integers(0, 3, ROWS).astype(np.float32), "row_weights": weights}
    counts = np.array([4, 4, 4, 1, 1, 1, 1, 0])[:, np.newaxis]
    second = np.array([0, 0, 0, 1, 1, 1, 1, 1])[:, np.newaxis]
    return {
        **rows,
        "masked_lm_positions": rng.integers(1, LENGTH, [ROWS, PREDICTIONS]).astype(np.int32),
        "masked_lm_ids": rng.integers(5, 40, [ROWS, PREDICTIONS]).astype(np.int32),
        "masked_lm_weights": (np.arange(PREDICTIONS) < counts).astype(np.float32),
        # packed: two examples per row, except in the first rows, which end in padding
        "sequence_ids": np.where(np.arange(LENGTH) < LENGTH // 2, 1, second * 2).astype(np.int32),
        "position_ids": np.tile(np.arange(LENGTH) % (LENGTH // 2), [ROWS, 1]).astype(np.int32),
        "cls_positions": np.tile([0, LENGTH // 2], [ROWS, 1]).astype(np.int32),
        "next_sentence_labels": rng.integers(0, 2, [ROWS, 2]).astype(np.int32),
        "next_sentence_weights": np.concatenate([np.ones_like(second), second], axis=1).astype(np.float32),
    }


def spoilt(token: int, spoil):
    """Returns an objective whose loss is `spoil(loss, is_bad)`; `is_bad` means that a row begins with `token`."""

    class Spoilt(PretrainingObjective):
        def numerators(self, batch, training, seed):
            terms = super().numerators(batch, training, seed)
            loss, is_bad = terms["loss"]["masked_lm_loss"], tf.reduce_any(batch["input_ids"][:, 0] == token)
            terms["loss"]["masked_lm_loss"] = spoil(loss, is_bad)
            return terms

    return Spoilt


def make_trainer(
    objective=PretrainingObjective, replicas=1, micro_batches=1, rows=None, config=CONFIG, dtype="float32",
    device=None, **more,
):  # fmt: skip
    """Returns a trainer that repeats one batch for ever; its initial weights are always the same.

    Args:
      replicas: number of CPU devices.
      device: settings of other devices, by name.
    """
    kind = {"distribution_strategy": "mirrored" if replicas > 1 else "one_device"}
    settings = DeviceSettings(**kind | {"dtype": dtype} | (device or {}))
    strategy = strategies.make_strategy(settings)
    assert strategy.num_replicas_in_sync == replicas
    rows = batch(objective) if rows is None else rows
    keras.utils.set_random_seed(5)

    def dataset(_):
        return tf.data.Dataset.from_tensor_slices(rows).batch(ROWS // replicas, drop_remainder=True).repeat()

    with strategy.scope():
        if issubclass(objective, FineTuningObjective):
            made = objective(make_classifier(config, 3), make_task(3))
        else:
            made = objective(BertPretrainer(config))
        return Trainer(
            made,
            strategy,
            random_seed=11,
            optimizer=make_optimizer(settings, 1e-2, 10, 0),
            train_dataset=strategy.distribute_datasets_from_function(dataset),
            gradient_accumulation_steps=micro_batches,
            **more,
        )
