"""A whole pre-training run: checks first, then training, then evaluation.

Paper: section 3.1, appendix A.2.
"""

import contextlib
import dataclasses
import os

import tensorflow as tf
import tf_keras as keras

from bert_tf import (
    checkpoints,
    flops,
    input_pipeline,
    pretraining_data,
    report,
    run_checkpoints,
    run_folder,
    strategies,
    training,
)
from bert_tf.config import BertConfig
from bert_tf.pretraining import BertPretrainer, PretrainingObjective
from bert_tf.pretraining_evaluation import Evaluation, evaluate_checkpoints, find_blanks
from bert_tf.record_order import BEGINNING, Position
from bert_tf.settings import PretrainingSettings
from bert_tf.throughput import Throughput
from bert_tf.trainer import Trainer, make_optimizer
from tfrecords import reader, writer


def run_pretraining(settings: PretrainingSettings) -> dict[str, float]:
    """Trains and evaluates as the settings say.

    Returns:
      Figures of the last evaluation; {} without `do_eval`.

    Raises:
      InputError: something given does not fit; before any training.
    """
    with run_folder.Lock(settings.output_dir) if settings.do_train else contextlib.nullcontext() as lock:
        return _run(checkpoints.settings_with_files(settings, "bert_config_file"), lock)


def _run(settings: PretrainingSettings, lock: run_folder.Lock | None) -> dict[str, float]:
    config = checkpoints.read_config(settings.bert_config_file)
    files = reader.expand_files(settings.input_file)
    eval_files = reader.expand_files(settings.eval_input_file, "eval_input_file") if settings.eval_input_file else files
    data = pretraining_data.inspect(settings, config, files, eval_files)
    run_folder.check_model(settings.output_dir, _model_facts(config))
    start, starts_from = BEGINNING, run_folder.initial_checkpoint(settings)
    if settings.do_train:
        found = run_checkpoints.find(settings.output_dir)
        trained_steps = found.step
        if starts_from:
            checkpoints.check_initial(starts_from, config, with_heads=True)
        phase = _phase(settings, config, data)
        if run_folder.check(settings.output_dir, phase, trained_steps):
            start = found.position
    elif not settings.eval_timeout:
        run_checkpoints.check_there(settings.output_dir)
    blanks = find_blanks(settings, config, data) if settings.do_eval else None
    strategy = strategies.make_strategy(settings)
    strategies.check_batch_size(
        strategy, train_batch_size=settings.train_batch_size, eval_batch_size=settings.eval_batch_size
    )
    trainer = _make_trainer(settings, config, data, strategy, start)
    evaluation = Evaluation(settings, trainer, blanks) if settings.do_eval else None

    def records_of(step: int, position: Position) -> list[str]:
        options = pretraining_data.reading_options(settings, config, data)
        return input_pipeline.records_at(
            files, position if step > found.step + 1 else start, batch_size=settings.train_batch_size, training=True,
            packing=data.packing, **options,
        )  # fmt: skip

    def report_only() -> None:
        report.write(settings.output_dir)

    with input_pipeline.clear_errors([*files, *eval_files], config.vocab_size):
        if not settings.do_train:
            return evaluate_checkpoints(settings, trainer, evaluation, _model_facts(config))
        if starts_from:
            with strategy.scope():
                checkpoints.initialize(trainer.objective.model, starts_from)
        lock.make_folder()
        run_folder.begin(settings.output_dir, phase, trained_steps)
        config_path = os.path.join(settings.output_dir, checkpoints.CONFIG_NAME)
        writer.write_text(config_path, config.to_json_string())
        try:
            training.train(trainer, settings, settings.num_train_steps, found, evaluation or report_only, records_of)
            return evaluation() if evaluation else {}
        finally:  # whether it ended, was stopped or diverged; of these a full disk must not take the place
            with contextlib.suppress(OSError, tf.errors.OpError):
                report_only()


def _model_facts(config: BertConfig) -> dict:
    return {"model": "pretraining", **dataclasses.asdict(config)}


def _phase(
    settings: PretrainingSettings, config: BertConfig, data: pretraining_data.PretrainingData
) -> run_folder.Phase:
    return run_folder.Phase(
        settings=dataclasses.asdict(settings),
        model=_model_facts(config),
        data={
            "input_file": run_folder.fingerprint(data.files),
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": settings.max_predictions_per_seq,
            "use_next_sentence_label": settings.use_next_sentence_label,
            "packed_rows": data.packing and dataclasses.asdict(data.packing),
        },
        optimizer=training.optimizer_facts(settings, settings.num_train_steps, settings.num_warmup_steps),
    )


def _make_trainer(
    settings: PretrainingSettings,
    config: BertConfig,
    data: pretraining_data.PretrainingData,
    strategy: tf.distribute.Strategy,
    start: Position,
) -> Trainer:
    reading = pretraining_data.reading_options(settings, config, data)

    def dataset(paths, batch_size, **options):
        return strategy.distribute_datasets_from_function(
            lambda input_context: input_pipeline.pretraining_batches(
                paths, batch_size=batch_size, input_context=input_context, **reading, **options
            )
        )

    keras.utils.set_random_seed(settings.random_seed)
    has_next_sentence = data.has_pairs and settings.use_next_sentence_label
    with strategy.scope():
        objective = PretrainingObjective(BertPretrainer(config), has_next_sentence)
        eval_dataset = dataset(data.eval_files, settings.eval_batch_size, training=False)
        if not settings.do_train:
            return Trainer(objective, strategy, eval_dataset=eval_dataset)
        return Trainer(
            objective,
            strategy,
            random_seed=settings.random_seed,
            optimizer=make_optimizer(
                settings, settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps
            ),
            train_dataset=dataset(
                data.files, settings.train_batch_size, training=True, start=start, packing=data.packing
            ),
            eval_dataset=eval_dataset,
            skip_non_finite_steps=settings.skip_non_finite_steps,
            throughput=_throughput(settings, config, data, strategy),
        )


def _throughput(
    settings: PretrainingSettings,
    config: BertConfig,
    data: pretraining_data.PretrainingData,
    strategy: tf.distribute.Strategy,
) -> Throughput:
    predictions, examples = settings.max_predictions_per_seq, 1
    if data.packing:
        predictions, examples = data.packing.predictions, data.packing.sequences
    if config.directionality != "bidi":
        predictions = settings.max_seq_length - 1
    outputs = 2 if data.has_pairs and settings.use_next_sentence_label else 0
    per_row = flops.of_training(config, settings.max_seq_length, predictions, outputs, examples)
    return Throughput(per_row, flops.peak(strategy, settings.dtype))
