"""Creates a tagging task from a command."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Hashable, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.tasks.split_files import file_data
from bert_tf.tasks.tagging import conll_files, tag_schemes
from bert_tf.tasks.tagging.conll_files import Layout, Sentence
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_files import TaggedFiles, check_types
from bert_tf.tasks.tagging.tagging_task import TaggingTask

_FINE_TUNING = "fine_tuning"


def tagging_task(command: Command) -> TaggingTask:
    """Returns the task for the flags of `run_ner`. Reads the training data unless the command uses a trained model.

    Raises:
      InputError: the files or the flags are invalid.
    """
    settings, known = command.settings, command.trained
    parameters = known.parameters if known else {}
    reads = command.values("word_column", "tag_column", "tag_scheme", "repair_tags")
    layout = Layout(reads["word_column"], reads["tag_column"])
    tagged = TaggedFiles(layout, reads["tag_scheme"], reads["repair_tags"], settings.test_has_tags)
    data = file_data(
        settings.data_dir, settings.data_paths, conll_files.FILE_NAMES.__getitem__, tagged.read, facts=reads
    )
    features = settings.feature_layers or parameters.get("features", _FINE_TUNING)
    uses_features = features != _FINE_TUNING
    if not uses_features and (settings.lstm_size is not None or settings.activations_dir):
        raise InputError("--lstm_size and --activations_dir need layers in --feature_layers; name layers, or drop both")
    of_model = command.of_model("document_context", "lstm_size")
    has_context = of_model["document_context"]
    types = _types(settings, known, data)
    checked = dataclasses.replace(
        data, load=functools.partial(_load, data, types), strata=functools.partial(strata_of, by_document=has_context)
    )
    return TaggingTask(
        types,
        parameters["tag_scheme"] if known else tagged.scheme_of(data.load("train")),
        has_context,
        features if uses_features else "",
        of_model["lstm_size"] if uses_features else 0,
        (settings.activations_dir or os.path.join(settings.output_dir, "activations")) if uses_features else "",
        with_dev_share(checked, command),
    )


def _load(data: TaskData, types: tuple[str, ...], split: str) -> list[Sentence]:
    sentences = data.load(split)
    check_types(sentences, types, split)
    return sentences


def strata_of(sentences: Sequence[Sentence], by_document: bool) -> tuple[list[str], list[Hashable]]:
    """Returns the content and the class of each sentence, for `stratified_split.held_out`.

    The class of a sentence consists of the types of its entities.

    Args:
      sentences: the sentences of a file.
      by_document: whether the content is the text of the sentence's document, instead of the text of the sentence.
    """
    contents = [content_of(*sentence.words) for sentence in sentences]
    if by_document:
        numbers = list(itertools.accumulate(int(sentence.starts_document) for sentence in sentences))
        texts = {
            number: " ".join(contents[i] for i, _ in group)
            for number, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1])
        }
        contents = [texts[number] for number in numbers]
    types = [{tag_schemes.split_tag(tag)[1] for tag in s.tags if tag != tag_schemes.OUTSIDE} for s in sentences]
    return contents, [tuple(sorted(found)) for found in types]


def _types(settings: NerSettings, known: TaskDescription | None, data: TaskData) -> tuple[str, ...]:
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
        tags = {tag for sentence in data.load("train") for tag in sentence.tags}
        types = tuple(sorted({tag_schemes.split_tag(tag)[1] for tag in tags if tag != tag_schemes.OUTSIDE}))
    if not types:
        raise InputError(
            f"{data.files('train')[0]}: every tag is O, so there is nothing to learn; check --tag_column and the file"
        )
    if not known:
        logging.info("%d types of entities: %s", len(types), ", ".join(type_ or "(no name)" for type_ in types))
    return types
