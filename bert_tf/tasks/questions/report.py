"""Makes the parts of the report on answers to questions."""

from collections.abc import Mapping, Sequence

from bert_tf.tasks.report_parts import MOST_ERRORS, Part, errors, short


def questions(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    """Returns a table of the answers with the lowest F1.

    Among answers with the same F1, the most probable answers come first.
    """
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
