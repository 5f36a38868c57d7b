"""Logs a summary of a run's data before it begins: numbers of examples and steps, lengths, truncation and [UNK]."""

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.task import Split
from bert_tf.text.tokenizer_rules import MOST_UNKNOWN, of_unknown

# The columns with ids of tokens.
_TOKENS = ("segment_a", "segment_b", "tokens")
# A warning is logged if at least this share of the examples is truncated, or at least this share of the tokens is lost.
_MANY_EXAMPLES, _MANY_TOKENS = 0.1, 0.05


def log(run: PreparedRun) -> None:
    """Logs a line for each split that a run reads, and warns if much text is lost."""
    settings, task = run.settings, run.task
    for split_name, split in run.splits.items():
        # The "dev" split of a command that only evaluates may be any file, such as a test set.
        name = split_name if settings.do_train else task.data.title(split_name) or split_name
        if split_name == "test" and split is run.splits.get("dev"):
            continue
        steps = ""
        if split_name == "train" and not settings.sweep:
            steps = f", {run.num_train_steps():,} steps of {settings.train_batch_size}"
        if not len(split):
            continue
        examples, rows = task.example_and_row_names
        within = f" in {len(split):,} {rows}" if len(split) != len(split.examples) else ""
        lost = lost_tokens(split, settings.max_seq_length, run.tokenizer.rules.separators)
        truncated = len(np.unique(split.example_ids[lost > 0])) / len(split.examples)
        cut = f"; {100 * truncated:.1f}% truncated" if lost.any() else "" if task.row_length else "; none truncated"
        unknown = unknown_share(split, run.tokenizer.unk_id)
        median, most, longest = np.quantile(split.lengths + lost, [0.5, 0.95, 1], method="inverted_cdf").tolist()
        logging.info(
            "%s: %s %s%s%s; tokens: median %s, 95%% up to %s, longest %s%s; %.1f%% [UNK]",
            name, f"{len(split.examples):,}", examples, within, steps, median, most, longest, cut, 100 * unknown,
        )  # fmt: skip
        if unknown > MOST_UNKNOWN:
            rules = run.tokenizer.rules
            logging.warning("%s: %s", name, of_unknown(unknown, rules.vocab_file, rules.do_lower_case))
        share = lost.sum() / (lost + split.lengths).sum()
        remedies = task.truncation_remedies
        if remedies is not None and (truncated >= _MANY_EXAMPLES or share >= _MANY_TOKENS):
            longer = settings.max_seq_length < run.config.max_position_embeddings
            remedies = [*(["a larger --max_seq_length"] if longer else []), *remedies] or ["a model for longer rows"]
            logging.warning(
                "%s: %.0f%% of the %s are truncated, and %.0f%% of the tokens are lost; %s %s",
                name, 100 * truncated, examples, 100 * share,
                "give" if settings.do_train else "train with", ", or ".join(remedies),
            )  # fmt: skip


def unknown_share(split: Split, unk_id: int) -> float:
    """Returns the share of a split's tokens that are [UNK]; 0 if the data was encoded before this program read it."""
    columns = [split.columns[name].values for name in _TOKENS if isinstance(split.columns.get(name), tf.RaggedTensor)]
    ids = np.concatenate([[], *(values.numpy() for values in columns)])
    return float(np.mean(ids == unk_id)) if len(ids) else 0.0


def lost_tokens(split: Split, max_seq_length: int, separators: int = 1) -> np.ndarray:
    """Returns the number of tokens that truncation removes from each row, int64 [N].
    `split`: an encoded split. If the split has no segment columns, the result is 0 for all rows: the texts are not
      truncated, or they were truncated before this program read them.
    `max_seq_length`: maximum number of tokens in a row.
    `separators`: number of [SEP] between two texts."""
    first, second = split.columns.get("segment_a", split.columns.get("tokens")), split.columns.get("segment_b")
    if not isinstance(first, tf.RaggedTensor):
        return np.zeros(len(split), np.int64)
    lengths = first.row_lengths().numpy()
    of_second = np.zeros_like(lengths) if second is None else second.row_lengths().numpy()
    return np.maximum(0, lengths + of_second + 2 + separators * (of_second > 0) - max_seq_length)
