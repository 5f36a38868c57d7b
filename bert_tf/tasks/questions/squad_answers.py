"""Logits to answers: the best spans of a question's windows, and their text.

Paper: sections 4.2 and 4.3; what the original's evaluation writes.

Letters: W windows of a context, S sequence length.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.tasks.questions.squad_file import Question, words_of
from bert_tf.tasks.questions.squad_windows import Window, in_best_window
from bert_tf.tokenization import BertTokenizer

# The original's score of "no answer" before it has seen a window.
NULL_WITHOUT_WINDOW = 1e6
# What the original answers where no span is valid.
_NO_SPAN = "empty"


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How logits become answers; the fields are flags of `run_squad`.

    Attributes:
      n_best_size: start and end positions of a window that are tried, and answers that are kept.
      max_answer_length: tokens.
      has_unanswerable: `version_2_with_negative`.
      exact_offsets: `exact_answer_offsets`.
      verbose: `verbose_logging`.
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    has_unanswerable: bool = False
    exact_offsets: bool = False
    verbose: bool = False


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A possible answer.

    Attributes:
      text: "" for no answer.
      start_logit, end_logit: their sum is the score.
      offsets: its range of characters in the context, with `exact_offsets`; else None.
    """

    text: str
    start_logit: float
    end_logit: float
    offsets: tuple[int, int] | None = None

    @property
    def score(self) -> float:
        """See the class."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class Answers:
    """The best answers to a question.

    Attributes:
      candidates: by descending score, except that "no answer" may be added at the end.
      null_odds: the score of "no answer" less that of the best answer; None where each question has an answer.
    """

    candidates: tuple[Candidate, ...]
    null_odds: float | None = None

    @property
    def best_text(self) -> str:
        """The text of the best candidate that is an answer; "" if there is none."""
        return next((candidate.text for candidate in self.candidates if candidate.text), "")

    def text(self, null_threshold: float) -> str:
        """Returns the answer: "" if the odds of none are above the threshold."""
        if self.null_odds is None:
            return self.candidates[0].text
        return "" if self.null_odds > null_threshold else self.best_text

    @property
    def probabilities(self) -> list[float]:
        """The softmax over the scores of the candidates."""
        best = max(candidate.score for candidate in self.candidates)
        scores = [math.exp(candidate.score - best) for candidate in self.candidates]
        return [score / sum(scores) for score in scores]


def decode(
    question: Question, windows: Sequence[Window], logits: np.ndarray, tokenizer: BertTokenizer, decoding: Decoding
) -> Answers:
    """Finds the best answers to a question.

    Args:
      question: the question and its context.
      windows: of its context, W.
      logits: float32 [W, S, 2], start and end.
      tokenizer: that encoded the windows.
      decoding: see `Decoding`.
    """
    logits = logits.astype(np.float64)
    nulls = logits[:, 0].sum(axis=1)  # [W]
    window, start, end = _spans(windows, logits, decoding)
    start_logits, end_logits = logits[window, start, 0], logits[window, end, 1]
    null = None
    if decoding.has_unanswerable:
        lowest = int(np.argmin(nulls)) if len(nulls) else None
        start_null, end_null = logits[lowest, 0].tolist() if lowest is not None else (NULL_WITHOUT_WINDOW, 0.0)
        null = Candidate("", start_null, end_null)
    order = np.argsort(-(start_logits + end_logits), kind="stable").tolist()
    found = ((windows[window[i]], start[i], end[i], float(start_logits[i]), float(end_logits[i])) for i in order)
    candidates = _best(_with_null(found, null), question, tokenizer, decoding)
    if null is not None and all(candidate.text for candidate in candidates):
        candidates.append(null)
    if not candidates:
        candidates.append(Candidate("" if decoding.exact_offsets else _NO_SPAN, 0.0, 0.0))
    if null is None:
        return Answers(tuple(candidates))
    best = next((candidate for candidate in candidates if candidate.text), None)
    # In the order of the original, whose sums of floating-point numbers these equal.
    odds = null.score - best.start_logit - best.end_logit if best else null.score
    return Answers(tuple(candidates), odds)


def _spans(
    windows: Sequence[Window], logits: np.ndarray, decoding: Decoding
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns window, start and end position of each valid span, int [spans], in the original's order."""
    best = in_best_window([w.start for w in windows], [len(w.tokens.ids) for w in windows])
    found = [np.zeros((3, 0), np.int64)]
    for number, (window, is_best) in enumerate(zip(windows, best, strict=True)):
        first, count = window.offset, len(window.tokens.ids)
        starts, ends = (_highest(logits[number, :, side], decoding.n_best_size) for side in (0, 1))
        starts, ends = (at[(at >= first) & (at < first + count)] for at in (starts, ends))
        starts = starts[is_best[starts - first]]
        length = ends - starts[:, np.newaxis] + 1
        pairs = np.nonzero((length > 0) & (length <= decoding.max_answer_length))
        found.append(np.stack([np.full(len(pairs[0]), number), starts[pairs[0]], ends[pairs[1]]]))
    window, start, end = np.concatenate(found, axis=1)
    return window, start, end


def _highest(logits: np.ndarray, count: int) -> np.ndarray:
    """Returns the positions of the highest logits; of equal ones, the first comes first."""
    return np.argsort(-logits, kind="stable")[:count]


def _with_null(spans: Iterator[tuple], null: Candidate | None) -> Iterator[tuple | Candidate]:
    """Inserts "no answer" behind the spans whose score is not lower."""
    for span in spans:
        if null is not None and null.score > span[3] + span[4]:
            yield null
            null = None
        yield span
    if null is not None:
        yield null


def _best(
    spans: Iterator[tuple | Candidate], question: Question, tokenizer: BertTokenizer, decoding: Decoding
) -> list[Candidate]:
    """Returns the first candidates whose texts differ."""
    found: list[Candidate] = []
    seen: set[str] = set()
    for span in spans:
        if len(found) >= decoding.n_best_size:
            break
        if isinstance(span, Candidate):
            found.append(span)
            seen.add("")
            continue
        window, start, end, start_logit, end_logit = span
        part = slice(start - window.offset, end - window.offset + 1)
        if decoding.exact_offsets:
            offsets = int(window.tokens.starts[part][0]), int(window.tokens.ends[part][-1])
            text = question.context[slice(*offsets)]
        else:
            offsets, text = None, _aligned(question.context, window, part, tokenizer, decoding.verbose)
        if text not in seen:
            found.append(Candidate(text, start_logit, end_logit, offsets))
            seen.add(text)
    return found


def _aligned(context: str, window: Window, part: slice, tokenizer: BertTokenizer, verbose: bool) -> str:
    """Returns the text of tokens as the original does: their words, less the characters that are not of the tokens."""
    from official.nlp.data.squad_lib import get_final_text

    tokens = " ".join(tokenizer.to_tokens(window.tokens.ids[part]))
    text = " ".join(tokens.replace(" ##", "").replace("##", "").split())
    words = words_of(context)
    first, last = words.at(int(window.tokens.starts[part][0])), words.at(int(window.tokens.starts[part][-1]))
    return get_final_text(text, " ".join(words.texts[first : last + 1]), tokenizer.do_lower_case, verbose=verbose)
