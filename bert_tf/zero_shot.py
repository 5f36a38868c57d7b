"""Chooses among texts with a left-to-right language model that was not trained on the task.

The choice is the text with the highest mean log-probability of its tokens, given the context.

Paper: section 5.1 (OpenAI GPT); A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018,
section 5 ("Zero-shot Behaviors").
"""

import json
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf import checkpoint_tokenizer
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.pretraining import scoring_job
from bert_tf.pretraining.fill_mask import BlankRow
from bert_tf.pretraining.scoring import require_language_model
from bert_tf.settings import ScoringSettings
from bert_tf.tasks.choice.choice_files import ChoiceExample, choice_data
from bert_tf.tasks.classification.example import CLASSIFICATION
from bert_tf.tasks.classification.own_data import COLUMN_FLAGS, table_data
from bert_tf.tokenization import BertTokenizer

_ROWS_AT_ONCE = 512


def choose(settings: ScoringSettings) -> dict[str, float]:
    """Chooses one of the texts of each example, and writes a JSON object per example to `output_file`. If all right
    choices are known, the log has the accuracy. Returns the accuracy by name; {} if right choices are unknown."""
    settings, contents = scoring_job.resolve(settings)
    require_language_model(contents, "ltr")
    examples = read_examples(settings)
    tokenizer = checkpoint_tokenizer.tokenizer(settings)
    rows = make_rows(examples, tokenizer, settings.max_seq_length)
    scorer = scoring_job.load_scorer(settings)
    answers = iter([
        answer for i in range(0, len(rows), _ROWS_AT_ONCE) for answer in scorer.answers(rows[i : i + _ROWS_AT_ONCE])
    ])  # fmt: skip
    lines, right = [], []
    labels = list(settings.texts_of_labels)
    for number, example in enumerate(examples):
        values = [next(answers).log_probabilities for _ in example.choices]
        best = int(np.argmax([value.mean(dtype=np.float64) for value in values]))
        names = labels or range(len(example.choices))
        entry = {
            "id": example.id or str(number),
            "prediction": names[best],
            "choice": example.choices[best],
            "label": None if example.label is None else names[example.label],
            "log_likelihoods": [float(value.sum(dtype=np.float64)) for value in values],
            "tokens": [len(value) for value in values],
        }
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
        right.append(None if example.label is None else best == example.label)
    storage.write_text(settings.output_file, "".join(lines))
    logging.info("%s: wrote the choices of %d examples", settings.output_file, len(examples))
    if None in right:
        return {}
    scores = {"accuracy": float(np.mean(right))}
    most = np.bincount([example.label for example in examples]).max() / len(examples)
    logging.info("accuracy %.4f without training; the most frequent choice has %.4f", scores["accuracy"], most)
    return scores


def read_examples(settings: ScoringSettings) -> list[ChoiceExample]:
    """Reads a file in a format of `run_swag`; with `label_texts`, a table of texts and labels."""
    path = settings.input_file
    texts = settings.texts_of_labels
    if not texts:
        return choice_data("", {"test": (path,)}).read("test")
    flags = dict(zip(COLUMN_FLAGS, (settings.text_column, "", settings.label_column, True, None, ","), strict=True))
    labels, examples = list(texts), []
    for text in table_data(flags, "", {"test": (path,)}, CLASSIFICATION).data.load("test"):
        if text.label is not None and text.label not in texts:
            raise InputError(
                f"{text.place}: the label {text.label!r} has no text in --label_texts, which names "
                f"{', '.join(labels)}; add it, or fix the line"
            )
        label = None if text.label is None else labels.index(text.label)
        examples.append(ChoiceExample(text.text_a, "", tuple(texts.values()), label, place=text.place))
    return examples


def make_rows(examples: Sequence[ChoiceExample], tokenizer: BertTokenizer, longest: int) -> list[BlankRow]:
    """Returns a row for each choice: [CLS] context choice [SEP]. Only the tokens of the choice are predicted. A context
    that is too long loses its first tokens."""
    starts = [f"{e.context} {e.start}".strip() for e in examples]
    contexts = tokenizer.encode(starts).to_list()
    choices = iter(tokenizer.encode([choice for example in examples for choice in example.choices]).to_list())
    rows = []
    for example, context in zip(examples, contexts, strict=True):
        for text in example.choices:
            choice = next(choices)
            room = longest - 2 - len(choice)
            if not choice or room < 0:
                raise InputError(
                    f"{example.place}: the choice {text[:60]!r} has {len(choice)} tokens, but must have 1 to "
                    f"{longest - 2}; shorten it, or give a larger --max_seq_length"
                )
            kept = context[max(0, len(context) - room) :]
            ids = np.array([tokenizer.cls_id, *kept, *choice, tokenizer.sep_id], np.int32)
            rows.append(BlankRow(ids, np.zeros_like(ids), range(1 + len(kept), len(ids) - 1), choice))
    return rows
