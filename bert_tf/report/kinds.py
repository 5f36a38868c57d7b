"""What the report of each kind of run shows."""

import dataclasses

from bert_tf.pretraining import objective
from bert_tf.training import metrics


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes:
      title: of the page.
      metrics: in the order of the page; those with a title are shown.
      settings: names of the settings that are shown, if they are given.
    """

    title: str
    metrics: tuple[metrics.Metric, ...]
    settings: tuple[str, ...]


PRETRAINING = Kind(
    "Pre-training",
    (*objective.METRICS, *metrics.TRAINING),
    (
        "input_file", "eval_input_file", "max_seq_length", "max_predictions_per_seq", "masked_lm_prob",
        "train_batch_size", "num_train_steps", "num_warmup_steps", "num_schedule_steps", "learning_rate", "dtype",
        "distribution_strategy", "random_seed", "init_checkpoint",
    ),
)  # fmt: skip
