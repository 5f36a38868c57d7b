"""The phases of a run: the command's own settings, and after them those of its flag files.

Steps are counted over all phases, and one learning-rate schedule spans them.

Paper: appendix A.2: 90% of the steps on rows of 128 tokens, the rest on rows of 512; linear decay of the learning rate.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from bert_tf import command_line
from bert_tf.settings import DeviceSettings, PretrainingSettings
from tfrecords.errors import InputError

# How a step is computed on the devices may change with the rows; where, and by which rule, may not.
_MAY_CHANGE = {"gradient_accumulation_steps", "skip_non_finite_steps", "recompute_activations"}
_OF_THE_RUN = {field.name for field in dataclasses.fields(DeviceSettings)} - _MAY_CHANGE | {
    "output_dir", "init_checkpoint", "do_train", "do_eval", "use_next_sentence_label",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Phase:
    """Settings of one phase, and where they stand.

    Attributes:
      settings: all of them.
      flagfile: of a phase after the first; "" for the command's own.
    """

    settings: PretrainingSettings
    flagfile: str = ""


def of(settings: PretrainingSettings) -> list[Phase]:
    """The phases of a command, in their order.

    A phase has the flags of the one before, but for those in its own flag file. Where no flag says at which step the
    learning rate reaches 0, `num_schedule_steps` becomes the last step of the last phase.

    Raises:
      InputError: a flag file cannot be read, or changes what is the run's; or the schedule is too short.
    """
    phases = [Phase(settings)]
    while path := phases[-1].settings.next_phase:
        if path in (phase.flagfile for phase in phases):
            raise InputError(f"--next_phase={path}: comes after itself; each phase needs a flag file of its own")
        before, after = phases[-1].settings, Phase(settings, path)
        with naming(after):
            after = dataclasses.replace(after, settings=command_line.with_flagfile(before, path, next_phase=""))
            for name in sorted(_OF_THE_RUN):
                old, new = getattr(before, name), getattr(after.settings, name)
                if new != old:
                    raise InputError(f"--{name}={new}: must be {old}, as in the phase before; leave it out")
        phases.append(after)
    end = phases[-1].settings.num_schedule_steps or max(phase.settings.num_train_steps for phase in phases)
    return [_with_schedule(phase, end) for phase in phases]


def _with_schedule(phase: Phase, end: int) -> Phase:
    settings = phase.settings
    with naming(phase):
        settings = dataclasses.replace(settings, num_schedule_steps=settings.num_schedule_steps or end)
    return dataclasses.replace(phase, settings=settings)


@contextlib.contextmanager
def naming(phase: Phase) -> Iterator[None]:
    """Says in what goes wrong which phase it is of."""
    try:
        yield
    except InputError as error:
        if not phase.flagfile:
            raise
        raise InputError(f"--next_phase={phase.flagfile}: {error}") from error
