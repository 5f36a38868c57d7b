"""From the settings to a tagging task. What a later command leaves out comes from the run in `--output_dir`."""

import os
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.tasks.tagging import tag_schemes
from bert_tf.tasks.tagging.conll_files import Layout
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_source import AUTO, TaggingSource
from bert_tf.tasks.tagging.tagging_task import TAGGING, TaggingTask

_FINE_TUNING = "fine_tuning"
_LSTM_SIZE = 768


def tagging_task(settings: NerSettings) -> TaggingTask:
    """Returns the task that the settings name.

    Raises:
      InputError: files or flags do not fit, or the folder has a run of another kind.
    """
    known = _run_in(settings.output_dir)
    data, parameters = (known.data, known.parameters) if known else ({}, {})
    columns = (_fact(settings, "word_column", data, 0), _fact(settings, "tag_column", data, -1))
    source = TaggingSource(
        settings.data_dir,
        settings.data_paths,
        Layout(*columns),
        settings.tag_scheme if settings.tag_scheme != AUTO else data.get("tag_scheme", AUTO),
        settings.repair_tags,
        settings.test_has_tags,
    )
    trained_features = parameters.get("features", _FINE_TUNING) if known else None
    features = settings.feature_layers or trained_features or _FINE_TUNING
    uses_features = features != _FINE_TUNING
    if not uses_features and (settings.lstm_size is not None or settings.activations_dir):
        raise InputError("--lstm_size and --activations_dir are for --feature_layers; name layers, or drop them")
    task = TaggingTask(
        source,
        _types(settings, known, source),
        parameters["tag_scheme"] if known else source.scheme_of("train"),
        _fact(settings, "document_context", parameters, False),
        features if uses_features else "",
        _fact(settings, "lstm_size", parameters, _LSTM_SIZE) if uses_features else 0,
        (settings.activations_dir or os.path.join(settings.output_dir, "activations")) if uses_features else "",
    )
    return with_dev_share(task, settings, known)


def _run_in(output_dir: str) -> TaskDescription | None:
    """Returns the description of the run in a folder; None if there is none, or one of another kind."""
    found = description.if_trained(output_dir)
    return found if found and found.kind == TAGGING else None


def _fact(settings: NerSettings, name: str, trained: dict[str, Any], default: Any) -> Any:
    """Returns a setting as the flag says, else as the run was trained, else the default.

    Raises:
      InputError: the run was trained with another value.
    """
    given, known = getattr(settings, name), trained.get(name)
    if given is not None and known is not None and given != known:
        raise InputError(
            f"--{name}={given}: the run in {settings.output_dir} was trained with {known}; drop the flag, or train in "
            "another folder"
        )
    return next(value for value in (given, known, default) if value is not None)


def _types(settings: NerSettings, known: TaskDescription | None, source: TaggingSource) -> tuple[str, ...]:
    """Returns the types of entities.

    Raises:
      InputError: there is none, or one is named twice.
    """
    named = items(settings.entity_types)
    if named:
        types = tuple(sorted(set(named)))
        if len(types) < len(named):
            raise InputError(f"--entity_types={settings.entity_types}: names a type twice; drop one")
    elif known:
        types = tuple(sorted({tag_schemes.split_tag(tag)[1] for tag in known.labels if tag != tag_schemes.OUTSIDE}))
    else:
        tags = {tag for sentence in source.read("train") for tag in sentence.tags}
        types = tuple(sorted({tag_schemes.split_tag(tag)[1] for tag in tags if tag != tag_schemes.OUTSIDE}))
    if not types:
        raise InputError(
            f"{source.file('train')}: every tag is O, so there is nothing to learn; check --tag_column and the file"
        )
    if not known:
        logging.info("%d types of entities: %s", len(types), ", ".join(type_ or "(no name)" for type_ in types))
    return types
