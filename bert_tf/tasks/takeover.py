"""Describes fine-tuned models of other projects, so that they are evaluated, exported and served without training."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import families, hugging_face, names, sentence_transformers
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import registry
from bert_tf.tasks.choice import choice_task
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER
from bert_tf.tasks.classification.settings import OWN_DATA
from bert_tf.tasks.embeddings.embedding_task import EMBEDDINGS
from bert_tf.tasks.embeddings.prompts import VectorFiles
from bert_tf.tasks.questions import squad_task
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging import tag_schemes, tagging_task
from bert_tf.text import tokenizer_files

# Maps the values of problem_type in Hugging Face's configuration to kinds of tasks.
_KINDS = {
    "regression": REGRESSION, "single_label_classification": CLASSIFICATION, "multi_label_classification": MULTI_LABEL,
}  # fmt: skip
# The key in `conversion.json` for the description of the converted model's task.
TASK = "task"


class Unanswered(InputError):
    """No file states something that the description of a task needs; the message names the flag to give."""


@dataclasses.dataclass(frozen=True)
class FlagValues:
    """What a checkpoint of another project may not state about its task."""

    max_seq_length: int | None = None  # maximum number of tokens in a row; None for the length that the files state
    default_length: int | None = None  # the row length if no file states it; None for the model's number of positions
    # values that replace the files' values, by the names in `TaskDescription.parameters`
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # values that no file states, unless the checkpoint is a conversion, by the names in `TaskDescription.parameters`
    # and `TaskDescription.data`
    unstated: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def describe(contents: OpenCheckpoint, entries: Mapping[str, Any], flags: FlagValues) -> TaskDescription | None:
    """Returns the description of a checkpoint's task; None if it has no head for a task, and no stated pooling.
    `entries`: the entries of Hugging Face's `config.json` about the task; {} for other projects.
    `flags`: what the files do not state.
    Raises Unanswered: `flags` lacks a value that the task needs."""
    head = next((name for name in names.TASK_HEADS if f"{name}/dense/kernel" in contents.tensors), "")
    if not head:
        return _vectors(contents, flags) if sentence_transformers.is_stated(contents.folder) else None
    labels, length = _labels(contents, entries, head), _row_length(contents, flags)
    data = {}
    if head == "span_head":
        kind, name, labels = squad_task.QUESTIONS, squad_task.NAME, ()
        parameters = {"version_2_with_negative": False}
        # The defaults of run_squad and of transformers, or less for short rows.
        if not flags.max_seq_length:
            length = min(length, SquadSettings.default_max_seq_length)
        data = {"doc_stride": min(128, length // 4), "max_query_length": min(64, length // 4)}
    elif head == "token_head":
        kind, name, parameters = tagging_task.TAGGING, tagging_task.NAME, _tagger(contents, labels)
    elif hugging_face.is_class(entries, families.CHOICE):
        kind, name, labels, parameters = choice_task.CHOICE, choice_task.NAME, (), {}
    else:
        kind, name = _kind_of_texts(contents, entries, len(labels)), OWN_DATA
        labels = () if kind == REGRESSION else labels
        parameters = {"has_pairs": None, **READ_AS_IN_THE_PAPER.parameters}
        if kind == REGRESSION and sentence_transformers.has_sigmoid(contents.folder, entries):
            parameters["has_sigmoid"] = True
    parameters, data = _with(parameters, flags.unstated), _with(data, flags.unstated)
    recorded = checkpoint_tokenizer.read_conversion(contents.folder).get(TASK, {})
    if (recorded.get("kind"), recorded.get("labels")) == (kind, list(labels)):
        parameters, data = parameters | recorded["parameters"], data | recorded["data"]
        length = length if flags.max_seq_length else recorded["max_seq_length"]
    parameters = _with(parameters, flags.given)
    if parameters.get("has_pairs", True) is None:
        raise Unanswered(
            f"{contents.source}: no file states whether the classifier reads pairs of texts; give --has_pairs, or "
            "--nohas_pairs for single texts"
        )
    return TaskDescription(kind, name, labels, length, parameters, data)


def _with(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults with the values that have the same names."""
    return {name: values.get(name, value) for name, value in defaults.items()}


def _row_length(contents: OpenCheckpoint, flags: FlagValues) -> int:
    """Returns the row length of the flag, of Hugging Face's tokenizer files, or by default; at most the positions."""
    positions = contents.require_config().max_position_embeddings
    stated = tokenizer_files.read_config(contents.folder).get("model_max_length")  # 10^30 if unknown
    return min(int(flags.max_seq_length or stated or flags.default_length or positions), positions)


def _vectors(contents: OpenCheckpoint, flags: FlagValues) -> TaskDescription:
    folder, length = contents.folder, _row_length(contents, flags)
    length = min(sentence_transformers.longest_sentence(folder) or length, length)
    parameters = dataclasses.asdict(VectorFiles.of_folder(folder))
    return TaskDescription(EMBEDDINGS, EMBEDDINGS, (), length, parameters)


def describe_initial(settings: FineTuningSettings) -> TaskDescription | None:
    """Returns the description of the model in `--init_checkpoint`, which a command uses without training. The result is
    None if the files do not describe a task of the script, or if the flags name a benchmark's task."""
    contents = checkpoints.open_checkpoint(settings.init_checkpoint)
    name = getattr(settings, "task_name", "")
    is_own = name.lower() in ("", OWN_DATA)
    if description.exists(contents.folder):
        described = description.read(contents.folder)
        if registry.of_task(described, contents.folder).settings is not type(settings):
            return None
        # The task of a benchmark may use a model that was trained on another task.
        return dataclasses.replace(described, task_name=(OWN_DATA if is_own else "") if name else described.task_name)
    recorded = checkpoint_tokenizer.read_conversion(contents.folder).get(hugging_face.ENTRIES, {})
    of_model = {name: getattr(settings, name, None) for name in squad_task.OF_MODEL}
    unstated = {name: value for name, value in of_model.items() if value is not None}
    unstated["has_pairs"] = bool(getattr(settings, "text_b_column", ""))
    flags = FlagValues(settings.max_seq_length, settings.default_max_seq_length, unstated=unstated)
    described = describe(contents, recorded | hugging_face.read_entries(contents), flags)
    if not (described and is_own) or registry.of_task(described, contents.folder).settings is not type(settings):
        return None
    return None if described.kind == EMBEDDINGS else described  # these files and the flags say all that a task needs


def _labels(contents: OpenCheckpoint, entries: Mapping[str, Any], head: str) -> tuple[str, ...]:
    by_id = entries.get("id2label", {})
    outputs = contents.tensors[f"{head}/dense/kernel"].shape[-1]
    return tuple(str(by_id.get(str(number), f"LABEL_{number}")) for number in range(outputs))


def _tagger(contents: OpenCheckpoint, labels: tuple[str, ...]) -> dict[str, Any]:
    """Returns the parameters of a tagger with these labels."""
    types = {label.partition("-")[2] for label in labels if label != tag_schemes.OUTSIDE}
    for scheme in (tag_schemes.IOB2, tag_schemes.BIOES):
        if sorted(tag_schemes.tags_of_types(types, scheme)) == sorted(labels):
            return {"tag_scheme": scheme, "document_context": False}
    raise InputError(
        f"{contents.config_file}: id2label has {', '.join(labels[:5])}, but a tagger needs O, B and I of each type of "
        "entity, or also E and S; name the outputs so, or train a new head"
    )


def _kind_of_texts(contents: OpenCheckpoint, entries: Mapping[str, Any], outputs: int) -> str:
    kind = _KINDS.get(entries.get("problem_type"), REGRESSION if outputs == 1 else CLASSIFICATION)
    if kind == REGRESSION and outputs > 1:
        raise InputError(f"{contents.source}: predicts {outputs} scores for a text, but only one is supported")
    return kind
