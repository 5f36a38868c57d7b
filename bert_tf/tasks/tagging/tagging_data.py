"""Creates a tagging task from a command, and reads and checks the tagged sentences of its splits."""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row, files
from bert_tf.rows.sources import Files
from bert_tf.rows.text_files import decoded_lines
from bert_tf.tasks.tagging import conll_files, tag_schemes, tagged_objects
from bert_tf.tasks.tagging.conll_files import Sentence, WordColumns
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_task import TaggingTask, labels_of

_FINE_TUNING = "fine_tuning"
AUTO = "auto"
# A sentence with more words causes a warning; the longest sentence of CoNLL-2003 has 124 words.
_LONGEST_SENTENCE = 200


def tagging_task(command: Command) -> TaggingTask:
    """Returns the task for the flags of `run_ner`. Reads the training data unless the command uses a trained model."""
    settings, trained = command.settings, command.trained
    parameters = trained.parameters if trained else {}
    reads = command.of_data("word_column", "tag_column", "tag_scheme", "repair_tags")
    layout = WordColumns(reads["word_column"], reads["tag_column"])
    tagged = TaggedFiles(layout, reads["tag_scheme"], reads["repair_tags"])
    data = dataclasses.replace(tagged.data(settings.data_dir, settings.data_paths), facts=reads)
    features = settings.feature_layers or parameters.get("features", _FINE_TUNING)
    uses_features = features != _FINE_TUNING
    of_model = command.of_model("document_context", "lstm_size")
    has_context = of_model["document_context"]
    types = _types(settings, trained, data)
    scheme = parameters["tag_scheme"] if trained else tagged.scheme_of(data.load("train"))
    labels = (
        trained.labels
        if trained and set(types) == {*tag_schemes.types_of(trained.labels)}
        else labels_of(types, scheme)
    )
    checked = data.with_checked_labels(functools.partial(check_types, types=types), "tags")
    checked = dataclasses.replace(checked, strata=functools.partial(strata_of, by_document=has_context))
    return TaggingTask(
        labels,
        scheme,
        has_context,
        features if uses_features else "",
        of_model["lstm_size"] if uses_features else 0,
        (settings.activations_dir or os.path.join(settings.output_dir, "activations")) if uses_features else "",
        with_dev_share(checked, command),
    )


def strata_of(sentences: Sequence[Sentence], by_document: bool) -> tuple[list[str], list[Hashable]]:
    """Returns the content and the class of each sentence, for `stratified_split.held_out`. The class of a sentence
    consists of the types of its entities.
    `by_document`: whether the content is the text of the sentence's document, instead of the text of the sentence."""
    contents = [content_of(*sentence.words) for sentence in sentences]
    if by_document:
        numbers = list(itertools.accumulate(int(sentence.starts_document) for sentence in sentences))
        texts = {
            number: " ".join(contents[i] for i, _ in group)
            for number, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1])
        }
        contents = [texts[number] for number in numbers]
    return contents, [tuple(sorted(tag_schemes.types_of(sentence.tags))) for sentence in sentences]


def _types(settings: NerSettings, trained: TaskDescription | None, data: TaskData) -> tuple[str, ...]:
    """Returns the types of entities from `--entity_types`, else from the trained model, else from the training data."""
    named = items(settings.entity_types)
    if named:
        types = tuple(sorted(set(named)))
    elif trained:
        types = tag_schemes.types_of(trained.labels)
    else:
        types = tuple(sorted(tag_schemes.types_of(tag for sentence in data.load("train") for tag in sentence.tags)))
    if not types:
        raise InputError(
            f"{data.title('train')}: every tag is O, so there is nothing to learn; check --tag_column and the file"
        )
    if not trained:
        logging.info("%d types of entities: %s", len(types), ", ".join(type_ or "(no name)" for type_ in types))
    return types


@dataclasses.dataclass(frozen=True)
class TaggedFiles:
    """The layout of tagged files."""

    layout: WordColumns
    scheme: str = AUTO  # scheme of the tags; "auto" to recognize the scheme of each file
    # whether invalid sequences of tags are read as the official scorer reads them. If false, invalid sequences are
    # refused.
    repairs: bool = False

    def scheme_of(self, sentences: Sequence[Sentence]) -> str:
        if self.scheme != AUTO:
            return self.scheme
        return tag_schemes.recognize(sentence.tags for sentence in sentences if sentence.tags)

    def data(self, data_dir: str, paths: Mapping[str, Sequence[str]]) -> TaskData:
        """Returns data with a file per split; see `Files`."""
        return TaskData.of(Files(data_dir, paths, _file_names, self._rows), self._parse)

    def _rows(self, path: str, with_tags: bool) -> Iterator[Row]:
        is_table = files.has_objects(path)
        if path.lower().endswith(".csv"):  # the columns of a CoNLL file are separated by spaces or tabs
            is_table = not re.fullmatch(r"[^,;]+[ \t][^,;]+", next(decoded_lines(path), "").strip())
        return files.rows(path) if is_table else conll_files.rows(path, self.layout, with_tags)

    def _parse(self, file: str, rows: Iterator[Row], split: str, with_tags: bool) -> list[Sentence]:
        sentences = tagged_objects.sentences_of(file, rows, with_tags)
        if not sentences:
            raise InputError(f"{file}: holds no sentence; write the words and tags of a sentence")
        _warn_of_long(sentences)
        scheme = self.scheme_of(sentences)
        if with_tags:
            self._check_tags(file, sentences, scheme)
        words = sum(len(sentence.words) for sentence in sentences)
        kind = f", {scheme.upper()} tags" if with_tags else ""
        logging.info("%s: %d sentences, %d words%s", file, len(sentences), words, kind)
        return sentences

    def _check_tags(self, path: str, sentences: Sequence[Sentence], scheme: str) -> None:
        faults = []
        for sentence in sentences:
            if fault := tag_schemes.find_fault(sentence.tags, scheme):
                faults.append((sentence.place_of(fault[0]), fault[1]))
        if not faults:
            return
        (place, reason), more = faults[0], f" (and {len(faults) - 1} more sentences)" if faults[1:] else ""
        if not self.repairs:
            raise InputError(
                f"{place}: the tag {reason}{more}; fix the tags, give their --tag_scheme, or give "
                "--repair_tags to read invalid tags as the official scorer reads them"
            )
        logging.warning("%s: %d sentences have tags that %s does not allow; these tags are read as the official "
                        "scorer reads them; the first such tag is at %s: %s",
                        path, len(faults), scheme.upper(), place, reason)  # fmt: skip


def check_types(sentence: Sentence, types: Sequence[str]) -> None:
    """Raises InputError if a tag has a type that is not in `types`."""
    for number, tag in enumerate(sentence.tags or ()):
        prefix, type_ = tag_schemes.split_tag(tag)
        if prefix != tag_schemes.OUTSIDE and type_ not in types:
            raise InputError(
                f"{sentence.place_of(number)}: the tag {tag!r} has an unknown type; known types: {', '.join(types)}; "
                "fix the tag, or list all types in --entity_types"
            )


def _warn_of_long(sentences: Sequence[Sentence]) -> None:
    """Warns if a sentence of a CoNLL file is so long that a blank line is probably missing."""
    longest = max(sentences, key=lambda sentence: len(sentence.words) * sentence.has_lines)
    limit = _LONGEST_SENTENCE if len(sentences) > 1 else _LONGEST_SENTENCE // 4
    if longest.has_lines and len(longest.words) > limit:
        logging.warning("%s: a sentence of %d words; a blank line must end each sentence", longest.place,
                        len(longest.words))  # fmt: skip


def _file_names(split: str) -> list[str]:
    of_tables = [name for format in ("csv", *files.OF_OBJECTS) for name in files.names_of(split, format)]
    return [*conll_files.FILE_NAMES[split], *of_tables]
