"""Computes statistics of a finished set for its manifest and the log, and warns of flags that do not fit the text."""

import math
from collections.abc import Iterator, Mapping, Sequence

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.text.tokenizer_rules import MOST_UNKNOWN, of_unknown
from data_gen.examples import UnitCounts
from data_gen.settings import GeneratorSettings
from data_gen.token_blocks import TokenBlock

# Ordinary text in any language is far from these limits, also in rows that are short for its sentences.
_LEAST_USED = 0.5
_MOST_RANDOM = 0.7
_ALL_UNKNOWN = 0.95
# A masked share below this fraction of --masked_lm_prob gives a warning. Rounding, and the minimum of one prediction
# per row, change the masked share only a little.
_LEAST_MASKED = 0.8


def check_unknown(blocks: Sequence[TokenBlock], settings: GeneratorSettings) -> None:
    """Warns if many tokens of the corpus, or most tokens in a part of a file, are [UNK]."""
    tokens, unknown = (sum(getattr(block, name) for block in blocks) for name in ("tokens", "unknown"))
    what = of_unknown(unknown / tokens, settings.vocab_file, settings.do_lower_case)
    if unknown > _ALL_UNKNOWN * tokens:
        raise InputError(f"--input_file={settings.input_file}: {what}")
    if unknown > MOST_UNKNOWN * tokens:
        logging.warning("%s", what)
        return
    files = list(dict.fromkeys(path for block in blocks for path in block.unknown_files))
    if files:
        more = f" and in {len(files) - 1} more files" if files[1:] else ""
        logging.warning("more than half of the tokens in a part of %s%s are [UNK]; %s", files[0], more, what)


def summarize(blocks: Sequence[TokenBlock], counts: UnitCounts, settings: GeneratorSettings) -> dict[str, float]:
    tokens = sum(block.tokens for block in blocks)
    summary = {
        "documents": sum(block.documents for block in blocks),
        "sentences": sum(block.sentences for block in blocks),
        "tokens": tokens,
        "unknown_share": round(sum(block.unknown for block in blocks) / tokens, 6),
        "used_share": round(counts.text / (tokens * settings.dupe_factor), 6),
        "examples": counts.examples,
        "padding_share": round(1 - counts.pieces / (counts.examples * settings.max_seq_length), 6),
    }
    if settings.masks:
        summary["masked_share"] = round(counts.predictions / counts.pieces, 6)
    if settings.objective == "mlm_nsp":
        summary["random_next_share"] = round(counts.random_next / counts.examples, 6)
    return summary


def warn_of_examples(summary: Mapping[str, float], settings: GeneratorSettings) -> None:
    """Warns if examples leave out much text, most next sentences are random, or too few tokens are masked."""
    for line in _warnings(summary, settings):
        logging.warning("%s", line)


def _warnings(summary: Mapping[str, float], settings: GeneratorSettings) -> Iterator[str]:
    is_lines = settings.input_format == "lines"
    if summary["used_share"] < _LEAST_USED:
        remedy = f"give a larger --max_seq_length than {settings.max_seq_length}, or text with shorter sentences"
        if is_lines and summary["tokens"] > summary["sentences"] * settings.max_seq_length / 2:
            remedy = (
                "a line is read as one sentence: give --input_format=documents if each line is a document, or a larger "
                f"--max_seq_length than {settings.max_seq_length}"
            )
        yield (
            f"only {summary['used_share']:.1%} of the tokens are used, because rows truncate sentences, which have "
            f"{summary['tokens'] / summary['sentences']:.0f} tokens on average; {remedy}"
        )
    if summary.get("random_next_share", 0) > _MOST_RANDOM:
        sentences = summary["sentences"] / summary["documents"]
        if sentences > 3:
            remedy = (
                f"give a larger --max_seq_length than {settings.max_seq_length}, so that a row holds several sentences"
            )
        elif is_lines:
            remedy = (
                "put one sentence on a line and a blank line only between documents, or give --input_format=documents "
                "if each line is a document"
            )
        else:
            remedy = "give longer documents"
        yield (
            f"{summary['random_next_share']:.1%} of the next sentences are random instead of about half, and documents "
            f"have {sentences:.1f} sentences on average; {remedy}, or --objective=mlm, which uses no next sentences"
        )
    if summary.get("masked_share", 1) < _LEAST_MASKED * settings.masked_lm_prob:
        wanted, most = math.ceil(settings.masked_lm_prob * settings.max_seq_length), settings.max_predictions_per_seq
        why = f"--max_predictions_per_seq={most} is reached; give {wanted}"
        if wanted <= most:
            why = "many words have more tokens than a short row may predict; give longer texts, or a larger vocabulary"
        yield (
            f"only {summary['masked_share']:.1%} of the tokens are masked instead of {settings.masked_lm_prob:.1%}, "
            f"because {why}"
        )


def in_words(summary: Mapping[str, float], shards: int) -> str:
    parts = [
        "wrote {examples:,} examples in {shards} shard{ending}",
        "{documents:,} documents, {sentences:,} sentences, {tokens:,} tokens ({unknown_share:.2%} [UNK]), "
        "{used_share:.1%} of them used",
        "{padding_share:.1%} padding",
        "{masked_share:.1%} masked" if "masked_share" in summary else "",
        "{random_next_share:.1%} random next sentences" if "random_next_share" in summary else "",
    ]
    number, ending = counted(shards)
    return "; ".join(filter(None, parts)).format(**summary, shards=number, ending=ending)


def counted(number: int) -> tuple[int, str]:
    """Returns a number, and the ending of the noun that follows the number: "" after 1, otherwise "s"."""
    return number, "" if number == 1 else "s"
