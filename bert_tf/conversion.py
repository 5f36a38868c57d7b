"""Converts a checkpoint to another format, or to a larger or smaller vocabulary."""

import contextlib
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import (
    families,
    hugging_face,
    model_config,
    names,
    native,
    sentence_transformers,
    tf1,
    tf_models,
    vocabulary_change,
)
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, with_trained_pooler
from bert_tf.config import BertConfig
from bert_tf.core import hub, storage
from bert_tf.core.errors import InputError, unreadable
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.finetuning import description, sweep_results
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.distillation import Teacher, check_teacher
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, run_folder, run_record
from bert_tf.settings import ConversionSettings, FineTuningSettings
from bert_tf.tasks import registry, takeover, trained
from bert_tf.tasks.trained import Trained
from bert_tf.text import tokenizer_files
from bert_tf.text.tokenizer_rules import PAD, TokenizerRules
from bert_tf.tokenization import BertTokenizer
from tfrecords import reader

# The attention directions that the original code of a format supports. Formats that are not listed support only "bidi".
_DIRECTIONS = {"bert_tf": ("bidi", "ltr", "rtl", "ltr+rtl"), "hugging_face": ("bidi", "ltr")}
# The formats whose weights and configuration are those of transformers.
# Number of lines whose tokens are found at once.
_LINES_AT_ONCE = 4096
_OF_TRANSFORMERS = ("hugging_face", "sentence_transformers")


def convert_checkpoint(settings: ConversionSettings) -> None:
    """Writes a checkpoint in another format, with its configuration and vocabulary.

    The output folder appears only when it is complete.

    Raises:
      InputError: the input cannot be read or is incomplete, the output format cannot represent the model, or the
        output folder is not empty or cannot be written.
    """
    with unreadable(settings.input):
        contents, lacks_pooler = _convert(settings)
    if lacks_pooler:
        logging.warning("%s has no pooler, so %s has none", contents.source, settings.output)
    logging.info("wrote %s (%s)", settings.output, settings.format)


def _convert(settings: ConversionSettings) -> tuple[OpenCheckpoint, bool]:
    """Returns the converted checkpoint, and whether it lacks the pooler."""
    storage.check_new_folder(settings.output, "output")
    contents = checkpoints.open_checkpoint(_checkpoint(settings), settings.bert_config_file)
    if settings.format != "tf_models":
        contents = with_trained_pooler(contents)
    config = contents.require_config()
    fresh = contents.check_pretrained(config)
    recorded = description.read(contents.folder) if description.exists(contents.folder) else None
    _check_format(settings.format, contents, config, recorded)
    contents = contents.with_own_heads(contents.own_heads)
    run_folder.warn_if_unfinished(contents.source)
    rules = checkpoint_tokenizer.resolve(settings, contents) if settings.vocab_file or contents.vocab_file else None
    new_rules = rules
    if settings.extended_vocab_file:
        new_rules = tokenizer_files.read(settings.extended_vocab_file, default=rules)
    _check_vocabulary(contents, rules, new_rules)
    if settings.keep_vocabulary_of:
        new_rules = _used_rules(settings.keep_vocabulary_of, rules)

    entries = _entries_of(contents, new_rules, recorded)
    task = recorded
    if not recorded and settings.format == "bert_tf" and rules:
        task = _taken_over(contents, settings, entries)
    if recorded and settings.format != "bert_tf":  # only bert_tf's format can store the scale of scores
        mean, deviation = description.score_scale(recorded.parameters)
        contents = contents.with_rescaled_output(deviation, mean)
    tensors = contents.read(contents.tensors)
    if new_rules is not rules:
        tensors, config = _with_vocabulary(tensors, config, rules.vocabulary, new_rules.vocabulary)
    with _write_errors(settings.output), storage.temporary_folder(settings.output) as folder:
        if settings.format in _OF_TRANSFORMERS:
            hugging_face.write(folder, tensors, config, entries)
        else:
            _write(settings.format, folder, tensors, config)
        _write_tokenizer(folder, settings.format, contents, new_rules, task.max_seq_length if task else None)
        if task and settings.format == "bert_tf":
            description.write(folder, task)
            if tuned := registry.of_task(task, contents.folder).tuned:
                tuned.copy(contents.source, folder, task.labels)
        sentence_transformers.copy(contents.folder, folder)
        # Later commands need the entries and the task, which not all formats can store.
        record = dataclasses.asdict(settings) | {hugging_face.ENTRIES: entries}
        if task:
            record[takeover.TASK] = dataclasses.asdict(description.without_score_scale(task))
        storage.write_json(os.path.join(folder, checkpoint_tokenizer.CONVERSION_NAME), record)
        if task and not recorded:
            script = registry.of_task(task, folder).settings.script
            description.write_run(folder, contents.source, task, config, new_rules, script)
        storage.publish_folder(folder, settings.output)
    contents.report(tensors, [])
    return contents, bool(fresh)


@contextlib.contextmanager
def run_of(path: str, has_pairs: bool | None = None) -> Iterator[str]:
    """Provides the folder of a run for a fine-tuned model of this or of another project.

    Args:
      path: folder of a run or of a sweep; or a checkpoint of another project, which is converted into a temporary run.
      has_pairs: for a text classifier of another project: whether it reads pairs of texts.

    Yields:
      The folder.
    """
    is_on_hub = path.startswith(hub.SCHEME)
    if not is_on_hub and (description.exists(path) or sweep_results.exists(path) or run_record.exists(path)):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, os.path.basename(os.path.abspath(path)))
        with unreadable(path):
            contents, _ = _convert(ConversionSettings(input=path, output=run, format="bert_tf", has_pairs=has_pairs))
        if not description.exists(run):
            if not names.heads_in(contents.tensors) & {*names.TASK_HEADS}:
                raise InputError(
                    f"{path}: has no head for a task; give a fine-tuned model; of a pre-trained model, "
                    "FeatureExtractor.of_texts gives vectors, and an export needs --task_name=embeddings or fill_mask"
                )
            raise InputError(
                f"{path}: no file states whether the classifier reads pairs of texts; give --has_pairs or --nohas_pairs"
            )
        yield run


def open_teacher(settings: FineTuningSettings, task: Task) -> Teacher:
    """Opens the model of `--teacher`, and checks that a model of the task can learn its outputs.

    Raises:
      InputError: there is no finished model, it has no head, or it has another kind of task or other labels.
    """

    def load() -> Trained:
        with run_of(settings.teacher, getattr(task, "has_pairs", None)) as folder:
            return trained.load(sweep_results.best_folder(folder, allow_unfinished=False), "best")

    run = load()
    of_teacher = run.kind.task_of(run.description, run.folder)
    check_teacher(task, of_teacher, settings.teacher)
    weights = checkpoints.digest_of_weights(checkpoints.variables_by_path(run.model))
    length, size = run.description.max_seq_length, run.model.num_weights
    return Teacher(settings.teacher, of_teacher, run.tokenizer, length, weights, size, lambda: load().model)


def _checkpoint(settings: ConversionSettings) -> str:
    """Returns the checkpoint to convert; in a run's folder, the checkpoint that evaluation and export would use."""
    path = settings.input
    if not tf.io.gfile.isdir(path):
        return path
    path = sweep_results.best_folder(path, allow_unfinished=False)
    newest = checkpoint_folder.newest_intact(path) if run_record.exists(path) else None
    if not newest or not newest.prefix:
        return path
    return chosen_checkpoint.choose(path, newest, settings.use_checkpoint).prefix


@contextlib.contextmanager
def _write_errors(output: str) -> Iterator[None]:
    """Converts a write error into one line that names the output."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else error.strerror or str(error)
        # TensorFlow's message also names the operation and a temporary file. Keep only the reason.
        reason = message.rpartition("; ")[2].partition(" [Op:")[0]
        raise InputError(
            f"--output={output}: cannot be written ({reason}); check the free disk space and the permissions"
        ) from error


def _write_tokenizer(
    folder: str, format: str, contents: OpenCheckpoint, rules: TokenizerRules | None, trained_length: int | None
) -> None:
    if not rules:
        if format in _OF_TRANSFORMERS:
            logging.warning("the folder of %s has no %s, without which transformers reads every word as [UNK]; give "
                            "--vocab_file", contents.source, checkpoints.VOCABULARY_NAME)  # fmt: skip
        return
    entries = tokenizer_files.read_config(contents.folder)
    entries.pop("added_tokens_decoder", None)
    # transformers truncates texts to the length in this file. For a fine-tuned model, write the row length in training.
    length = trained_length or contents.require_config().max_position_embeddings
    tokenizer_files.write(folder, rules, length, entries, with_json=format in _OF_TRANSFORMERS)


def _taken_over(contents: OpenCheckpoint, settings: ConversionSettings, entries: dict) -> TaskDescription | None:
    """Returns the description of another project's task; None without a task, or if files and flags do not suffice."""
    entries = entries | hugging_face.read_entries(contents)
    flags = {"has_pairs": settings.has_pairs, "version_2_with_negative": settings.version_2_with_negative or None}
    answers = takeover.FlagValues(
        settings.max_seq_length, given={name: value for name, value in flags.items() if value is not None}
    )
    try:
        return takeover.describe(contents, entries, answers)
    except takeover.Unanswered as missing:
        if settings.has_pairs is not None:
            raise
        logging.info("only the weights are converted, not the task: %s", missing)
        return None


def _write(format: str, folder: str, tensors, config: BertConfig) -> None:
    config_file = os.path.join(folder, model_config.ORIGINAL_NAME)
    if format == "tf_models":
        storage.write_json(config_file, model_config.to_tf_models(config))
        tf_models.write(folder, tensors, config)
    else:
        storage.write_text(config_file, config.to_json_string())
        (tf1 if format == "tf1" else native).write(folder, tensors)


def _entries_of(contents: OpenCheckpoint, rules: TokenizerRules | None, task: TaskDescription | None) -> dict:
    """Returns the entries of Hugging Face's `config.json` for the labels, the type of problem and the id of [PAD]."""
    folder = contents.folder
    entries = checkpoint_tokenizer.read_conversion(folder).get(hugging_face.ENTRIES, {})
    entries |= hugging_face.read_task_entries(contents)
    if task:
        entries |= hugging_face.label_entries(task.labels) | dict(registry.of_task(task, folder).config_entries)
    return entries | ({"pad_token_id": rules.id_of(PAD)} if rules else {})


def _check_format(format: str, contents: OpenCheckpoint, config: BertConfig, task: TaskDescription | None) -> None:
    """Refuses a model if the format's original code would compute other outputs; warns about smaller differences."""
    if config.directionality not in _DIRECTIONS.get(format, ("bidi",)):
        raise InputError(
            f"--format={format}: {contents.source} has directionality={config.directionality}, but the format's "
            "original code does not support this direction and would compute other outputs; give --format=bert_tf"
        )
    if format == "sentence_transformers" and not sentence_transformers.is_stated(contents.folder):
        raise InputError(
            f"--format={format}: no file beside {contents.source} says how to pool its vectors; give a model of "
            "run_embeddings or of sentence-transformers"
        )
    if format in _OF_TRANSFORMERS:
        families.check(config)
    elif format != "bert_tf" and (config.family != "bert" or config.layer_norm_eps != 1e-12):
        raise InputError(
            f"--format={format}: {contents.source} is a model of the type {config.family} with layer_norm_eps="
            f"{config.layer_norm_eps}, and the format's original code would compute other outputs; give "
            "--format=bert_tf or --format=hugging_face"
        )
    heads = names.heads_in(contents.tensors)
    if task and format != "bert_tf":
        _check_kind(format, contents, task)
    if contents.own_heads and format != "bert_tf":
        raise InputError(
            f"--format={format}: {contents.source} was trained with --bilstm_head or --feature_layers, but the format "
            "has no BiLSTM; give --format=bert_tf"
        )
    if config.directionality == "ltr" and format == "hugging_face" and heads & {"head", "next_sentence"}:
        logging.warning("transformers pools [CLS], but bert_tf's left-to-right models pool the last token; the "
                        "classification and next-sentence heads compute other outputs in transformers")  # fmt: skip
    if config.hidden_act == "gelu_erf" and format == "tf1":
        logging.warning("hidden_act=gelu_erf is written to %s, but google-research/bert does not know this name; its "
                        "gelu uses tanh and differs by up to 5e-4", model_config.ORIGINAL_NAME)  # fmt: skip


def _check_kind(format: str, contents: OpenCheckpoint, task: TaskDescription) -> None:
    """Refuses a task for which the format's original code always gives other answers; warns if some answers differ."""
    kind = registry.of_task(task, contents.folder)
    kind.check_format(format, contents.source, task)
    if kind.tuned and (path := kind.tuned.path(contents.folder)):
        logging.warning(
            "--format=%s: the format cannot store %s, so some answers will differ, although the scores are equal; "
            "--format=bert_tf keeps the file", format, path,
        )  # fmt: skip


def _check_vocabulary(contents: OpenCheckpoint, rules: TokenizerRules | None, extended: TokenizerRules | None) -> None:
    rows = contents.require_config().vocab_size
    if not rules:
        if extended:
            raise InputError(
                f"--extended_vocab_file: the folder of {contents.source} has no {checkpoints.VOCABULARY_NAME}; "
                "give the checkpoint's vocabulary as --vocab_file"
            )
        return
    if len(rules.vocabulary) > rows:
        raise InputError(
            f"{rules.vocab_file}: has {len(rules.vocabulary)} tokens, but {contents.describe(names.WORDS)} of "
            f"{contents.source} has {rows} rows; give the vocabulary that the checkpoint was trained with"
        )
    kept = set(extended.vocabulary)
    lost = [token for token in rules.vocabulary if token not in kept and not token.startswith("[unused")]
    if lost:
        raise InputError(
            f"--extended_vocab_file lacks {len(lost)} tokens of the checkpoint's vocabulary ({', '.join(lost[:3])}); "
            "give an extension of this vocabulary, such as learn_vocab --extend_vocab writes"
        )


def _used_rules(texts: str, rules: TokenizerRules | None) -> TokenizerRules:
    """Returns the rules with only the special tokens, the added tokens, and the tokens into which texts are split."""
    if not rules:
        raise InputError("--keep_vocabulary_of: the checkpoint has no vocabulary; give it as --vocab_file")
    tokenizer, used = BertTokenizer(rules), np.zeros(len(rules.vocabulary), bool)
    with ProgressBar("reading texts", None, "lines", delay=2.0) as bar:
        for path in reader.expand_files(texts, "keep_vocabulary_of"):
            with tf.io.gfile.GFile(path, "rb") as lines:
                while batch := list(itertools.islice(lines, _LINES_AT_ONCE)):
                    used[tokenizer.encode(batch).values.numpy()] = True
                    bar.update(len(batch))
    always = {*rules.special_tokens, *(token.content for token in rules.added_tokens)}
    kept = [id_ for id_, token in enumerate(rules.vocabulary) if used[id_] or token in always]
    logging.info("%d of %d tokens are kept", len(kept), len(used))
    unigram = rules.unigram
    if unigram:
        scores = tuple(unigram.scores[id_] for id_ in kept if id_ < len(unigram.scores))
        unigram = unigram._replace(scores=scores)
    return dataclasses.replace(rules, vocabulary=tuple(rules.vocabulary[id_] for id_ in kept), unigram=unigram)


def _with_vocabulary(
    tensors: dict, config: BertConfig, old: Sequence[str], new: Sequence[str]
) -> tuple[dict, BertConfig]:
    """Returns the tensors and the configuration of a model with another vocabulary. A smaller vocabulary has no rows of
    padding."""
    size = len(new) if len(new) < len(old) else max(config.vocab_size, len(new))
    sources = vocabulary_change.find_row_sources(old, new)
    paths = [path for path in tensors if path == "masked_lm/bias" or path.endswith("/word_embeddings")]
    tensors = tensors | {path: vocabulary_change.change_rows(tensors[path], sources, size) for path in paths}
    if added := len(set(new) - set(old)):
        logging.info("%d tokens are new; each gets the mean of the embeddings of the old tokens that spell it", added)
    return tensors, dataclasses.replace(config, vocab_size=size)
