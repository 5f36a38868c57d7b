"""The phases of a run: the first phase has the command's settings, and each flag file adds a phase.

Steps are counted over all phases, and one learning-rate schedule spans all phases.

Paper: appendix A.2: 90% of the steps on rows of 128 tokens, the rest on rows of 512; linear decay of the learning rate.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from bert_tf.core import command_line
from bert_tf.core.errors import InputError
from bert_tf.settings import DeviceSettings, PretrainingSettings

# A phase may change how devices compute a step. It must change neither the devices nor the update rule.
_MAY_CHANGE = {"gradient_accumulation_steps", "skip_non_finite_steps", "recompute_activations"}
_OF_THE_RUN = {field.name for field in dataclasses.fields(DeviceSettings)} - _MAY_CHANGE | {
    "output_dir", "init_checkpoint", "do_train", "do_eval", "use_next_sentence_label",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PhaseSettings:
    """The settings of one phase, and the source of the settings.

    Attributes:
      settings: all settings of the phase.
      flagfile: the phase's flag file; "" for the first phase, which has the command's settings.
    """

    settings: PretrainingSettings
    flagfile: str = ""


def of(settings: PretrainingSettings) -> list[PhaseSettings]:
    """Returns the phases of a command in order.

    If a phase's flag file does not set a flag, the phase inherits the flag from the previous phase. The default of
    `num_schedule_steps` is the largest `num_train_steps` of all phases.

    Raises:
      InputError: a flag file cannot be read or changes a flag of the whole run, or the schedule is too short.
    """
    phases = [PhaseSettings(settings)]
    while path := phases[-1].settings.next_phase:
        if path in (phase.flagfile for phase in phases):
            raise InputError(f"--next_phase={path}: follows itself; each phase needs its own flag file")
        before, after = phases[-1].settings, PhaseSettings(settings, path)
        with naming(after):
            after = dataclasses.replace(after, settings=command_line.with_flagfile(before, path, next_phase=""))
            for name in sorted(_OF_THE_RUN):
                old, new = getattr(before, name), getattr(after.settings, name)
                if new != old:
                    raise InputError(f"--{name}={new}: must be {old}, as in the previous phase; remove the flag")
        phases.append(after)
    end = phases[-1].settings.num_schedule_steps or max(phase.settings.num_train_steps for phase in phases)
    return [_with_schedule(phase, end) for phase in phases]


def _with_schedule(phase: PhaseSettings, end: int) -> PhaseSettings:
    settings = phase.settings
    with naming(phase):
        settings = dataclasses.replace(settings, num_schedule_steps=settings.num_schedule_steps or end)
    return dataclasses.replace(phase, settings=settings)


@contextlib.contextmanager
def naming(phase: PhaseSettings) -> Iterator[None]:
    """Adds the flag file of a phase to error messages."""
    try:
        yield
    except InputError as error:
        if not phase.flagfile:
            raise
        raise InputError(f"--next_phase={phase.flagfile}: {error}") from error
