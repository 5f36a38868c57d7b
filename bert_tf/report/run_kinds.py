"""The content of a report for each kind of run."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from bert_tf.pretraining import objective
from bert_tf.runs.run_record import Phase
from bert_tf.settings import PretrainingSettings
from bert_tf.settings.training import TrainingSettings
from bert_tf.tasks import registry
from bert_tf.training import metrics

# Every report shows the `reported` settings of the script, and then these settings, if they have values.
_SETTINGS = (
    "max_seq_length", "train_batch_size", "num_train_epochs", "num_train_steps", "num_warmup_steps",
    "num_schedule_steps", "learning_rate", "warmup_proportion", "dtype", "distribution_strategy", "random_seed",
    "init_checkpoint",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class RunKind:
    """A kind of run."""

    title: str
    metrics: tuple[metrics.Metric, ...]  # the metrics in the order of the page; metrics without a title are not shown
    settings_class: type[TrainingSettings]  # settings class of the script that trains such runs
    # maps names of metrics to functions. A function returns the baseline for a split's entries, or None if the baseline
    # is unknown.
    baselines: Mapping[str, Callable[[Sequence[Mapping]], float | None]] = dataclasses.field(default_factory=dict)
    any_metric: bool = False  # whether undeclared metrics are shown too, such as a task's scores

    def shown(self, names: Iterable[str]) -> list[metrics.Metric]:
        """Returns the metrics to show, given the names of all recorded metrics."""
        declared = {metric.name for metric in self.metrics}
        others = [name for name in names if name not in declared] if self.any_metric else []
        scores = [metrics.Metric(name, title=name.replace("_", " "), higher_is_better=True) for name in others]
        return [*scores, *(metric for metric in self.metrics if metric.title)]

    @property
    def settings(self) -> tuple[str, ...]:
        return (*self.settings_class.reported, *_SETTINGS)


def _majority_of_pairs(entries: Sequence[Mapping]) -> float | None:
    """Returns the share of a split's more frequent next-sentence label, 0.5 to 1; None if unknown."""
    shares = [entry[objective.RANDOM_NEXT_SHARE] for entry in entries if objective.RANDOM_NEXT_SHARE in entry]
    if not shares:
        return None
    random = sum(shares) / len(shares)
    return max(random, 1 - random)


PRETRAINING = RunKind(
    "Pre-training",
    (*objective.METRICS, *metrics.TRAINING),
    PretrainingSettings,
    {"next_sentence_accuracy": _majority_of_pairs},
)


def of_run(phases: Sequence[Phase]) -> RunKind:
    task = phases and registry.kinds().get(phases[-1].model.get("model"))
    if not task:
        return PRETRAINING
    known = (metrics.Metric("loss", title="loss"), *map(metrics.Metric, task.hidden_scores), *metrics.TRAINING)
    return RunKind("Fine-tuning", known, task.settings, any_metric=True)
