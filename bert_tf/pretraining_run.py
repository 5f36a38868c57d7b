"""A whole pre-training run: checks first, then training, then evaluation.

Paper: section 3.1, appendix A.2.
"""

import dataclasses
import os

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints, input_pipeline, pretraining_data, progress, run_folder, training
from bert_tf.config import BertConfig
from bert_tf.pretraining import BertPretrainer, PretrainingObjective
from bert_tf.settings import PretrainingSettings
from tfrecords import reader, writer


def run_pretraining(settings: PretrainingSettings) -> dict[str, float]:
    """Trains and evaluates as the settings say.

    Returns:
      Figures of the last evaluation; {} without `do_eval`.

    Raises:
      InputError: something given does not fit; before any training.
    """
    settings = checkpoints.settings_with_files(settings, "bert_config_file")
    config = checkpoints.read_config(settings.bert_config_file)
    files = reader.expand_files(settings.input_file)
    eval_files = reader.expand_files(settings.eval_input_file, "eval_input_file") if settings.eval_input_file else files
    data = pretraining_data.inspect(settings, config, files, eval_files)
    run_folder.check_model(settings.output_dir, _model_facts(config))
    trained_steps, done = training.latest_step(settings.output_dir), 0
    if settings.do_train:
        if settings.init_checkpoint:
            checkpoints.check_initial(settings.init_checkpoint, config, with_heads=True)
        phase = _phase(settings, config, data)
        done = run_folder.check(settings.output_dir, phase, trained_steps)
    else:
        checkpoints.latest_checkpoint(settings.output_dir)
    strategy = training.make_strategy(settings)
    training.check_batch_size(
        strategy, train_batch_size=settings.train_batch_size, eval_batch_size=settings.eval_batch_size
    )
    trainer = _make_trainer(settings, config, data, strategy, done)

    def evaluate() -> dict[str, float]:
        return _evaluate(settings, trainer)

    with input_pipeline.clear_errors([*files, *eval_files], config.vocab_size):
        if settings.do_train:
            run_folder.begin(settings.output_dir, phase, trained_steps)
            config_path = os.path.join(settings.output_dir, checkpoints.CONFIG_NAME)
            writer.write_text(config_path, config.to_json_string())
            training.train(trainer, settings, settings.num_train_steps, evaluate if settings.do_eval else None)
        else:
            latest = checkpoints.latest_checkpoint(settings.output_dir)
            trainer.checkpoint.restore(latest).expect_partial()
        return evaluate() if settings.do_eval else {}


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
        },
        optimizer=training.optimizer_facts(settings, settings.num_train_steps, settings.num_warmup_steps),
    )


def _make_trainer(
    settings: PretrainingSettings,
    config: BertConfig,
    data: pretraining_data.PretrainingData,
    strategy: tf.distribute.Strategy,
    start_step: int,
) -> training.Trainer:
    def dataset(paths, batch_size, is_training):
        return strategy.distribute_datasets_from_function(
            lambda input_context: input_pipeline.pretraining_batches(
                paths,
                features=data.features,
                vocab_size=config.vocab_size,
                batch_size=batch_size,
                training=is_training,
                seed=settings.random_seed,
                start_step=start_step,
                input_context=input_context,
                dynamic_masking=data.dynamic_masking,
                directionality=config.directionality,
            )
        )

    keras.utils.set_random_seed(settings.random_seed)
    with strategy.scope():
        optimizer = training.make_optimizer(
            settings, settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps
        )
        return training.Trainer(
            PretrainingObjective(BertPretrainer(config), data.has_pairs and settings.use_next_sentence_label),
            strategy,
            random_seed=settings.random_seed,
            optimizer=optimizer if settings.do_train else None,
            train_dataset=dataset(data.files, settings.train_batch_size, True) if settings.do_train else None,
            eval_dataset=dataset(data.eval_files, settings.eval_batch_size, False),
        )


def _evaluate(settings: PretrainingSettings, trainer: training.Trainer) -> dict[str, float]:
    """Evaluates the trainer's weights and writes `eval_results.txt`, as the original does."""
    step = int(trainer.global_step.numpy())
    output = trainer.evaluate(tf.constant(settings.max_eval_steps))
    figures = {name: float(value) for name, value in output.items()}
    logging.info("evaluated at step %d  %s", step, progress.describe(figures))
    progress.record(settings.output_dir, "eval", step, figures)
    progress.write_results(settings.output_dir, {"global_step": step, **figures})
    return figures
