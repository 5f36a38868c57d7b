"""What is exported: the best checkpoint of a fine-tuning run, or a checkpoint of any format without a task."""

import dataclasses
import os

import tensorflow as tf
import tf_keras as keras

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep_results
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.runs import chosen_checkpoint, latest, run_folder, run_record
from bert_tf.tokenization import BertTokenizer
from export.kinds import CHECKPOINT_KINDS, KINDS
from export.kinds.base import ServedModel, ServedTask
from export.settings import ExportSettings


@dataclasses.dataclass(frozen=True)
class Source:
    """A model that can be exported.

    Attributes:
      kind: of the served model.
      model: with trained weights.
      tokenizer: the one it was trained with.
      description: of its task; see `ServedModel`.
      folder: of the checkpoint.
      checkpoint: its prefix or file.
      config: shape of the model.
    """

    kind: type[ServedModel]
    model: keras.Model
    tokenizer: BertTokenizer
    description: TaskDescription
    folder: str
    checkpoint: str
    config: BertConfig


def load(settings: ExportSettings) -> Source:
    """Loads what the settings name.

    Raises:
      InputError: see `_of_run` and `_of_checkpoint`.
    """
    return (_of_checkpoint if settings.task_name.lower() in CHECKPOINT_KINDS else _of_run)(settings)


def _of_run(settings: ExportSettings) -> Source:
    """Loads the best checkpoint of a fine-tuning run if it was evaluated during training, else the last.

    Raises:
      InputError: the folder holds no fine-tuning run and no finished sweep, or another task's.
    """
    folder = sweep_results.best_folder(settings.checkpoint_dir, settings.allow_unfinished)
    if latest.prefixes(folder) and not description.exists(folder):
        raise InputError(
            f"{folder}: holds no fine-tuned model; give --task_name=embeddings or fill_mask to export a pre-trained one"
        )
    described = description.read(folder)
    kind = _kind(settings, folder, described)
    checkpoint = _checkpoint(settings, folder)
    config = BertConfig.from_json_file(os.path.join(folder, checkpoints.CONFIG_NAME))
    tokenizer = BertTokenizer(os.path.join(folder, checkpoints.VOCABULARY_NAME), described.do_lower_case)
    _check_files(folder, described, config, tokenizer)
    described = kind.completed(settings, described, folder, latest.step_of(checkpoint))
    model = FineTunedBert(config, head_maker(kind.head(described), described.bilstm_head))
    restored = tf.train.Checkpoint(model=model).restore(checkpoint)
    restored.assert_existing_objects_matched().expect_partial()
    return Source(kind, model, tokenizer, described, folder, checkpoint, config)


def _of_checkpoint(settings: ExportSettings) -> Source:
    """Loads a checkpoint of any format, with the vocabulary and the casing of its folder.

    Raises:
      InputError: there is no checkpoint, configuration or vocabulary, or the kind needs what the checkpoint lacks.
    """
    name, path = settings.task_name.lower(), settings.checkpoint_dir
    kind, contents = CHECKPOINT_KINDS[name], checkpoints.open_checkpoint(path)
    config = contents.require_config()
    if not contents.vocab_file:
        raise InputError(
            f"{contents.source}: its folder has no {checkpoints.VOCABULARY_NAME}; copy the vocabulary there"
        )
    found = checkpoint_tokenizer.find(contents, path)
    lower = found.casing.do_lower_case is not False
    found.check(None, "")
    found.check_rules(lower)
    tokenizer = BertTokenizer(contents.vocab_file, lower)
    config.check_vocabulary(len(tokenizer.vocabulary), contents.vocab_file, contents.config_file)
    parameters = kind.parameters(settings, contents)
    described = TaskDescription(name, name, (), lower, config.max_position_embeddings, parameters)
    model = kind.make_model(config, parameters)
    checkpoint = checkpoints.initialize(model, path)
    return Source(kind, model, tokenizer, described, found.folder, checkpoint, config)


def _kind(settings: ExportSettings, folder: str, described: TaskDescription) -> type[ServedTask]:
    if described.kind not in KINDS:
        raise InputError(
            f"{os.path.join(folder, description.NAME)}: kind {described.kind!r} cannot be exported; known kinds are "
            f"{', '.join(KINDS)}"
        )
    if settings.task_name.lower() not in ("", described.kind, described.task_name.lower()):
        raise InputError(
            f"--task_name={settings.task_name}: {folder} was trained on {described.task_name}; "
            f"give --task_name={described.task_name}, leave it out, or give another --checkpoint_dir"
        )
    return KINDS[described.kind]


def _checkpoint(settings: ExportSettings, source: str) -> str:
    """Returns the prefix of the checkpoint to export; a folder without `run.json` was put together by hand."""
    latest.check_there(source)
    found = latest.find(source)
    if tf.io.gfile.exists(os.path.join(source, run_record.NAME)):
        run_folder.check_finished(source, found.step, settings.allow_unfinished)
    return chosen_checkpoint.choose(source, found, settings.use_checkpoint).prefix


def _check_files(checkpoint_dir: str, described: TaskDescription, config: BertConfig, tokenizer: BertTokenizer) -> None:
    """Refuses files that differ from what the run was trained with, where its `run.json` is there to tell."""
    if not tf.io.gfile.exists(os.path.join(checkpoint_dir, run_record.NAME)):
        return
    files = {"vocab_sha256": checkpoints.VOCABULARY_NAME, **dict.fromkeys(vars(config), checkpoints.CONFIG_NAME)}
    phase = run_record.read_phases(checkpoint_dir)[-1]
    trained = phase.model
    length = phase.data["max_seq_length"]
    if described.max_seq_length != length:
        raise InputError(
            f"{os.path.join(checkpoint_dir, description.NAME)}: is not the run's own (max_seq_length was {length} in "
            f"training, is {described.max_seq_length}); copy the run's folder again"
        )
    for fact, value in description.model_facts(described, config, tokenizer.vocabulary).items():
        if trained[fact] != value:
            raise InputError(
                f"{os.path.join(checkpoint_dir, files.get(fact, description.NAME))}: is not the run's own ({fact} was "
                f"{trained[fact]!r} in training, is {value!r}); copy the run's folder again"
            )
