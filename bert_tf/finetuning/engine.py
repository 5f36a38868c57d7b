"""Fine-tunes a model for any task: checks everything first, then trains, evaluates and predicts.

Paper: section 3.2 and appendix A.3.
"""

import contextlib
import functools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import (
    data_summary,
    description,
    distillation,
    evaluated_data,
    lower_layers,
    prepared_run,
    resolution,
    sweep,
    sweep_results,
)
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.evaluation_schedule import EvaluationSchedule
from bert_tf.finetuning.initial import adapted
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.row_plan import RowPlan
from bert_tf.finetuning.task import Task
from bert_tf.input.record_order import Position
from bert_tf.modeling.dense import created_as_zeros
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, run_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.training import batch_parts, flops, loop, metrics, resume
from bert_tf.training.session import session
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer

# The predictions and the mean loss on the dev split, by the step of the weights.
DevOutputs = dict[int, tuple[np.ndarray, dict[str, float]]]


def run_finetuning(
    settings: FineTuningSettings,
    make_task: Callable[[Command], Task],
    write_report: Callable[[str], None] | None = None,
    open_teacher: Callable[[FineTuningSettings, Task], Teacher] | None = None,
    describe: Callable[[FineTuningSettings], TaskDescription | None] | None = None,
) -> dict[str, float]:
    """Trains a model, evaluates it, and predicts with it, as the settings request.
    `make_task`: see `resolution.resolve`.
    `write_report`: function that is called with the run's folder at the end of a command that trains, evaluates, or
      predicts a labeled test split, also if the command fails.
    `open_teacher`: function that opens the model of `--teacher`, and checks that it fits the task.
    `describe`: see `resolution.resolve`.
    Returns the metrics and the loss of the evaluation; {} without `do_eval`.
    Raises NotFinite: a loss, a gradient, a weight, an evaluation or a prediction is not finite."""
    settings = strategies.with_devices(settings)
    parts = parts_of(settings)
    strategy = strategies.make_strategy(settings)
    with session(settings, strategy) as lock:
        settings, task = resolution.resolve(settings, make_task, describe)
        run = prepared_run.prepare(settings, task, strategy, parts, open_teacher)
        try:
            if settings.sweep:
                return sweep.run_sweep(run, lock, _execute)
            run.check_batches()
            data_summary.log(run)
            return _execute(run, lock)
        finally:
            # An error in writing the report must not hide an error of the run.
            with contextlib.suppress(OSError, tf.errors.OpError):
                folder, splits = settings.output_dir, run.splits
                # A prediction without labels does not change the report.
                has_labels = "test" in splits and task.is_labeled(splits["test"].examples)
                changes = settings.do_train or settings.do_eval or has_labels
                has_results = checkpoint_folder.prefixes(folder) or sweep_results.exists(folder)
                if write_report and changes and strategies.is_chief(strategy) and has_results:
                    write_report(folder)


def parts_of(settings: FineTuningSettings) -> int:
    """Returns the number of parts of a batch; see `batch_parts`."""
    if not settings.divides_batches:
        return 1
    sizes = (
        (settings.train_batch_size // settings.gradient_accumulation_steps, settings.do_train),
        (settings.eval_batch_size, settings.do_eval),
        (settings.predict_batch_size, settings.do_predict),
    )
    return batch_parts.choose_parts(settings, [size for size, wanted in sizes if wanted])


def _execute(run: PreparedRun, lock: run_folder.Lock | None) -> dict[str, float]:
    """Trains, evaluates and predicts, as the settings of a single run request; returns the metrics."""
    settings, strategy = run.settings, run.strategy
    run_folder.check_model(settings.output_dir, run.model_facts())
    workers.check_same_facts(strategy, run.same_on_workers())
    keras.utils.set_random_seed(settings.random_seed)
    with strategy.scope(), contextlib.nullcontext() if settings.do_train else created_as_zeros():
        model = FineTunedBert(
            run.config, run.make_head, settings.recompute_activations, has_language_model=settings.lm_coefficient > 0
        )
    frozen = lower_layers.WHOLE_ENCODER if run.task.activations_dir else settings.frozen_layers
    lower_layers.freeze(model.encoder, frozen)
    distill_weight = settings.distill_weight if run.teacher else 0.0
    objective = FineTuningObjective(
        model, run.task, settings.lm_coefficient, distill_weight, settings.distill_temperature
    )
    dev_outputs: DevOutputs = {}
    is_taken_over = run_folder.takes_over(settings)
    if is_taken_over:
        _take_over(run, objective)
    if settings.do_train:
        _train(run, objective, lock, dev_outputs)
    if not (settings.do_eval or settings.do_predict):
        return {}
    step = 0 if is_taken_over else _restore(run, model)
    run = run.with_activations(model, ("dev", "test"))
    scores = _evaluate(run, objective, step, dev_outputs) if settings.do_eval else {}
    if settings.do_predict and not (settings.do_eval and run.task.test_is_dev):
        _predict(run, objective, step)
    return scores


def _take_over(run: PreparedRun, objective: FineTuningObjective) -> None:
    """Initializes the model from a fine-tuned checkpoint, and writes a run of no steps."""
    settings, folder = run.settings, run.settings.output_dir
    checkpoint = _initialize(run, objective)
    if strategies.is_chief(run.strategy):
        tf.io.gfile.makedirs(folder)
        run.write_files()
        description.write_run(
            folder, settings.init_checkpoint, run.described(), run.config, run.tokenizer.rules, settings.script
        )
        if run.task.tuned:
            run.task.tuned.copy(checkpoint, folder, run.task.labels)
        step = tf.Variable(0, dtype=tf.int64)
        checkpoint_folder.save(folder, tf.train.Checkpoint(model=objective.model, global_step=step), 0)


def _initialize(run: PreparedRun, objective: FineTuningObjective) -> str:
    """Initializes the model from `--init_checkpoint`; returns the checkpoint's prefix or file."""
    settings = run.settings
    adapt = functools.partial(adapted, task=run.task, head=objective.model.head_name)
    with run.strategy.scope():
        return checkpoints.initialize(
            objective.model, settings.init_checkpoint, settings.reinitialize_head, adapt, settings.transfer_layers,
            run.new_tokens,
        )  # fmt: skip


def _restore(run: PreparedRun, model: FineTunedBert) -> int:
    """Restores a model from the checkpoint that the settings choose; returns the checkpoint's step."""
    settings, folder = run.settings, run.settings.output_dir
    newest = resume.shared_checkpoint(folder, run.strategy)
    run_folder.check_finished(folder, newest.step, settings.allow_unfinished)
    chosen = chosen_checkpoint.choose(folder, newest, settings.use_checkpoint)
    run.task.check_checkpoint(folder, chosen.step)
    tf.train.Checkpoint(model=model).restore(chosen.prefix).expect_partial()
    return chosen.step


def _train(run: PreparedRun, objective: FineTuningObjective, lock: run_folder.Lock, dev_outputs: DevOutputs) -> None:
    """Trains the model; keeps the outputs of the newest and of the best evaluation in `dev_outputs`. If the evaluation
    after training has the same weights as one of these two evaluations, it uses the kept outputs instead of running the
    model again."""
    settings, strategy = run.settings, run.strategy
    num_train_steps = run.num_train_steps()
    prepared_run.warn_of_few_steps(settings, num_train_steps)
    phase = run.phase(num_train_steps)
    if run_folder.initial_checkpoint(settings):
        run_folder.warn_if_unfinished(_initialize(run, objective))
    elif not checkpoint_folder.prefixes(settings.output_dir):
        logging.warning("without --init_checkpoint, the model starts from random weights, not from pre-trained weights")
    point = resume.shared_checkpoint(settings.output_dir, strategy)
    start = resume.start_position(settings.output_dir, phase, point)
    if settings.do_eval and point.step < num_train_steps:
        run.task.check_checkpoint(settings.output_dir, num_train_steps)
    if run.task.activations_dir:
        if strategies.is_chief(strategy):
            lock.make_folder()
        if point.prefix:  # the activations depend on the run's encoder; `loop.train` restores the rest
            tf.train.Checkpoint(model=objective.model).restore(point.prefix).expect_partial()
    run = run.with_activations(objective.model).with_teacher_outputs()
    plan = run.training_plan(num_train_steps)
    if strategies.is_chief(strategy):
        lock.make_folder()
        run_folder.begin(settings.output_dir, phase, point.step)
        run.write_files()
    workers.wait_for_chief(strategy, os.path.join(settings.output_dir, run_record.NAME))
    if run.teacher and "dev" in run.splits and not point.prefix:
        dev = run.splits["dev"].examples
        distillation.record_scores(settings.output_dir, run.teacher, dev, objective.model, strategy)

    schedule = EvaluationSchedule(
        settings, strategy, run.task, run.data_ids.get("dev", ""), num_train_steps, point.step,
        lambda step: _evaluate(run, objective, step, dev_outputs),
    )  # fmt: skip
    if schedule.has_ended():
        return

    trainer = _make_trainer(run, objective, plan, start, num_train_steps)

    def evaluate() -> None:
        step = int(trainer.global_step.numpy())
        schedule(step)
        for old in dev_outputs.keys() - {step, schedule.best_step}:
            del dev_outputs[old]

    loop.train(trainer, settings, num_train_steps, point, evaluate, schedule.next_after, schedule.has_ended)
    evaluate()


def _make_trainer(
    run: PreparedRun, objective: FineTuningObjective, plan: RowPlan, start: Position, num_train_steps: int
) -> Trainer:
    settings, strategy = run.settings, run.strategy
    slices = settings.gradient_accumulation_steps * run.train_parts
    make_batches = run.batches("train", plan, slices, run.batches_before(start))
    flops_per_row = run.flops_per_row(plan)
    rate_factor = lower_layers.rate_factor(objective.model.encoder, settings.layer_learning_rate_decay)
    num_warmup_steps = run.num_warmup_steps(num_train_steps)
    with strategy.scope():
        return Trainer(
            objective,
            strategy,
            random_seed=settings.random_seed,
            optimizer=make_optimizer(settings, settings.learning_rate, num_train_steps, num_warmup_steps, rate_factor),
            train_dataset=strategies.distribute(strategy, make_batches),
            skip_non_finite_steps=settings.skip_non_finite_steps,
            throughput=Throughput(flops_per_row, flops.peak(strategy, settings.dtype)),
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            compiles=settings.enable_xla,
            parts=run.train_parts,
        )


def _predictions(
    run: PreparedRun, objective: FineTuningObjective, split: str, batch_size: int
) -> tuple[np.ndarray, dict[str, float]]:
    plan, parts = run.evaluation_plan(split, batch_size), run.parts(batch_size)
    batches, rows = run.batches(split, plan, parts), len(run.splits[split])
    return evaluate_rows(objective, run.task.prediction, run.strategy, batches, rows, parts, f"predicting {split}")


def _evaluate(run: PreparedRun, objective: FineTuningObjective, step: int, dev_outputs: DevOutputs) -> dict[str, float]:
    """Evaluates the model on the dev split, and writes the results; see `evaluated_data.record`. If `dev_outputs` has
    no outputs of this step, the model runs, and its outputs are added to `dev_outputs`. The files are always written,
    because the existing files may belong to another step."""
    settings, folder = run.settings, run.settings.output_dir
    data = evaluated_data.in_folder(folder, run.data_ids["dev"], dev=run.data_ids["dev"])
    if not data.is_dev:
        evaluated_data.refuse_tuning(settings)
    is_new = step not in dev_outputs
    if is_new:
        dev_outputs[step] = _predictions(run, objective, "dev", settings.eval_batch_size)
    predictions, loss = dev_outputs[step]
    split, predictions = run.task.by_example(run.splits["dev"], predictions)
    scores = {**run.task.scores(split, predictions), **loss}
    if strategies.is_chief(run.strategy):
        evaluated_data.become_dev(folder, data)
        evaluated_data.record(folder, data, run.task, split, predictions, scores, step, is_new)
    metrics.require_finite(scores, f"step {step} of {folder}")
    writes_predictions = settings.do_predict and run.task.test_is_dev and not data.is_dev
    if writes_predictions and strategies.is_chief(run.strategy):
        evaluated_data.write_predictions(folder, data, run.task, split, predictions)
    return scores


def _predict(run: PreparedRun, objective: FineTuningObjective, step: int) -> None:
    """Predicts the test split, and writes the prediction files. If the labels are known, also writes the metrics."""
    folder = run.settings.output_dir
    predictions, loss = _predictions(run, objective, "test", run.settings.predict_batch_size)
    total = float(np.sum(predictions, dtype=np.float64))
    # Predicted tags are finite even if the logits are not. Therefore, also check the loss of the logits.
    metrics.require_finite({"predictions": total, **loss}, f"step {step} of {folder}")
    if not strategies.is_chief(run.strategy):
        return
    split, predictions = run.task.by_example(run.splits["test"], predictions)
    data = evaluated_data.in_folder(folder, run.data_ids["test"])
    evaluated_data.write_predictions(folder, data, run.task, split, predictions)
    if run.task.is_labeled(split.examples) and not run.evaluates_same_examples:
        task = run.task.without_tuning(folder)
        scores = {**task.scores(split, predictions), **loss}
        evaluated_data.record(folder, data, task, split, predictions, scores, step)
