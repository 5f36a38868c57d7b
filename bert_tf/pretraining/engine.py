"""Runs pre-training: checks everything first, and then trains and evaluates.

Paper: section 3.1, appendix A.2. The teacher of a distillation is from V. Sanh et al., "DistilBERT, a distilled version
of BERT", 2019.
"""

import contextlib
import dataclasses
import os
from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig, require_segments
from bert_tf.core import identity
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workers
from bert_tf.input import pipeline
from bert_tf.input.record_order import BEGINNING, Position
from bert_tf.pretraining import fill_mask, record_files
from bert_tf.pretraining.evaluation import Evaluation, Report, evaluate_latest, find_rows, no_report
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.scoring import require_language_model
from bert_tf.runs import checkpoint_folder, run_folder, run_record
from bert_tf.settings import PretrainingSettings
from bert_tf.training import batch_parts, flops, loop, metrics, resume
from bert_tf.training.session import session
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tfrecords import reader

# Smaller batches are not divided: on a processor with AMX, a step of 1,024 tokens took 1.08 times as long in two parts.
_FEWEST_TOKENS_IN_PARTS = 2048


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A command, after all checks."""

    settings: PretrainingSettings  # the settings, with all defaults filled in
    config: BertConfig  # the model's configuration
    data: record_files.PretrainingData
    phase: run_record.TrainingRecord  # the entry of `run.json`
    # rows whose masked tokens the model predicts at each evaluation, and their vocabulary
    shown: tuple[Sequence[fill_mask.BlankRow], Sequence[str]]
    eval_fingerprint: Sequence[str]  # `identity.fingerprint` of the evaluated files; () without evaluation
    teacher: OpenCheckpoint | None = None  # the checkpoint of `--teacher`; None without a teacher


def run_pretraining(settings: PretrainingSettings, write_report: Report = no_report) -> dict[str, float]:
    """Trains and evaluates according to the settings.
    `write_report`: function that is called with the run's folder at the start of training, after each checkpoint or
      evaluation, and at the end of training, also after an error.
    Returns the metrics of the last evaluation by name; {} without `do_eval`.
    Raises NotFinite: training or the last evaluation is not finite."""
    settings = dataclasses.replace(settings, num_schedule_steps=settings.num_schedule_steps or settings.num_train_steps)
    settings = strategies.with_devices(settings)
    parts = parts_of(settings)
    strategy = strategies.make_strategy(settings)
    with session(settings, strategy) as lock:
        prepared = _prepare(settings, strategy)
        workers.check_same_facts(strategy, _same_on_workers(prepared))
        if settings.do_train:
            values = _train(prepared, strategy, lock, write_report, parts)
        else:
            values = _evaluate(prepared, strategy, write_report)
        try:
            metrics.require_finite(values, f"the last checkpoint of {settings.output_dir}")
        except metrics.NotFinite:
            if lock:
                checkpoint_folder.discard_latest(settings.output_dir)
            raise
        return values


def parts_of(settings: PretrainingSettings) -> int:
    """Returns the number of parts of a batch; see `batch_parts`."""
    micro_batch_size = settings.train_batch_size // settings.gradient_accumulation_steps
    if not settings.do_train or micro_batch_size * settings.max_seq_length < _FEWEST_TOKENS_IN_PARTS:
        return 1
    return batch_parts.choose_parts(settings, [micro_batch_size])


def _prepare(settings: PretrainingSettings, strategy: tf.distribute.Strategy) -> _Prepared:
    run_folder.check_script(settings.output_dir, settings.script, settings.do_train)
    settings = dataclasses.replace(settings, **checkpoints.model_files(settings, "bert_config_file"))
    config = checkpoints.read_config(settings.bert_config_file)
    files = reader.expand_files(settings.input_file)
    eval_files = reader.expand_files(settings.eval_input_file, "eval_input_file") if settings.eval_input_file else files
    settings, data = record_files.inspect(settings, config, files, eval_files)
    strategies.check_python_input(strategy, settings, bool(data.dynamic_masking), bool(data.packing))
    run_folder.check_model(settings.output_dir, _model_facts(config), data.vocabulary)
    if starts_from := run_folder.initial_checkpoint(settings):
        contents = checkpoints.check_initial(starts_from, config, with_heads=True)
        if not settings.ignore_checkpoint_tokenizer:
            checkpoint_tokenizer.check_data(contents, data.vocabulary, data.rules)
    if not settings.do_train:
        checkpoint_folder.check_there(settings.output_dir)
    strategies.check_batch_sizes(strategy, settings)
    shown = find_rows(settings, config, data) if settings.do_eval else ([], [])
    eval_fingerprint = identity.fingerprint(data.eval_files) if settings.do_eval else ()
    teacher = _open_teacher(settings, config, data)
    phase = _phase(settings, config, data, teacher)
    return _Prepared(settings, config, data, phase, shown, eval_fingerprint, teacher)


def _open_teacher(
    settings: PretrainingSettings, config: BertConfig, data: record_files.PretrainingData
) -> OpenCheckpoint | None:
    """Returns the checkpoint of `--teacher`, whose predictions of masked tokens the model learns; None if the command
    does not distill."""
    if not settings.distills:
        return None
    contents = checkpoints.open_checkpoint(settings.teacher)
    of_teacher = require_language_model(contents)
    for name in ("vocab_size", "directionality"):
        if getattr(of_teacher, name) != getattr(config, name):
            raise InputError(
                f"--teacher={settings.teacher}: has {name}={getattr(of_teacher, name)}, but the model has "
                f"{getattr(config, name)}; give a teacher with the student's vocabulary and direction"
            )
    of_teacher.check_length(settings.max_seq_length, settings.teacher)
    if data.has_pairs:
        require_segments(of_teacher, settings.teacher)
    if not settings.ignore_checkpoint_tokenizer:
        checkpoint_tokenizer.check_data(contents, data.vocabulary, data.rules)
    return contents


def _train(
    prepared: _Prepared,
    strategy: tf.distribute.Strategy,
    lock: run_folder.Lock | None,
    write_report: Report,
    parts: int,
) -> dict[str, float]:
    """Trains and evaluates, starting from the folder's newest checkpoint."""
    settings, config, data = prepared.settings, prepared.config, prepared.data
    folder, chief = settings.output_dir, strategies.is_chief(strategy)
    point = resume.shared_checkpoint(folder, strategy)
    start = resume.start_position(folder, prepared.phase, point)
    starts_from = run_folder.initial_checkpoint(settings)
    trainer = _make_trainer(prepared, strategy, start, parts)
    evaluation = None
    if settings.do_eval:
        predictor = _make_fill_mask(prepared, trainer)
        evaluation = Evaluation(settings, trainer, predictor, write_report, prepared.eval_fingerprint, prepared.phase)

    def report_only() -> None:
        if chief:
            write_report(folder)

    with pipeline.clear_errors([*data.files, *data.eval_files], config.vocab_size):
        if starts_from:
            with strategy.scope():
                run_folder.warn_if_unfinished(checkpoints.initialize(trainer.objective.model, starts_from))
        if chief:
            lock.make_folder()
            run_folder.begin(folder, prepared.phase, point.step)
            checkpoint_tokenizer.write(folder, config, data.rules)
        workers.wait_for_chief(strategy, os.path.join(folder, run_record.NAME))
        try:
            loop.train(trainer, settings, settings.num_train_steps, point, evaluation or report_only)
            return evaluation() if evaluation else {}
        finally:
            # The report is also written after an error, and a failure of the report must not hide this error.
            with contextlib.suppress(OSError, tf.errors.OpError):
                report_only()


def _evaluate(prepared: _Prepared, strategy: tf.distribute.Strategy, write_report: Report) -> dict[str, float]:
    settings, data, trainer = prepared.settings, prepared.data, _make_trainer(prepared, strategy)
    predictor = _make_fill_mask(prepared, trainer)
    evaluation = Evaluation(settings, trainer, predictor, write_report, prepared.eval_fingerprint)
    with pipeline.clear_errors([*data.files, *data.eval_files], prepared.config.vocab_size):
        return evaluate_latest(trainer, settings.output_dir, evaluation)


def _make_fill_mask(prepared: _Prepared, trainer: Trainer) -> fill_mask.FillMask | None:
    if not prepared.shown[0]:
        return None
    length = prepared.settings.max_seq_length
    return fill_mask.FillMask(trainer.objective.model, trainer.strategy, *prepared.shown, length)


def _model_facts(config: BertConfig) -> dict:
    return {"model": run_folder.PRETRAINING, **dataclasses.asdict(config)}


def _phase(
    settings: PretrainingSettings,
    config: BertConfig,
    data: record_files.PretrainingData,
    teacher: OpenCheckpoint | None,
) -> run_record.TrainingRecord:
    return run_record.TrainingRecord(
        settings=dataclasses.asdict(settings),
        model=_model_facts(config),
        data={
            "input_file": identity.fingerprint(data.files),
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": settings.max_predictions_per_seq,
            "use_next_sentence_label": data.has_next_sentence_labels,
            "packed_rows": data.packing and dataclasses.asdict(data.packing),
            **data.masking_facts,
            **({"teacher": teacher.sha256(teacher.tensors)} if teacher else {}),
        },
        optimizer=loop.optimizer_facts(
            settings, settings.num_train_steps, settings.num_warmup_steps, settings.num_schedule_steps
        )
        | settings.distillation_facts,
        vocabulary=data.vocabulary and dataclasses.asdict(data.vocabulary),
        script=settings.script,
    )


def _same_on_workers(prepared: _Prepared) -> dict:
    """Returns the facts that must be the same on all workers; paths may differ."""
    settings, phase = prepared.settings, prepared.phase
    shown = [settings.fill_mask_file] if settings.fill_mask_file else []
    return {
        "flags": workers.shared_settings(settings),
        "model": phase.model,
        "data": [phase.data, prepared.data.dynamic_masking],
        "optimizer": {**phase.optimizer, "init_checkpoint": ""},
        "evaluation data": [*prepared.eval_fingerprint, *identity.fingerprint(shown)],
    }


def _make_trainer(
    prepared: _Prepared, strategy: tf.distribute.Strategy, start: Position = BEGINNING, parts: int = 1
) -> Trainer:
    settings, config, data, teacher = prepared.settings, prepared.config, prepared.data, prepared.teacher
    reading = record_files.reading_options(settings, config, data)

    def dataset(paths, batch_size, **options):
        return strategies.distribute(
            strategy,
            lambda input_context: pipeline.pretraining_batches(
                paths, reading, batch_size=batch_size, input_context=input_context, **options
            ),
        )

    keras.utils.set_random_seed(settings.random_seed)
    with strategy.scope():
        model = BertPretrainer(config, settings.recompute_activations)
        teacher_model = BertPretrainer(teacher.require_config()) if teacher else None
        if teacher:
            checkpoints.initialize(teacher_model, teacher.source)
        objective = PretrainingObjective(
            model,
            data.has_next_sentence_labels,
            record_files.starts_word(config, data),
            teacher_model,
            settings.distill_weight,
            settings.distill_temperature,
        )
        eval_dataset = dataset(data.eval_files, settings.eval_batch_size, training=False)
        if not settings.do_train:
            return Trainer(objective, strategy, eval_dataset=eval_dataset)
        return Trainer(
            objective,
            strategy,
            random_seed=settings.random_seed,
            optimizer=optimizer_of(settings),
            train_dataset=dataset(
                data.files, settings.train_batch_size, training=True, start=start, packing=data.packing
            ),
            eval_dataset=eval_dataset,
            skip_non_finite_steps=settings.skip_non_finite_steps,
            throughput=_throughput(prepared, strategy),
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            compiles=settings.enable_xla,
            parts=parts,
        )


def optimizer_of(settings: PretrainingSettings) -> keras.optimizers.Optimizer:
    end = settings.num_schedule_steps or settings.num_train_steps
    return make_optimizer(settings, settings.learning_rate, end, settings.num_warmup_steps)


def _throughput(prepared: _Prepared, strategy: tf.distribute.Strategy) -> Throughput:
    settings, config, data = prepared.settings, prepared.config, prepared.data
    predictions, examples = settings.max_predictions_per_seq, 1
    if data.packing:
        predictions, examples = data.packing.predictions, data.packing.sequences
    if config.directionality != "bidi":
        predictions = settings.max_seq_length - 1
    outputs = 2 if data.has_next_sentence_labels else 0
    per_row = flops.pretraining_flops(config, settings.max_seq_length, predictions, outputs, examples)
    return Throughput(per_row, flops.peak(strategy, settings.dtype))
