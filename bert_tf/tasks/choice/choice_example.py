"""Defines an example with several choices."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context and several ways to continue it.

    Attributes:
      context: the first text.
      start: the beginning of the second text, which each choice continues; "" if absent.
      choices: two or more choices.
      label: index of the right choice; None if no label was read.
      id: id of the example in its file; None if absent.
      place: where the example is, for messages; for instance, the file and the line.
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    id: str | None = None
    place: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that the model reads."""
        return self.context, self.start, *self.choices
