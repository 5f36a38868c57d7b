"""A task with examples from an `ExampleSource`."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.task import Task
from bert_tf.tasks import example_checks
from bert_tf.tasks.example_source import ExampleSource


class SourceTask(Task):
    """A task that reads its data through an `ExampleSource`.

    Attributes:
      source: the source of the examples.
    """

    source: ExampleSource

    @property
    def has_dev_files(self) -> bool:
        return self.source.has_dev

    def data_facts(self) -> dict[str, Any]:
        return super().data_facts() | dict(self.source.facts())

    def files_of(self, split: str) -> list[str]:
        return self.source.files(split)

    def data_name_of(self, split: str) -> str:
        return self.source.name_of(split)

    def fingerprint_of(self, split: str) -> list[str]:
        return self.source.fingerprint(split)

    def read_files(self, split: str) -> Sequence[Any]:
        """Reads the examples of a split.

        Raises:
          InputError: the data is invalid; the message names the place.
        """
        return self.source.examples(split)

    def check_examples(self, examples: Mapping[str, Sequence[Any]]) -> None:
        example_checks.warn_of_texts(examples)
