"""A finished run of fine-tuning, for Python programs: its scores, and copies and exports of its model."""

import dataclasses
import functools
import os

import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import sentence_transformers
from bert_tf.core.command_line import of_keywords
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep_results
from bert_tf.modeling.precision import policy
from bert_tf.runs import checkpoint_folder, evaluations, run_record
from bert_tf.tasks import trained
from bert_tf.tasks.classification.multi_label import LABEL_SCORES_NAME, THRESHOLDS
from bert_tf.tasks.trained import Trained
from bert_tf.text import tokenizer_files
from bert_tf.training import metrics_file

# The files that `save` copies from the run's folder. `save` writes the weights and the records itself.
_SAVED_FILES = (
    checkpoints.CONFIG_NAME, *tokenizer_files.WRITTEN, description.NAME, THRESHOLDS.name,
    metrics_file.RESULTS_NAME, LABEL_SCORES_NAME,
)  # fmt: skip


class FinishedRun:
    """A finished run.

    Attributes:
      folder: the run's folder, or the folder of the best trial of a sweep; `export_saved_model` accepts this folder.
      scores: metrics of this checkpoint on the dev data; {} if the checkpoint was not evaluated.
    """

    def __init__(self, folder: str, scores: dict[str, float] | None, use_checkpoint: str):
        self.folder = sweep_results.best_folder(folder, allow_unfinished=False)
        self._use_checkpoint = use_checkpoint
        self.scores = scores or self._recorded_scores()

    def __reduce__(self):
        name = type(self).__name__
        raise InputError(f"a loaded {name} cannot be pickled; give each process the folder, and call {name}.load there")

    def __repr__(self) -> str:
        run, scores = self._trained, ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        labels = f", labels: {', '.join(run.description.labels)}" if run.description.labels else ""
        return (
            f"{type(self).__name__}({self.folder!r}: {run.description.kind}{labels}; "
            f"{run.model.num_weights:,} weights; {scores or 'not evaluated'})"
        )

    @functools.cached_property
    def _trained(self) -> Trained:
        with policy("float32"):
            return trained.load(self.folder, self._use_checkpoint)

    def save(self, folder: str) -> None:
        """Writes the model into a new folder, without the state of the optimizer and other files of the training.

        `load`, the scripts and --init_checkpoint accept this folder like the run's folder.

        Raises:
          InputError: the folder is not empty.
        """
        folder, number = os.fspath(folder), self._trained.step
        if tf.io.gfile.exists(folder) and tf.io.gfile.listdir(folder):
            raise InputError(f"{folder}: the folder is not empty; give a new folder")
        tf.io.gfile.makedirs(folder)
        for name in filter(lambda name: tf.io.gfile.exists(os.path.join(self.folder, name)), _SAVED_FILES):
            tf.io.gfile.copy(os.path.join(self.folder, name), os.path.join(folder, name))
        sentence_transformers.copy(self.folder, folder)
        run_record.write(folder, run_record.read_phases(self.folder), number)
        recorded = evaluations.read(self.folder)
        own = {step: scores for step, scores in recorded.scores.items() if step == number}
        evaluations.write(folder, dataclasses.replace(recorded, scores=own))
        step = tf.Variable(number, dtype=tf.int64)
        checkpoint_folder.save(folder, tf.train.Checkpoint(model=self._trained.model, global_step=step), number)

    def export(self, export_dir: str, **settings) -> str:
        """Exports the model for serving; see `export_saved_model`.

        Args:
          export_dir: a new folder for this version, or a folder of versions, to which the next version is added.
          **settings: further flags of `export_saved_model`, without the dashes, such as `dtype` or `format`.

        Returns:
          The version's folder.

        Raises:
          InputError: a setting or the folder is invalid.
        """
        from export.saved_model import export_saved_model  # `export` is a higher layer, which only this method needs
        from export.settings import ExportSettings

        flags = {"checkpoint_dir": self.folder, "use_checkpoint": self._use_checkpoint} | settings
        return export_saved_model(of_keywords(ExportSettings, flags | {"export_dir": os.fspath(export_dir)}))

    def _recorded_scores(self) -> dict[str, float]:
        number = self._trained.step
        if recorded := evaluations.read(self.folder).scores.get(number):
            return dict(recorded)
        results = metrics_file.read_results(self.folder)
        step = results.pop("global_step", None)
        return {name.removeprefix("eval_"): value for name, value in results.items()} if step == number else {}
