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
from bert_tf.config import BertConfig
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import description, encoded_cache, lower_layers, sweep, sweep_results
from bert_tf.finetuning.batches import row_batches
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.evaluation_schedule import EvaluationSchedule
from bert_tf.finetuning.initial import check_initial
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.row_plan import RowPlan, plan_evaluation, plan_training
from bert_tf.finetuning.sweep import Sweep
from bert_tf.finetuning.task import Split, Task
from bert_tf.input.record_order import Position
from bert_tf.runs import checkpoint_tokenizer, evaluations, run_folder
from bert_tf.settings import FineTuningSettings
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops, loop, memory, metrics, metrics_file, progress, resume
from bert_tf.training.session import session
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tfrecords import writer
from tfrecords.errors import InputError

_DEFAULT_LENGTH = 128


@dataclasses.dataclass(frozen=True)
class _Run:
    """What a run works with, all of it checked.

    Attributes:
      settings: as given, plus the paths of files and the row length that the user left out.
      task: as given.
      config: shape of the model.
      tokenizer: from the run's vocabulary.
      splits: "train", "dev", "test" to their rows, as far as the settings ask for them.
      strategy: where to compute.
      caches: functions that write the caches of `splits`, for when nothing can refuse the run any more.
    """

    settings: FineTuningSettings
    task: Task
    config: BertConfig
    tokenizer: BertTokenizer
    splits: dict[str, Split]
    strategy: tf.distribute.Strategy
    caches: list[Callable[[], None]]

    def keep_caches(self) -> None:
        """Writes the caches that are missing."""
        while self.caches:
            self.caches.pop()()


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
        run = _prepare(_with_length(settings), task, strategy)
        try:
            return (_run_sweep if settings.sweep else _run)(run, lock)
        finally:
            # A report that fails must not hide the run's own error.
            with contextlib.suppress(OSError, tf.errors.OpError):
                if write_report and strategies.is_chief(strategy) and _has_results(settings.output_dir):
                    write_report(settings.output_dir)


def _has_results(folder: str) -> bool:
    return bool(latest.prefixes(folder)) or sweep_results.exists(folder)


def _with_length(settings: FineTuningSettings) -> FineTuningSettings:
    """Returns settings with the `max_seq_length` of the run's folder if it was left out, else 128.

    Raises:
      InputError: a trained model is evaluated with rows of another length.
    """
    length, folder = settings.max_seq_length, settings.output_dir
    known = description.exists(folder) and latest.prefixes(folder)
    trained = description.read(folder).max_seq_length if known else _DEFAULT_LENGTH
    if known and length not in (None, trained) and not settings.do_train:
        raise InputError(f"--max_seq_length={length}: {folder} was trained with {trained}; leave the flag out")
    return dataclasses.replace(settings, max_seq_length=length or trained)


def _run(run: _Run, lock: run_folder.Lock | None) -> dict[str, float]:
    settings, strategy = run.settings, run.strategy
    run_folder.check_model(settings.output_dir, _model_facts(run))
    _check_batches(run)
    workers.check_same_facts(strategy, _same_on_workers(run))
    keras.utils.set_random_seed(settings.weights_seed)
    with strategy.scope():
        model = FineTunedBert(run.config, run.task.head, settings.recompute_activations)
    model.encoder.fused_inference = True
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
    tf.train.Checkpoint(model=model).restore(chosen.prefix).expect_partial()
    scores = _evaluate(run, objective, chosen.step) if settings.do_eval else {}
    if settings.do_predict:
        _predict(run, objective)
    return scores


def _check_batches(run: _Run) -> None:
    strategies.check_batch_sizes(run.strategy, run.settings)
    settings, replicas = run.settings, run.strategy.num_replicas_in_sync
    if settings.do_train:
        # No row is shorter than the shortest, so this refuses nothing that fits before the plan of all batches is made.
        least = int(run.splits["train"].lengths.min()) if settings.pack_sequences else settings.max_seq_length
        rows = settings.train_batch_size // replicas // settings.gradient_accumulation_steps
        memory.require_batch_memory(run.config, settings, replicas, (rows, least))
        _num_train_steps(run)


def _run_sweep(run: _Run, lock: run_folder.Lock | None) -> dict[str, float]:
    """Trains the trials of a sweep, each like a run of its own, on data that is read and encoded once."""
    settings = run.settings
    trials = Sweep(settings, run.task, lambda: sweep.facts_of(settings, _phase(run, 1), run.task), run.strategy)
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


def _prepare(settings: FineTuningSettings, task: Task, strategy: tf.distribute.Strategy) -> _Run:
    config = checkpoints.read_config(settings.bert_config_file)
    tokenizer = BertTokenizer(settings.vocab_file, settings.do_lower_case)
    config.check_vocabulary(len(tokenizer.vocabulary), tokenizer.vocab_file, settings.bert_config_file)
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    # frozen weights have no gradients and moments, so only the weights themselves are counted then
    memory.require_memory(config, settings, settings.do_train and not settings.frozen_layers)
    lower_layers.check(config, settings)
    if not settings.do_train:
        latest.check_there(settings.output_dir)
    task.check(config, settings)
    asked = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    examples = {split: task.read(split) for split, wanted in asked.items() if wanted}
    task.check_examples(examples)
    if starts_from := run_folder.initial_checkpoint(settings):
        check_initial(starts_from, task, config, settings.reinitialize_head)
    folder = os.path.join(settings.output_dir, encoded_cache.FOLDER)
    cached = {
        name: encoded_cache.cached_split(name, task, read, tokenizer, settings.max_seq_length, folder)
        for name, read in examples.items()
    }
    splits = {name: split for name, (split, _) in cached.items()}
    caches = [keep for _, keep in cached.values()] if strategies.is_chief(strategy) else []
    return _Run(settings, task, config, tokenizer, splits, strategy, caches)


def _model_facts(run: _Run) -> dict:
    described = description.describe(run.task, run.settings.do_lower_case, run.settings.max_seq_length)
    return description.model_facts(described, run.config, run.tokenizer.vocabulary)


def _train(run: _Run, objective: FineTuningObjective, lock: run_folder.Lock) -> None:
    settings, strategy = run.settings, run.strategy
    num_train_steps = _num_train_steps(run)
    phase = _phase(run, num_train_steps)
    if starts_from := run_folder.initial_checkpoint(settings):
        with strategy.scope():
            source = checkpoints.initialize(objective.model, starts_from, settings.reinitialize_head)
            run_folder.warn_if_unfinished(source)
    elif not latest.prefixes(settings.output_dir):
        logging.warning("without --init_checkpoint, the model starts from random weights, not from pre-trained ones")
    found = resume.find(settings.output_dir, strategy)
    start = resume.start_position(settings.output_dir, phase, found)
    plan = _training_plan(run, num_train_steps)
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
        ids = plan.ids.reshape(-1, settings.train_batch_size)[_batches_before(run, position)]
        return [_example_name(run, "train", row) for row in ids]

    def evaluate() -> None:
        schedule(int(trainer.global_step.numpy()))

    trainer = _make_trainer(run, objective, plan, start, num_train_steps)
    loop.train(trainer, settings, num_train_steps, found, evaluate, records_of, schedule.next_after, schedule.has_ended)
    evaluate()


def _num_train_steps(run: _Run) -> int:
    settings, rows = run.settings, len(run.splits["train"])
    steps = int(rows / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise InputError(
            f"--num_train_epochs={settings.num_train_epochs} of {rows} examples give no step of "
            f"--train_batch_size={settings.train_batch_size}; train for longer or make it smaller"
        )
    return steps


def _num_warmup_steps(settings: FineTuningSettings, num_train_steps: int) -> int:
    return int(num_train_steps * settings.warmup_proportion)


def _training_plan(run: _Run, num_train_steps: int) -> RowPlan:
    """Plans the whole run, also where it resumes, so that a resumed run has the same packed rows."""
    settings = run.settings
    return plan_training(
        run.splits["train"].lengths,
        batch_size=settings.train_batch_size,
        num_batches=num_train_steps,
        shares=run.strategy.num_replicas_in_sync * settings.gradient_accumulation_steps,
        seed=settings.order_seed,
        packed_for=run.config if settings.pack_sequences else None,
    )


def _batches_before(run: _Run, position: Position) -> int:
    """Returns how many batches of training come before a position."""
    rows = position.epoch * len(run.splits["train"]) + position.examples
    return rows // run.settings.train_batch_size


def _make_trainer(
    run: _Run, objective: FineTuningObjective, plan: RowPlan, start: Position, num_train_steps: int
) -> Trainer:
    settings, strategy = run.settings, run.strategy
    make_batches = _batches(run, "train", plan, settings.gradient_accumulation_steps, _batches_before(run, start))
    length, examples = (plan.shape.width, plan.shape.sequences) if plan.shape else (settings.max_seq_length, 1)
    flops_per_row = run.task.training_flops(run.config, length, examples)
    flops_per_row -= lower_layers.flops_saved(run.config, settings.frozen_layers, length)
    rate_factor = lower_layers.rate_factor(objective.model.encoder, settings.layer_learning_rate_decay)
    num_warmup_steps = _num_warmup_steps(settings, num_train_steps)
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


def _batches(run: _Run, split: str, plan: RowPlan, micro_batches: int = 1, start: int = 0):
    """Returns a function from an input context to the batches of a split."""

    def make_batches(input_context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        return row_batches(
            run.splits[split],
            run.task,
            run.tokenizer,
            plan,
            max_seq_length=run.settings.max_seq_length,
            shares=run.strategy.num_replicas_in_sync * micro_batches,
            micro_batches=micro_batches,
            start=start,
            input_context=input_context,
        )

    return make_batches


def _example_name(run: _Run, split: str, row: int) -> str:
    files = ", ".join(os.path.basename(path) for path in run.task.files(split)) or split
    return f"{files} example {run.splits[split].example_ids[row] + 1}"


def _phase(run: _Run, num_train_steps: int) -> run_folder.Phase:
    settings = run.settings
    warmup = _num_warmup_steps(settings, num_train_steps)
    return run_folder.Phase(
        settings=dataclasses.asdict(settings),
        model=_model_facts(run),
        data={
            "train": run.task.fingerprint("train"),
            "max_seq_length": settings.max_seq_length,
            **run.task.data_facts(),
        },
        optimizer=loop.optimizer_facts(settings, num_train_steps, warmup, num_train_steps) | settings.training_facts,
    )


def _same_on_workers(run: _Run) -> dict:
    """Returns what must be the same on all workers; paths may differ."""
    prints = {split: run.task.fingerprint(split) for split in run.splits}
    data = prints.pop("train", "")
    return {"model": _model_facts(run), "data": data, "evaluation data": prints}


def _write_description(run: _Run) -> None:
    """Writes beside the checkpoints what evaluation and export need: configuration, vocabulary, task."""
    settings, folder = run.settings, run.settings.output_dir
    writer.write_text(os.path.join(folder, checkpoints.CONFIG_NAME), run.config.to_json_string())
    checkpoint_tokenizer.keep(folder, settings.vocab_file, settings.do_lower_case, run.config.max_position_embeddings)
    description.write(folder, description.describe(run.task, settings.do_lower_case, settings.max_seq_length))


def _predictions(run: _Run, objective: FineTuningObjective, split: str, batch_size: int) -> tuple[np.ndarray, float]:
    plan = plan_evaluation(
        run.splits[split].lengths,
        batch_size=batch_size,
        max_seq_length=run.settings.max_seq_length,
        shares=run.strategy.num_replicas_in_sync,
        packed_for=run.config if run.settings.pack_sequences else None,
    )
    return evaluate_rows(objective, run.task, run.strategy, _batches(run, split, plan), len(run.splits[split]))


def _evaluate(run: _Run, objective: FineTuningObjective, step: int) -> dict[str, float]:
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
        run.task.keep_evaluation(folder, split, predictions)
    metrics.require_finite(scores, f"step {step} of {folder}")
    return scores


def _predict(run: _Run, objective: FineTuningObjective) -> None:
    """Predicts the test split and lets the task write its files."""
    predictions, _ = _predictions(run, objective, "test", run.settings.predict_batch_size)
    if not strategies.is_chief(run.strategy):
        return
    split, predictions = run.task.by_example(run.splits["test"], predictions)
    for path in run.task.write_predictions(run.settings.output_dir, split, predictions):
        logging.info("wrote the predictions of %d examples to %s", len(split.examples), path)
