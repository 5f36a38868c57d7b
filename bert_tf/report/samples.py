"""Filled-in masks as cards of a report: the text, and the guesses of the first and the last evaluation."""

import html
from collections.abc import Mapping, Sequence

from bert_tf.pretraining import fill_mask
from bert_tf.report.page import folded, scrolling

_MOST_SAMPLES = 60


def section(looks: Sequence[Mapping]) -> str:
    """Returns the cards of all texts.

    Args:
      looks: entries with `step` and `samples`, see `fill_mask.FillMask.look`, by step.
    """
    by_text: dict[tuple, list] = {}
    for look in looks:
        for sample in look["samples"]:
            by_text.setdefault(tuple(sample["tokens"]), []).append((look["step"], sample))
    cards = [_card(shown[0], shown[-1]) for shown in list(by_text.values())[:_MOST_SAMPLES]]
    note = (
        "What the model reads at a blank is marked; the percentages are its best guesses there. Blanks whose best "
        "guess has not changed are folded."
    )
    return f'<h2>Fill in the mask</h2><p class="note">{note}</p>{"".join(cards)}'


def _card(first: tuple[int, Mapping], last: tuple[int, Mapping]) -> str:
    """Returns the card of one text with its blanks, from its first and last (step, sample)."""
    blanks = last[1]["blanks"]
    text = "".join(
        f" <mark>{html.escape(text.strip())}<sup>{number + 1}</sup></mark>" if number is not None else html.escape(text)
        for text, number in fill_mask.words(last[1])
    )
    columns = {f"step {step:,}": sample["blanks"] for step, sample in (first, last)}
    changed = [i for i in range(len(blanks)) if len({column[i]["guesses"][0][0] for column in columns.values()}) > 1]
    if len(columns) == 1:  # nothing to compare with
        changed = list(range(len(blanks)))
    same = [number for number in range(len(blanks)) if number not in changed]
    parts = [_guess_table(columns, changed)] if changed else []
    if same:
        parts.append(folded(f"{len(same)} of {len(blanks)} with the same best guess", _guess_table(columns, same)))
    return f'<div class="sample"><p>{text}</p>{"".join(parts)}</div>'


def _guess_table(columns: Mapping[str, Sequence[Mapping]], numbers: Sequence[int]) -> str:
    """Returns a table of the guesses for some blanks, a column for each evaluation."""
    blanks = list(columns.values())[-1]
    knows = any(blank["right"] is not None for blank in blanks)
    head = "".join(f"<th>{name}</th>" for name in ("", *(["right"] if knows else []), *columns))
    rows = []
    for number in numbers:
        right = f"<td>{html.escape(blanks[number]['right'] or '')}</td>" if knows else ""
        guesses = "".join(f"<td>{_guesses(column[number])}</td>" for column in columns.values())
        rows.append(f"<tr><td>{number + 1}</td>{right}{guesses}</tr>")
    return scrolling(f"<table><tr>{head}</tr>{''.join(rows)}</table>")


def _guesses(blank: Mapping) -> str:
    shown = []
    for token, probability in blank["guesses"]:
        kind = "guess right" if token == blank["right"] else "guess"
        shown.append(f'<span class="{kind}">{html.escape(token)} <small>{probability:.0%}</small></span>')
    return "".join(shown)
