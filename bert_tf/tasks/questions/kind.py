"""The kind of task that answers questions, for the registry."""

from collections.abc import Mapping, Sequence

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import QUESTIONS, SquadTask, squad_task
from bert_tf.tasks.registry import TaskKind
from bert_tf.tasks.report_parts import MOST_ERRORS, Part, errors, of_lines, short


def _report(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns a table of the answers with the lowest F1. Among answers with the same F1, the most probable answers come
    first."""
    del labels
    missed = sum(entry["exact_match"] < 1 for entry in entries)
    wrong = sorted((e for e in entries if e["f1"] < 1), key=lambda e: (e["f1"], -e["probability"]))[:MOST_ERRORS]
    rows = [
        [f"{e['f1']:.2f}", f"{_answer(e['prediction'])} ({e['probability']:.0%})",
         " | ".join(map(short, e["label"])) or _answer(""), short(e["question"]), short(e["context"])]
        for e in wrong
    ]  # fmt: skip
    note = (
        f"The answers to {missed:,} of {len(entries):,} questions are not an exact match. The percentage "
        "after an answer is its probability, from the softmax over the scores of the best answers."
    )
    head = ["F1", "predicted", "right", "question", "context around the right answer"]
    return [errors(note, head, rows, "questions")]


def _answer(text: str) -> str:
    return short(text) or "(no answer)"


def _task_of(described: TaskDescription, folder: str) -> SquadTask:
    rows = {name: described.data[name] for name in ("doc_stride", "max_query_length") if name in described.data}
    return SquadTask(
        Decoding(has_unanswerable=described.parameters["version_2_with_negative"]), **rows, run_folder=folder
    )


KINDS = [
    TaskKind(
        QUESTIONS,
        SquadSettings,
        squad_task,
        _task_of,
        of_lines(_report),
        tuned=squad_results.NULL_THRESHOLD,
        hidden_scores=("null_threshold",),
    )
]
