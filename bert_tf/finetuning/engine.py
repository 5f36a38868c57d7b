"""A whole fine-tuning run of any task: checks first, then training, evaluation and prediction.

Paper: section 3.2 and appendix A.3.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import latest
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import description, lower_layers, prepared_run, sweep, sweep_results
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.evaluation_schedule import EvaluationSchedule
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.row_plan import RowPlan
from bert_tf.finetuning.sweep import Sweep
from bert_tf.finetuning.task import Task
from bert_tf.input.record_order import Position
from bert_tf.runs import checkpoint_tokenizer, evaluations, run_folder
from bert_tf.settings import FineTuningSettings
from bert_tf.training import flops, loop, memory, metrics, metrics_file, progress, resume
from bert_tf.training.session import session
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tfrecords import writer

# Compiling the fused operations takes some seconds, which an evaluation of fewer positions does not win back.
_POSITIONS_WORTH_COMPILING = 50_000


def run_finetuning(
    settings: FineTuningSettings, task: Task, write_report: Callable[[str], None] | None = None
) -> dict[str, float]:
    """Trains, evaluates and predicts a task as the settings say.

    Args:
      settings: of the run; those of a task's own data are in the task.
      task: what to train.
      write_report: called with the run's folder after training and after an evaluation.

    Returns:
      The metrics of the evaluation, and its loss; {} without `do_eval`.

    Raises:
      InputError: settings, data or folder do not fit; before any training.
    """
    strategy = strategies.make_strategy(settings)
    with session(settings, strategy) as lock:
        settings = checkpoint_tokenizer.with_casing(sweep.with_best_trial(settings))
        settings = checkpoints.settings_with_files(settings, "bert_config_file", "vocab_file")
        run = prepared_run.prepare(prepared_run.with_length(settings), task, strategy)
        try:
            return (_run_sweep if settings.sweep else _run)(run, lock)
        finally:
            # A report that fails must not hide the run's own error.
            with contextlib.suppress(OSError, tf.errors.OpError):
                changes = settings.do_train or settings.do_eval  # a prediction changes nothing that the report shows
                if write_report and changes and strategies.is_chief(strategy) and _has_results(settings.output_dir):
                    write_report(settings.output_dir)


def _has_results(folder: str) -> bool:
    return bool(latest.prefixes(folder)) or sweep_results.exists(folder)


def _run(run: PreparedRun, lock: run_folder.Lock | None) -> dict[str, float]:
    settings, strategy = run.settings, run.strategy
    run_folder.check_model(settings.output_dir, prepared_run.model_facts(run))
    _check_batches(run)
    workers.check_same_facts(strategy, prepared_run.same_on_workers(run))
    keras.utils.set_random_seed(settings.weights_seed)
    with strategy.scope():
        model = FineTunedBert(run.config, run.task.head, settings.recompute_activations)
    lower_layers.freeze(model.encoder, settings.frozen_layers)
    objective = FineTuningObjective(model, run.task)
    if settings.do_train:
        _train(run, objective, lock)
    if not (settings.do_eval or settings.do_predict):
        return {}
    found = resume.find(settings.output_dir, strategy)
    run_folder.check_finished(settings.output_dir, found.step, settings.allow_unfinished)
    run.keep_caches()
    chosen = evaluations.choose(settings.output_dir, found, settings.use_checkpoint)
    run.task.check_checkpoint(settings.output_dir, chosen.step)
    tf.train.Checkpoint(model=model).restore(chosen.prefix).expect_partial()
    scores = _evaluate(run, objective, chosen.step) if settings.do_eval else {}
    if settings.do_predict:
        _predict(run, objective)
    return scores


def _check_batches(run: PreparedRun) -> None:
    strategies.check_batch_sizes(run.strategy, run.settings)
    settings, replicas = run.settings, run.strategy.num_replicas_in_sync
    if settings.do_train:
        # No row is shorter than the shortest, so this refuses nothing that fits before the plan of all batches is made.
        least = int(run.splits["train"].lengths.min()) if settings.pack_sequences else settings.max_seq_length
        rows = settings.train_batch_size // replicas // settings.gradient_accumulation_steps
        memory.require_batch_memory(run.config, settings, replicas, (rows, least))
        prepared_run.num_train_steps(run)


def _run_sweep(run: PreparedRun, lock: run_folder.Lock | None) -> dict[str, float]:
    """Trains the trials of a sweep, each like a run of its own, on data that is read and encoded once."""
    settings = run.settings
    trials = Sweep(
        settings, run.task, lambda: sweep.facts_of(settings, prepared_run.phase(run, 1), run.task), run.strategy
    )
    for trial in trials.pending():
        _check_batches(dataclasses.replace(run, settings=sweep.trial_settings(settings, trial)))
    if lock:
        lock.make_folder()

    def run_trial(settings: FineTuningSettings) -> dict[str, float]:
        with run_folder.Lock(settings.output_dir) if lock else contextlib.nullcontext() as own:
            return _run(dataclasses.replace(run, settings=settings), own)

    scores = trials.run(run_trial)
    if settings.do_predict:
        _run(dataclasses.replace(run, settings=sweep.prediction_settings(settings, trials.results.best)), None)
    return scores


def _train(run: PreparedRun, objective: FineTuningObjective, lock: run_folder.Lock) -> None:
    settings, strategy = run.settings, run.strategy
    num_train_steps = prepared_run.num_train_steps(run)
    phase = prepared_run.phase(run, num_train_steps)
    if starts_from := run_folder.initial_checkpoint(settings):
        with strategy.scope():
            source = checkpoints.initialize(objective.model, starts_from, settings.reinitialize_head)
            run_folder.warn_if_unfinished(source)
    elif not latest.prefixes(settings.output_dir):
        logging.warning("without --init_checkpoint, the model starts from random weights, not from pre-trained ones")
    found = resume.find(settings.output_dir, strategy)
    start = resume.start_position(settings.output_dir, phase, found)
    plan = prepared_run.training_plan(run, num_train_steps)
    micro_batch = (plan.shape.rows, plan.shape.width) if plan.shape else None
    memory.require_batch_memory(run.config, settings, strategy.num_replicas_in_sync, micro_batch)
    if strategies.is_chief(strategy):
        lock.make_folder()
        run_folder.begin(settings.output_dir, phase, found.step)
        _write_description(run)
        run.keep_caches()
    workers.wait_for_chief(strategy, os.path.join(settings.output_dir, run_folder.NAME))

    schedule = EvaluationSchedule(
        settings, strategy, run.task, num_train_steps, found.step, lambda step: _evaluate(run, objective, step)
    )
    if schedule.has_ended():
        return

    def records_of(step: int, position: Position) -> list[str]:
        position = position if step > found.step + 1 else start
        ids = plan.ids.reshape(-1, settings.train_batch_size)[prepared_run.batches_before(run, position)]
        return [prepared_run.example_name(run, "train", row) for row in ids]

    def evaluate() -> None:
        schedule(int(trainer.global_step.numpy()))

    trainer = _make_trainer(run, objective, plan, start, num_train_steps)
    loop.train(trainer, settings, num_train_steps, found, evaluate, records_of, schedule.next_after, schedule.has_ended)
    evaluate()


def _make_trainer(
    run: PreparedRun, objective: FineTuningObjective, plan: RowPlan, start: Position, num_train_steps: int
) -> Trainer:
    settings, strategy = run.settings, run.strategy
    make_batches = prepared_run.batches(
        run, "train", plan, settings.gradient_accumulation_steps, prepared_run.batches_before(run, start)
    )
    length, examples = (plan.shape.width, plan.shape.sequences) if plan.shape else (settings.max_seq_length, 1)
    flops_per_row = run.task.training_flops(run.config, length, examples)
    flops_per_row -= lower_layers.flops_saved(run.config, settings.frozen_layers, length)
    rate_factor = lower_layers.rate_factor(objective.model.encoder, settings.layer_learning_rate_decay)
    num_warmup_steps = prepared_run.num_warmup_steps(settings, num_train_steps)
    with strategy.scope():
        return Trainer(
            objective,
            strategy,
            random_seed=settings.weights_seed,
            optimizer=make_optimizer(settings, settings.learning_rate, num_train_steps, num_warmup_steps, rate_factor),
            train_dataset=strategy.distribute_datasets_from_function(make_batches),
            skip_non_finite_steps=settings.skip_non_finite_steps,
            throughput=Throughput(flops_per_row, flops.peak(strategy, settings.dtype)),
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
        )


def _write_description(run: PreparedRun) -> None:
    """Writes beside the checkpoints what evaluation and export need: configuration, vocabulary, task."""
    settings, folder = run.settings, run.settings.output_dir
    writer.write_text(os.path.join(folder, checkpoints.CONFIG_NAME), run.config.to_json_string())
    checkpoint_tokenizer.keep(folder, settings.vocab_file, settings.do_lower_case, run.config.max_position_embeddings)
    description.write(folder, description.describe(run.task, settings.do_lower_case, settings.max_seq_length))


def _predictions(
    run: PreparedRun, objective: FineTuningObjective, split: str, batch_size: int
) -> tuple[np.ndarray, float]:
    plan = prepared_run.evaluation_plan(run, split, batch_size)
    if objective.evaluation_step is None:  # later evaluations reuse what the first one traces
        objective.model.encoder.fused_inference = _is_worth_compiling(run, plan)
    return evaluate_rows(
        objective, run.task, run.strategy, prepared_run.batches(run, split, plan), len(run.splits[split])
    )


def _is_worth_compiling(run: PreparedRun, plan: RowPlan) -> bool:
    length = plan.shape.rows * plan.shape.width if plan.shape else plan.ids.shape[1] * run.settings.max_seq_length
    repeats = run.settings.do_train and run.settings.eval_strategy != "no"
    return repeats or len(plan.ids) * length >= _POSITIONS_WORTH_COMPILING


def _evaluate(run: PreparedRun, objective: FineTuningObjective, step: int) -> dict[str, float]:
    """Evaluates on the dev split and writes `eval_results.txt` with the original's names."""
    folder = run.settings.output_dir
    predictions, loss = _predictions(run, objective, "dev", run.settings.eval_batch_size)
    split, predictions = run.task.by_example(run.splits["dev"], predictions)
    scores = {**run.task.scores(split, predictions), "loss": loss}
    if strategies.is_chief(run.strategy):
        logging.info("%s dev, step %d: %s", run.task.name, step, progress.describe(scores, run.task.metrics))
        metrics_file.record(folder, "dev", step, scores)
        results = {"global_step": step, **{f"eval_{name}": value for name, value in scores.items()}}
        metrics_file.write_results(folder, results)
        run.task.keep_evaluation(folder, split, predictions, step)
    metrics.require_finite(scores, f"step {step} of {folder}")
    return scores


def _predict(run: PreparedRun, objective: FineTuningObjective) -> None:
    """Predicts the test split and lets the task write its files."""
    predictions, _ = _predictions(run, objective, "test", run.settings.predict_batch_size)
    if not strategies.is_chief(run.strategy):
        return
    split, predictions = run.task.by_example(run.splits["test"], predictions)
    for path in run.task.write_predictions(run.settings.output_dir, split, predictions):
        logging.info("wrote the predictions of %d examples to %s", len(split.examples), path)
