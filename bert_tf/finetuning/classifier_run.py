"""A whole classifier run: checks first, then training, evaluation, prediction.

Paper: section 4.1 and appendix A.3.
"""

import contextlib
import dataclasses
import json
import os

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import latest
from bert_tf.config import BertConfig, require_segments
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import classifier
from bert_tf.finetuning.classifier import BertClassifier, EncodedExamples
from bert_tf.finetuning.tasks import glue
from bert_tf.runs import checkpoint_tokenizer, run_folder
from bert_tf.settings import ClassifierSettings
from bert_tf.text.data_vocabulary import tokens_sha256
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops, loop, metrics_file, progress
from bert_tf.training.throughput import Throughput
from bert_tf.training.trainer import Trainer, make_optimizer
from tfrecords import writer
from tfrecords.errors import InputError

TASK_NAME = "classifier.json"


@dataclasses.dataclass(frozen=True)
class ClassifierRun:
    """What a run works with, all of it checked.

    Attributes:
      settings: as given.
      config: shape of the model.
      tokenizer: from the run's vocabulary.
      task: labels, columns, metrics.
      splits: "train", "dev", "test" to their examples, as far as the settings ask for them.
    """

    settings: ClassifierSettings
    config: BertConfig
    tokenizer: BertTokenizer
    task: glue.ClassificationTask
    splits: dict[str, EncodedExamples]


def run_classifier(settings: ClassifierSettings) -> dict[str, float]:
    """Trains, evaluates and predicts as the settings say.

    Returns:
      Figures of the evaluation; {} without `do_eval`.

    Raises:
      InputError: something given does not fit; before any training.
    """
    strategy = strategies.make_strategy(settings)
    locked = settings.do_train and strategies.is_chief(strategy)
    with (
        workers.clear_errors(),
        run_folder.Lock(settings.output_dir) if locked else contextlib.nullcontext() as lock,
    ):
        settings = checkpoint_tokenizer.with_casing(settings)
        run = _prepare(checkpoints.settings_with_files(settings, "bert_config_file", "vocab_file"))
        return _run(run, strategy, lock)


def _run(run: ClassifierRun, strategy: tf.distribute.Strategy, lock: run_folder.Lock | None) -> dict[str, float]:
    settings = run.settings
    run_folder.check_model(settings.output_dir, _model_facts(run))
    strategies.check_batch_sizes(strategy, settings)
    workers.check_same_facts(strategy, _same_on_workers(run))
    keras.utils.set_random_seed(settings.random_seed)
    with strategy.scope():
        model = BertClassifier(run.config, run.task.num_outputs, settings.recompute_activations)
    if settings.do_train:
        _train(run, strategy, model, lock)
    if not (settings.do_eval or settings.do_predict):
        return {}
    found = latest.find(settings.output_dir)
    workers.check_same_folder(strategy, settings.output_dir, found.step)
    tf.train.Checkpoint(model=model).restore(found.prefix).expect_partial()
    figures = _evaluate(run, strategy, model, found.step) if settings.do_eval else {}
    if settings.do_predict:
        _predict(run, strategy, model)
    return figures


def _prepare(settings: ClassifierSettings) -> ClassifierRun:
    config = checkpoints.read_config(settings.bert_config_file)
    tokenizer = BertTokenizer(settings.vocab_file, settings.do_lower_case)
    config.check_vocabulary(len(tokenizer.vocabulary), tokenizer.vocab_file, settings.bert_config_file)
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    if not settings.do_train:
        latest.check_there(settings.output_dir)
    task = glue.find_task(settings, _labels_of_earlier_run(settings.output_dir))
    if task.has_pairs:
        require_segments(config, settings.bert_config_file)
    asked = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    examples = {split: glue.read_split(task, settings.data_dir, split) for split, wanted in asked.items() if wanted}
    if starts_from := run_folder.initial_checkpoint(settings):
        checkpoints.check_initial(starts_from, config)
    splits = {split: classifier.encode_examples(read, task, tokenizer) for split, read in examples.items()}
    return ClassifierRun(settings, config, tokenizer, task, splits)


def _labels_of_earlier_run(output_dir: str) -> tuple[str, ...]:
    """Labels that a run of the task "tsv" in this folder was trained with."""
    models = [phase.model for phase in run_folder.read_phases(output_dir)]
    return tuple(models[-1].get("labels", ())) if models and models[-1].get("task_name") == "tsv" else ()


def _model_facts(run: ClassifierRun) -> dict:
    return {
        "model": "classifier",
        "task_name": run.task.name,
        "labels": list(run.task.labels),
        "do_lower_case": run.settings.do_lower_case,
        "vocab_sha256": tokens_sha256(run.tokenizer.vocabulary),
        **dataclasses.asdict(run.config),
    }


def _train(run: ClassifierRun, strategy: tf.distribute.Strategy, model: BertClassifier, lock: run_folder.Lock) -> None:
    settings, examples = run.settings, run.splits["train"]
    num_train_steps = int(len(examples) / settings.train_batch_size * settings.num_train_epochs)
    if num_train_steps < 1:
        raise InputError(
            f"--num_train_epochs={settings.num_train_epochs} of {len(examples)} examples give no step of "
            f"--train_batch_size={settings.train_batch_size}; train for longer or make it smaller"
        )
    num_warmup_steps = int(num_train_steps * settings.warmup_proportion)
    phase = _facts(run, num_train_steps, num_warmup_steps)
    if starts_from := run_folder.initial_checkpoint(settings):
        with strategy.scope():
            checkpoints.initialize(model, starts_from)
    found = latest.find(settings.output_dir)
    workers.check_same_folder(strategy, settings.output_dir, found.step)
    start_step = run_folder.check(settings.output_dir, phase, found.step)
    if strategies.is_chief(strategy):
        lock.make_folder()
        run_folder.begin(settings.output_dir, phase, found.step)
        _write_description(run)
    workers.wait_for_chief(strategy, os.path.join(settings.output_dir, run_folder.NAME))

    def make_batches(input_context, start_step=start_step):
        return classifier.batches(
            examples,
            run.tokenizer,
            max_seq_length=settings.max_seq_length,
            batch_size=settings.train_batch_size,
            training=True,
            seed=settings.random_seed,
            start_step=start_step,
            input_context=input_context,
        )

    def records_of(step, _):
        batch = next(iter(make_batches(None, start_step + step - 1 - found.step)))
        return [f"train.tsv example {number + 1}" for number in batch["example_ids"].numpy()]

    with strategy.scope():
        optimizer = make_optimizer(settings, settings.learning_rate, num_train_steps, num_warmup_steps)
        per_sequence = flops.training_flops(run.config, settings.max_seq_length, outputs=run.task.num_outputs)
        trainer = Trainer(
            classifier.ClassificationObjective(model, run.task.is_regression),
            strategy,
            random_seed=settings.random_seed,
            optimizer=optimizer,
            train_dataset=strategy.distribute_datasets_from_function(make_batches),
            skip_non_finite_steps=settings.skip_non_finite_steps,
            throughput=Throughput(per_sequence, flops.peak(strategy, settings.dtype)),
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
        )

    loop.train(trainer, settings, num_train_steps, found, records_of=records_of)


def _facts(run: ClassifierRun, num_train_steps: int, num_warmup_steps: int) -> run_folder.Phase:
    settings = run.settings
    every = dataclasses.asdict(settings)
    columns = [name for name in every if name.startswith("tsv_") and name != "tsv_labels"]
    return run_folder.Phase(
        settings=every,
        model=_model_facts(run),
        data={
            "train.tsv": run_folder.fingerprint([os.path.join(settings.data_dir, "train.tsv")]),
            "max_seq_length": settings.max_seq_length,
            **({name: every[name] for name in columns} if run.task.name == "tsv" else {}),
        },
        optimizer=loop.optimizer_facts(settings, num_train_steps, num_warmup_steps, num_train_steps),
    )


def _same_on_workers(run: ClassifierRun) -> dict:
    """What all workers must have alike; paths may differ."""
    files = {split: os.path.join(run.settings.data_dir, f"{split}.tsv") for split in run.splits}
    prints = {split: run_folder.fingerprint([path]) for split, path in files.items()}
    data = prints.pop("train", "")
    return {"model": _model_facts(run), "data": data, "evaluation data": prints}


def _write_description(run: ClassifierRun) -> None:
    """Writes beside the checkpoints what evaluation and export need: configuration, vocabulary, task."""
    settings, folder = run.settings, run.settings.output_dir
    writer.write_text(os.path.join(folder, checkpoints.CONFIG_NAME), run.config.to_json_string())
    checkpoint_tokenizer.keep(folder, settings.vocab_file, settings.do_lower_case, run.config.max_position_embeddings)
    description = {
        "task_name": run.task.name,
        "labels": list(run.task.labels),
        "has_pairs": run.task.has_pairs,
        "do_lower_case": settings.do_lower_case,
        "max_seq_length": settings.max_seq_length,
    }
    writer.write_text(os.path.join(folder, TASK_NAME), json.dumps(description, indent=2) + "\n")


def _logits(run: ClassifierRun, split: str, batch_size: int, strategy, model: BertClassifier) -> np.ndarray:
    def make_batches(input_context):
        return classifier.batches(
            run.splits[split],
            run.tokenizer,
            max_seq_length=run.settings.max_seq_length,
            batch_size=batch_size,
            training=False,
            input_context=input_context,
        )

    dataset = strategy.distribute_datasets_from_function(make_batches)
    return classifier.predict(model, strategy, dataset, len(run.splits[split]))


def _evaluate(run: ClassifierRun, strategy, model: BertClassifier, step: int) -> dict[str, float]:
    """Evaluates on dev.tsv and writes `eval_results.txt` with the original's names."""
    settings, labels = run.settings, run.splits["dev"].labels
    logits = _logits(run, "dev", settings.eval_batch_size, strategy, model)
    predictions = logits[:, 0] if run.task.is_regression else np.argmax(logits, axis=1)
    loss = classifier.mean_loss(logits, labels, run.task.is_regression)
    figures = {**glue.score(run.task, labels, predictions), "loss": loss}
    if not strategies.is_chief(strategy):
        return figures
    logging.info("%s dev, step %d: %s", run.task.name, step, progress.describe(figures, classifier.METRICS))
    metrics_file.record(settings.output_dir, "dev", step, figures)
    results = {"global_step": step, **{f"eval_{name}": value for name, value in figures.items()}}
    metrics_file.write_results(settings.output_dir, results)
    return figures


def _predict(run: ClassifierRun, strategy, model: BertClassifier) -> None:
    """Predicts test.tsv and writes `test_results.tsv`: probabilities, or the score, a line an example."""
    logits = _logits(run, "test", run.settings.predict_batch_size, strategy, model)
    if not strategies.is_chief(strategy):
        return
    rows = logits if run.task.is_regression else classifier.probabilities(logits)
    path = os.path.join(run.settings.output_dir, "test_results.tsv")
    writer.write_text(path, "".join("\t".join(map(repr, row.tolist())) + "\n" for row in rows))
    logging.info("wrote %d predictions to %s", len(rows), path)
