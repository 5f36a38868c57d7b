"""Scores all texts in the input files, as a job of one task per shard.

Paper: section 3.1, Task 1 (the masked LM).
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import names
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.distributed.workarounds import silence_compilation_messages
from bert_tf.jobs import text_job
from bert_tf.jobs.job import Job
from bert_tf.jobs.line_ranges import LineRange, read_lines
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.text_job import TextTask
from bert_tf.pretraining import fill_mask, scoring
from bert_tf.pretraining.fill_mask import BlankRow
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.pretraining.scoring import DirectedScorer, MaskedScorer, Text
from bert_tf.settings import ScoringSettings
from bert_tf.settings.scoring import CONTINUATION, FILL_MASK
from bert_tf.tokenization import MASK, UNK, BertTokenizer
from bert_tf.training import metrics
from tfrecords import manifest

# Increment this number whenever a change makes the same settings produce different bytes.
_RECIPE = 2
# Number of queries (masked positions) whose answers are in memory at the same time.
_QUERIES_AT_ONCE = 4096
_LINES_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class ScoreCounts(text_job.TextCounts):
    """The counts of a shard. For texts with [MASK], the number of tokens is the number of masks."""

    unknown: int = 0  # number of tokens that are [UNK]
    log_likelihood: float = 0.0  # the sum of the log-probabilities of the right tokens


def score_files(settings: ScoringSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes one JSON object for each text into shards, and then the manifest of the shards. For details, see
    `bert_tf.jobs.text_job.run`."""
    settings, contents = resolve(settings)
    scored = [path for path in contents.tensors if names.component_of(path) in ("encoder", "masked_lm")]
    identity = {
        **checkpoint_tokenizer.rules_of(settings).facts,
        "weights_sha256": contents.sha256(scored),
    }

    def check(sources: Sequence[LineRange]) -> None:
        if not sum(runner.map(functools.partial(_count_texts, settings), sources)):
            raise InputError(f"--input_file={settings.input_file}: contains no text; write one text per line")

    prefix = "pseudo-" if contents.require_config().directionality == "bidi" else ""
    finish = functools.partial(_finish, prefix)
    program = text_job.Program("scoring", _RECIPE, ScoreCounts, _write, finish)
    return text_job.run(program, settings, identity, runner, check)


def resolve(settings: ScoringSettings) -> tuple[ScoringSettings, OpenCheckpoint]:
    """Fills in settings from the checkpoint's folder; returns the settings and the checkpoint."""
    contents = checkpoints.open_checkpoint(settings.init_checkpoint, settings.bert_config_file)
    direction = {FILL_MASK: "bidi", CONTINUATION: "ltr"}.get(settings.mode, "bidi" * settings.hide_rest_of_word)
    config = scoring.require_language_model(contents, direction)
    rules = checkpoint_tokenizer.resolve(settings, contents)
    longest = settings.max_seq_length or config.max_position_embeddings
    config.check_length(longest, contents.config_file)
    # All processes must read this checkpoint, even if a training process adds checkpoints to the folder.
    changes = {
        "init_checkpoint": contents.source,
        "vocab_file": rules.vocab_file,
        "do_lower_case": rules.do_lower_case,
        "strip_accents": rules.strip_accents,
        "max_seq_length": longest,
    }
    return dataclasses.replace(settings, **changes), contents


@functools.lru_cache(maxsize=1)
def _tokenizer(settings: ScoringSettings) -> BertTokenizer:
    return checkpoint_tokenizer.tokenizer(settings)


@functools.lru_cache(maxsize=1)
def _scorer(settings: ScoringSettings, weights_sha256: str) -> MaskedScorer | DirectedScorer:
    """Returns the scorer of this process; the weights are loaded only once."""
    del weights_sha256  # part of the cache key, because the file may have changed
    return load_scorer(settings)


def load_scorer(settings: ScoringSettings) -> MaskedScorer | DirectedScorer:
    silence_compilation_messages()
    contents = checkpoints.open_checkpoint(settings.init_checkpoint, settings.bert_config_file)
    model = BertPretrainer(contents.require_config())
    variables = checkpoints.variables_by_path(model)
    for path, value in contents.read(path for path in variables if path in contents.tensors).items():
        variables[path].assign(value)
    if model.config.directionality != "bidi":
        return DirectedScorer(model)
    tokenizer = _tokenizer(settings)
    return MaskedScorer(model, tokenizer, settings.batch_size, settings.num_guesses, settings.hide_rest_of_word)


def _count_texts(settings: ScoringSettings, source: LineRange) -> int:
    """Returns the number of texts in a source; refuses texts that cannot be scored."""
    return sum(1 for _ in _texts(settings, source))


def _texts(settings: ScoringSettings, source: LineRange) -> Iterator[Text]:
    numbered = _numbered_lines(source)
    while lines := list(itertools.islice(numbered, _LINES_AT_ONCE)):
        yield from _texts_of(settings, lines)


def _texts_of(settings: ScoringSettings, lines: Sequence[tuple[int, str, str]]) -> Iterator[Text]:
    tokenizer, longest = _tokenizer(settings), settings.max_seq_length
    if settings.mode == FILL_MASK:
        for number, where, line in lines:
            yield Text(number, line, fill_mask.row_of_line(line, where, tokenizer, longest))
        return
    encoded = tokenizer.encode([line for *_, line in lines]).to_list()
    firsts = _lengths_of_contexts(lines, tokenizer) if settings.mode == CONTINUATION else [0] * len(lines)
    for (number, where, line), tokens, first in zip(lines, encoded, firsts, strict=True):
        _check_text(where, line, len(tokens), longest)
        if first == len(tokens):
            raise InputError(f"{where}: has no token after the tab; write the continuation there")
        ids = np.array([tokenizer.cls_id, *tokens, tokenizer.sep_id], np.int32)
        yield Text(number, line, BlankRow(ids, np.zeros_like(ids), range(1 + first, len(ids) - 1), tokens[first:]))


def _lengths_of_contexts(lines: Sequence[tuple[int, str, str]], tokenizer: BertTokenizer) -> list[int]:
    for _, where, line in lines:
        if (tabs := line.count("\t")) != 1:
            raise InputError(f"{where}: has {tabs} tabs; write the context, one tab, and the continuation")
    return tokenizer.encode([line.split("\t")[0] for *_, line in lines]).row_lengths().numpy().tolist()


def _numbered_lines(source: LineRange) -> Iterator[tuple[int, str, str]]:
    """Yields the nonblank lines of a source."""
    for line in read_lines(source):
        try:
            text = line.raw.decode("utf-8-sig" if line.number == 1 else "utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{line.where}: not UTF-8; save the file as UTF-8") from error
        if text.strip():
            yield line.index + 1, line.where, text


def _check_text(where: str, line: str, num_tokens: int, longest: int) -> None:
    if MASK in line:
        raise InputError(f"{where}: contains {MASK}; give --mode={FILL_MASK} to fill it in, or write the word")
    if not num_tokens:
        raise InputError(f"{where}: has no token; remove the line")
    if num_tokens + 2 > longest:
        raise InputError(f"{where}: has {num_tokens + 2} tokens, more than {longest}; split the text")


def _write(task: TextTask, told: Callable[[int], None]) -> ScoreCounts:
    settings, counts = task.settings, ScoreCounts(lines=task.source.lines)
    scorer, tokenizer = _scorer(settings, task.weights_sha256), _tokenizer(settings)
    entry_of = functools.partial(scoring.likelihood_entry, prefix=scorer.prefix)
    if settings.mode == FILL_MASK:
        entry_of = scoring.guesses_entry
    unknown = tokenizer.unk_id
    with storage.local_path_of(task.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for group in _groups(_texts(settings, task.source)):
            for text, answers in zip(group, scorer.answers([text.row for text in group]), strict=True):
                value = float(answers.log_probabilities.sum(dtype=np.float64))
                metrics.require_finite({f"the score of line {text.line}": value}, settings.init_checkpoint)
                file.write(json.dumps(entry_of(text, answers, tokenizer), ensure_ascii=False) + "\n")
                right = list(text.row.right_ids or ())
                counts += ScoreCounts(
                    texts=1, tokens=len(text.row.blanks), unknown=right.count(unknown), log_likelihood=value
                )
            told(group[-1].line)
    return counts


def _groups(texts: Iterator[Text]) -> Iterator[list[Text]]:
    group, count = [], 0
    for text in texts:
        group.append(text)
        count += len(text.row.blanks)
        if count >= _QUERIES_AT_ONCE:
            yield group
            group, count = [], 0
    if group:
        yield group


def _finish(prefix: str, this: Job, shards: Sequence[manifest.Shard], facts: ScoreCounts) -> dict[str, int]:
    if facts.unknown:
        logging.warning("%d tokens are %s; their scores say nothing about the words in the text", facts.unknown, UNK)
    if this.settings.mode != FILL_MASK:
        logging.info(
            "%d texts, %d tokens: %slog-likelihood %.4f per token, %sperplexity %.4g", facts.texts, facts.tokens,
            prefix, facts.log_likelihood / facts.tokens, prefix,
            scoring.perplexity(facts.log_likelihood, facts.tokens),
        )  # fmt: skip
    logging.info("%s: wrote the results of %d texts", this.manifest_path, facts.texts)
    return {name: getattr(facts, name) for name in ("lines", "texts", "tokens", "unknown")}
