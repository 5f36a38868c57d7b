"""Evaluates a model in pre-training: metrics, filled-in masks and the report.

Paper: section 3.1.
"""

import os
from collections.abc import Callable, Sequence

import orbit
import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.core import identity
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies
from bert_tf.input import pipeline
from bert_tf.pretraining import fill_mask
from bert_tf.pretraining.record_files import PretrainingData, reading_options
from bert_tf.runs import run_folder, run_record
from bert_tf.settings import PretrainingSettings
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import metrics_file, progress, resume, summaries
from bert_tf.training.trainer import Trainer

# A function that writes a report of the run in a folder. The caller provides this function, so that training does not
# import a drawing library.
Report = Callable[[str], None]

# The files of these splits are in the run's folder itself.
_OWN = (metrics_file.TRAINING_DATA, metrics_file.HELD_OUT)
_ROWS_SHOWN = 5
_ROWS_LOGGED = 2


def no_report(folder: str) -> None:
    """Does nothing, for runs without a report."""


class Evaluation:
    """Evaluates a trainer's weights, and writes the results. The results go to the log, `eval_results.txt` (in
    google-research/bert's format), TensorBoard, the metrics file, the file of filled-in masks, and the report. If there
    are several workers, each worker evaluates its share of the data, and the first worker writes the results. If the
    run was trained on any of the evaluated files, the results have a separate split, because they do not measure
    performance on unseen text. Held-out data that differs from the data of the run's first evaluation also has its own
    split.
    `samples`: predicts the tokens of some rows; None if there are no such rows.
    `write_report`: function that is called with the run's folder after each evaluation.
    `eval_fingerprint`: `identity.fingerprint` of the evaluated files.
    `phase`: the phase that is being trained; None without training."""

    def __init__(
        self,
        settings: PretrainingSettings,
        trainer: Trainer,
        samples: fill_mask.FillMask | None,
        write_report: Report,
        eval_fingerprint: Sequence[str],
        phase: run_record.TrainingRecord | None = None,
    ):
        self._settings, self._trainer, self._write_report = settings, trainer, write_report
        self._eval_fingerprint, self._phase = eval_fingerprint, phase
        self._data = identity.text_of(eval_fingerprint)
        self._fill_mask = samples
        self._writes = strategies.is_chief(trainer.strategy)
        self._managers: dict[str, orbit.utils.SummaryManager] = {}

    def _split(self) -> str:
        """Returns the split of the evaluated files, which can change if another process adds a phase to `run.json`."""
        phases = [*run_record.read_phases(self._settings.output_dir), *([self._phase] if self._phase else [])]
        trained_on = run_folder.is_training_data(self._eval_fingerprint, phases)
        if trained_on:
            return metrics_file.TRAINING_DATA
        newest = {entry["split"]: entry for entry in metrics_file.read(self._settings.output_dir)}
        first = newest.get(metrics_file.HELD_OUT, {}).get("data", self._data)
        is_first = metrics_file.content_of(first) == metrics_file.content_of(self._data)
        return metrics_file.HELD_OUT if is_first else metrics_file.series_of(self._data)

    def _folder(self, split: str) -> str:
        folder = self._settings.output_dir
        return folder if split in _OWN else metrics_file.folder_of(folder, split)

    def _summaries_of(self, split: str) -> orbit.utils.SummaryManager:
        if split not in self._managers:
            folder = os.path.join(self._folder(split), split if split in _OWN else metrics_file.HELD_OUT)
            trainer = self._trainer
            self._managers[split] = summaries.manager(folder, trainer.global_step, trainer.objective.metrics)
            if split == metrics_file.TRAINING_DATA:
                logging.warning("evaluating on training data; give held-out data with --eval_input_file")
        return self._managers[split]

    def __call__(self) -> dict[str, float]:
        """Evaluates the current weights, and returns the metrics by name."""
        settings, step = self._settings, int(self._trainer.global_step.numpy())
        output = self._trainer.evaluate(tf.constant(settings.max_eval_steps))
        values = {name: float(value) for name, value in output.items()}
        if not self._writes:
            return values
        split = self._split()
        manager = self._summaries_of(split)
        where = {metrics_file.TRAINING_DATA: " on training data", metrics_file.HELD_OUT: ""}.get(split, f" on {split}")
        described = progress.describe(values, self._trainer.objective.metrics)
        logging.info("evaluated%s at step %d  %s", where, step, described)
        metrics_file.record(settings.output_dir, split, step, {"data": self._data, **values})
        metrics_file.write_results(self._folder(split), {"global_step": step, **values})
        manager.write_summaries(values)
        if self._fill_mask:
            self._fill_in(step, split, manager)
        manager.flush()
        self._write_report(settings.output_dir)
        return values

    def _fill_in(self, step: int, split: str, manager: orbit.utils.SummaryManager) -> None:
        samples = self._fill_mask.look()
        for sample in samples[:_ROWS_LOGGED]:
            logging.info("fill in %s", fill_mask.line(sample, is_short=True))
        metrics_file.record(self._settings.output_dir, split, step, {"samples": samples}, fill_mask.NAME)
        with manager.summary_writer().as_default():
            tf.summary.text("fill_mask", "\n\n".join(map(fill_mask.line, samples)), step=step)


def find_rows(
    settings: PretrainingSettings, config: BertConfig, data: PretrainingData
) -> tuple[list[fill_mask.BlankRow], list[str]]:
    """Returns the rows whose masks are filled in at each evaluation, and their vocabulary. The rows are the user's
    sentences and the first evaluated rows. There are no rows if the data's vocabulary was not found."""
    if not data.rules:
        if settings.fill_mask_file:
            raise InputError("--fill_mask_file needs the data's vocabulary; give it as --vocab_file")
        return [], []
    tokenizer = BertTokenizer(data.rules)
    rows = []
    if settings.fill_mask_file:
        rows = fill_mask.rows_of_file(settings.fill_mask_file, tokenizer, settings.max_seq_length)
    with pipeline.clear_errors(data.eval_files, config.vocab_size):
        batches = pipeline.pretraining_batches(
            data.eval_files, reading_options(settings, config, data), batch_size=_ROWS_SHOWN, training=False
        )
        first = next(batches.take(1).as_numpy_iterator())
    rows += fill_mask.rows_of_batch(first, config.directionality)
    return rows, tokenizer.vocabulary


def evaluate_latest(trainer: Trainer, folder: str, evaluation: Callable[[], dict]) -> dict[str, float]:
    """Evaluates a folder's latest checkpoint.
    `evaluation`: function that evaluates the trainer's weights and returns the metrics."""
    point = resume.shared_checkpoint(folder, trainer.strategy)
    _refuse_untrained_head(folder, trainer)
    with trainer.strategy.scope():
        trainer.checkpoint.restore(point.prefix).expect_partial()
    return evaluation()


def _refuse_untrained_head(folder: str, trainer: Trainer) -> None:
    phases = run_record.read_phases(folder)
    may_be_trained = any(phase.data["use_next_sentence_label"] or phase.settings["init_checkpoint"] for phase in phases)
    if not may_be_trained and any(metric.name == "next_sentence_loss" for metric in trainer.objective.metrics):
        raise InputError(
            f"--output_dir={folder}: was trained without the next-sentence task, so its head for this task has "
            "random weights; evaluate with --nouse_next_sentence_label"
        )
