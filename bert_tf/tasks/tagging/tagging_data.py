"""Creates a tagging task from a command."""

import os

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.tasks.tagging import tag_schemes
from bert_tf.tasks.tagging.conll_files import Layout
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_source import AUTO, TaggingSource
from bert_tf.tasks.tagging.tagging_task import TaggingTask

_FINE_TUNING = "fine_tuning"
_LSTM_SIZE = 768


def tagging_task(command: Command) -> TaggingTask:
    """Returns the task for the flags of `run_ner`. Reads the training data unless the command uses a trained model.

    Raises:
      InputError: the files or the flags are invalid.
    """
    settings, known = command.settings, command.trained
    parameters = known.parameters if known else {}
    reads = command.values(word_column=0, tag_column=-1, tag_scheme=AUTO, repair_tags=False)
    source = TaggingSource(
        settings.data_dir,
        settings.data_paths,
        Layout(reads["word_column"], reads["tag_column"]),
        reads["tag_scheme"],
        reads["repair_tags"],
        settings.test_has_tags,
    )
    features = settings.feature_layers or parameters.get("features", _FINE_TUNING)
    uses_features = features != _FINE_TUNING
    if not uses_features and (settings.lstm_size is not None or settings.activations_dir):
        raise InputError("--lstm_size and --activations_dir need layers in --feature_layers; name layers, or drop both")
    of_model = command.of_model(document_context=False, lstm_size=_LSTM_SIZE)
    task = TaggingTask(
        source,
        _types(settings, known, source),
        parameters["tag_scheme"] if known else source.scheme_of(source.examples("train")),
        of_model["document_context"],
        features if uses_features else "",
        of_model["lstm_size"] if uses_features else 0,
        (settings.activations_dir or os.path.join(settings.output_dir, "activations")) if uses_features else "",
    )
    return with_dev_share(task, command)


def _types(settings: NerSettings, known: TaskDescription | None, source: TaggingSource) -> tuple[str, ...]:
    """Returns the sorted types of entities.

    The types come from `--entity_types`, else from the trained model, else from the training data.

    Raises:
      InputError: there are no types, or a type is listed twice.
    """
    named = items(settings.entity_types)
    if named:
        types = tuple(sorted(set(named)))
        if len(types) < len(named):
            raise InputError(f"--entity_types={settings.entity_types}: a type is listed twice; remove one")
    elif known:
        types = tuple(sorted({tag_schemes.split_tag(tag)[1] for tag in known.labels if tag != tag_schemes.OUTSIDE}))
    else:
        tags = {tag for sentence in source.examples("train") for tag in sentence.tags}
        types = tuple(sorted({tag_schemes.split_tag(tag)[1] for tag in tags if tag != tag_schemes.OUTSIDE}))
    if not types:
        raise InputError(
            f"{source.files('train')[0]}: every tag is O, so there is nothing to learn; check --tag_column and the file"
        )
    if not known:
        logging.info("%d types of entities: %s", len(types), ", ".join(type_ or "(no name)" for type_ in types))
    return types
