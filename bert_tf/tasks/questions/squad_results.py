"""Computes and writes the results of an evaluation: the official metric, the prediction files, and the null threshold.

Paper: sections 4.2 and 4.3.

Letters: N questions.
"""

import json
import math
import os
from collections.abc import Sequence

import numpy as np

from bert_tf.core import storage
from bert_tf.tasks import evaluation_file
from bert_tf.tasks.questions.squad_answers import SpanAnswers
from bert_tf.tasks.questions.squad_file import Question
from bert_tf.tasks.tuned_file import TunedFile

PREDICTIONS_NAME = "predictions.json"
NBEST_NAME = "nbest_predictions.json"
NULL_ODDS_NAME = "null_odds.json"
# An evaluation writes at most `_CONTEXT` characters of the context, of which `_CONTEXT_BEFORE` precede the answer.
_CONTEXT, _CONTEXT_BEFORE = 400, 150
_DEFAULT_THRESHOLD = 0.0


def scores(questions: Sequence[Question], texts: Sequence[str], has_unanswerable: bool) -> dict[str, float]:
    """Computes the official metric of SQuAD 1.1 or 2.0 with the code of tf-models-official.
    `questions`: N questions with their answers.
    `texts`: the N predicted answers.
    `has_unanswerable`: true for the metric of SQuAD 2.0, false for SQuAD 1.1.
    Returns the metrics, from 0 to 1:
    - `f1`, `exact_match`: the metrics of all questions.
    - `HasAns_f1`, `HasAns_exact_match`: the metrics of the questions with an answer; only for SQuAD 2.0. Absent if
      there are no such questions.
    - `NoAns_f1`, `NoAns_exact_match`: the metrics of the questions without an answer; only for SQuAD 2.0. Absent if
      there are no such questions."""
    exact, f1 = question_scores(questions, texts, has_unanswerable)
    means = {"f1": float(f1.mean()), "exact_match": float(exact.mean())}
    if has_unanswerable:
        is_answered = np.array([bool(question.answers) for question in questions])
        for name, chosen in (("HasAns", is_answered), ("NoAns", ~is_answered)):
            if chosen.any():
                means[f"{name}_f1"] = float(f1[chosen].mean())
                means[f"{name}_exact_match"] = float(exact[chosen].mean())
    return means


def question_scores(
    questions: Sequence[Question], texts: Sequence[str], has_unanswerable: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the exact match and the F1 of each question, float64 [N] each; for the arguments, see `scores`."""
    from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

    scores_of = []
    for question, text in zip(questions, texts, strict=True):
        answers = [{"text": answer.text} for answer in question.answers or ()]
        data = [{"paragraphs": [{"qas": [{"id": question.id, "answers": answers}]}]}]
        if has_unanswerable:
            result = squad_evaluate_v2_0.evaluate(data, {question.id: text})
            scores_of.append((result["exact"] / 100, result["f1"] / 100))
        else:
            result = squad_evaluate_v1_1.evaluate(data, {question.id: text})
            scores_of.append((result["exact_match"], result["final_f1"]))
    exact, f1 = np.array(scores_of, np.float64).reshape(-1, 2).T
    return exact, f1


def best_threshold(questions: Sequence[Question], answers: Sequence[SpanAnswers]) -> float:
    """Chooses the null threshold with the best F1; if several thresholds have the best F1, chooses the lowest. An
    answer is predicted if `null_odds` is at most the threshold. The candidates for the threshold are halfway between
    neighboring odds, so that rounding in a later evaluation does not move the odds of a question across the threshold.
    Two more candidates are below and above all odds.
    `questions`: N questions with their answers.
    `answers`: the N decoded answers."""
    odds = np.array([each.null_odds for each in answers])
    _, answered = question_scores(questions, [each.best_text for each in answers], has_unanswerable=True)
    # "" also matches a right answer that the metric's normalization reduces to "", such as the answer "the".
    _, unanswered = question_scores(questions, [""] * len(questions), has_unanswerable=True)
    order = np.argsort(odds, kind="stable")
    gains = np.cumsum((answered - unanswered)[order])
    ranked = odds[order]
    is_last = np.append(ranked[1:] != ranked[:-1], True)  # a threshold cannot separate equal odds
    totals = np.append(0.0, gains[is_last])
    distinct = ranked[is_last]
    candidates = np.concatenate([[distinct[0] - 1], (distinct[1:] + distinct[:-1]) / 2, [distinct[-1] + 1]])
    return float(candidates[np.argmax(totals)])


# The file of the null threshold. If `SpanAnswers.null_odds` exceeds the threshold, "no answer" is predicted.
NULL_THRESHOLD = TunedFile(
    "null_threshold.json", "null_score_diff_threshold", "tune_null_threshold", lambda labels: _DEFAULT_THRESHOLD,
    lambda value, labels: float(value), lambda threshold, labels: threshold,
)  # fmt: skip


def write_predictions(
    folder: str, questions: Sequence[Question], answers: Sequence[SpanAnswers], threshold: float
) -> list[str]:
    """Writes the same prediction files as google-research/bert, and returns their paths. Each file is a JSON object
    whose keys are the questions' ids. `predictions.json` contains the answers, and `nbest_predictions.json` contains
    the candidates. If questions may have no answer, `null_odds.json` contains `SpanAnswers.null_odds`."""
    named = list(zip((question.id for question in questions), answers, strict=True))
    files = {
        PREDICTIONS_NAME: {id_: each.text(threshold) for id_, each in named},
        NBEST_NAME: {id_: _entries(each) for id_, each in named},
    }
    if any(each.null_odds is not None for each in answers):
        files[NULL_ODDS_NAME] = {id_: each.null_odds for id_, each in named}
    for name, content in files.items():
        storage.write_text(os.path.join(folder, name), json.dumps(content, indent=4) + "\n")
    return [os.path.join(folder, name) for name in files]


def write_answers(
    folder: str,
    questions: Sequence[Question],
    answers: Sequence[SpanAnswers],
    threshold: float,
    has_unanswerable: bool,
    prefix: str = "dev",
) -> None:
    """Writes `dev_predictions.jsonl` (see `evaluation_file`) if the best scores of all questions are finite. Each line
    is a JSON object for one question, with these fields:
    - `index`: index of the question, from 0.
    - `id`: the question's id.
    - `question`: the question.
    - `context`: the part of the context around the right answer.
    - `label`: the texts of the right answers; an empty list for a question without an answer.
    - `prediction`: the text of the predicted answer; "" for no answer.
    - `probability`: the predicted answer's probability, from the softmax over the scores of the candidates; 0 if the
      answer is not a candidate.
    - `exact_match`, `f1`: the metrics of this question.
    - `null_odds`: `SpanAnswers.null_odds`; only for SQuAD 2.0."""
    if not all(math.isfinite(each.candidates[0].score) for each in answers):
        return
    texts = [each.text(threshold) for each in answers]
    exact, f1 = question_scores(questions, texts, has_unanswerable)
    entries = []
    for index, (question, each, text) in enumerate(zip(questions, answers, texts, strict=True)):
        shares = zip(each.candidates, each.probabilities, strict=True)
        right = question.answers or ()
        entry = {
            "index": index,
            "id": question.id,
            "question": question.text,
            "context": _around(question.context, right[0].start if right else 0),
            "label": list(dict.fromkeys(answer.text for answer in right)),
            "prediction": text,
            "probability": next((share for candidate, share in shares if candidate.text == text), 0.0),
            "exact_match": exact[index],
            "f1": f1[index],
        }
        entries.append(entry | ({} if each.null_odds is None else {"null_odds": each.null_odds}))
    evaluation_file.write(folder, entries, prefix)


def _around(context: str, place: int) -> str:
    begin = max(0, place - _CONTEXT_BEFORE)
    return context[begin : begin + _CONTEXT]


def _entries(answers: SpanAnswers) -> list[dict]:
    entries = []
    for candidate, probability in zip(answers.candidates, answers.probabilities, strict=True):
        entry = {
            "text": candidate.text,
            "probability": probability,
            "start_logit": candidate.start_logit,
            "end_logit": candidate.end_logit,
        }
        if candidate.offsets:
            entry["start"], entry["end"] = candidate.offsets
        entries.append(entry)
    return entries
