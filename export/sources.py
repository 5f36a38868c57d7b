"""Loads the model to export: the best checkpoint of a fine-tuning run, or any checkpoint without a task."""

import contextlib
import dataclasses
from collections.abc import Iterator

from bert_tf import checkpoint_tokenizer, checkpoints, conversion
from bert_tf.core import hub
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep_results
from bert_tf.finetuning.description import TaskDescription
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, run_record
from bert_tf.tasks import trained
from bert_tf.tasks.trained import Trained
from bert_tf.tokenization import BertTokenizer
from export import kinds
from export.kinds import CHECKPOINT_KINDS
from export.settings import ExportSettings


@contextlib.contextmanager
def load(settings: ExportSettings) -> Iterator[Trained]:
    """Loads the model that the settings name. Its files may exist only inside of the `with` block."""
    kind, path = settings.task_name.lower(), settings.checkpoint_dir
    is_run = not path.startswith(hub.SCHEME) and (run_record.exists(path) or sweep_results.exists(path))
    if kind in CHECKPOINT_KINDS and not is_run:
        yield _of_checkpoint(settings)
        return
    with conversion.run_of(path, settings.has_pairs) as folder:
        folder = sweep_results.best_folder(folder, settings.allow_unfinished)
        if kind not in CHECKPOINT_KINDS and description.exists(folder):
            kind = description.read(folder).kind
        if kind in CHECKPOINT_KINDS:
            # The model of such a run is an encoder alone, and the files beside it say how its outputs are used.
            checkpoint = chosen_checkpoint.of_finished(folder, settings.use_checkpoint, settings.allow_unfinished)
            yield _of_checkpoint(dataclasses.replace(settings, checkpoint_dir=checkpoint.prefix, task_name=kind))
            return
        yield _of_run(dataclasses.replace(settings, checkpoint_dir=folder))


def _of_run(settings: ExportSettings) -> Trained:
    """Loads the checkpoint that `--use_checkpoint` selects from a fine-tuning run."""
    folder = settings.checkpoint_dir
    if checkpoint_folder.prefixes(folder) and not description.exists(folder):
        raise InputError(
            f"{folder}: contains no fine-tuned model; give --task_name=embeddings or fill_mask for a pre-trained model"
        )
    run = trained.load(folder, settings.use_checkpoint, settings.allow_unfinished)
    names = run.description.kind, run.description.task_name
    if settings.task_name.lower() not in ("", *map(str.lower, names)):
        raise InputError(
            f"--task_name={settings.task_name}: {folder} was trained on {names[1]}; give --task_name={names[1]}, omit "
            "the flag, or give another --checkpoint_dir"
        )
    kind = kinds.of_task(run.description)
    settings.check_kind(run.description.task_name, kind.flags)
    return dataclasses.replace(run, description=kind.completed(settings, run.description, folder, run.step))


def _of_checkpoint(settings: ExportSettings) -> Trained:
    """Loads a checkpoint of any format, with the vocabulary and the casing from the checkpoint's folder."""
    name, path = settings.task_name.lower(), settings.checkpoint_dir
    kind, contents = CHECKPOINT_KINDS[name], checkpoints.open_checkpoint(path)
    settings.check_kind(name, kind.flags)
    config = contents.require_config()
    rules = checkpoint_tokenizer.stated_rules(contents)
    if not rules:
        raise InputError(
            f"{contents.source}: its folder has no {checkpoints.VOCABULARY_NAME}; copy the vocabulary there"
        )
    tokenizer = BertTokenizer(rules)
    config.check_vocabulary(len(tokenizer.vocabulary), contents.vocab_file, contents.config_file)
    parameters = kind.parameters(settings, contents)
    described = TaskDescription(name, name, (), parameters["max_seq_length"], parameters)
    model = kind.make_model(config, parameters)
    checkpoint = checkpoints.initialize(model, path)
    step = checkpoint_folder.step_of(checkpoint)
    return Trained(None, contents.folder, checkpoint, step, model, tokenizer, described, config)
