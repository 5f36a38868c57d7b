"""Learns a WordPiece vocabulary from a corpus.

Paper: section 3 ("Input/Output Representations").

The algorithm is byte-pair encoding over words: it merges the most frequent pair of adjacent tokens until the
vocabulary has the requested size. Tokens that continue a word start with "##". The vocabulary contains the
alphabet, so greedy longest-match tokenization never gives [UNK] for a word that only has characters of the alphabet.
"""

import collections
import dataclasses
import heapq
from collections.abc import Iterable, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.text import tokenizer_files, tokenizer_rules
from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD
from bert_tf.tokenization import SPECIAL_TOKENS
from data_gen.corpus_check import check_corpus
from data_gen.documents import format_of
from data_gen.merges import JOINER, Merges
from data_gen.segmentation import measure
from data_gen.settings import VocabularySettings
from data_gen.vocabulary_extension import ExistingVocabulary, extend_tokens
from data_gen.words import WordCounts, count_words
from tfrecords import reader

# The alphabet has at most twice this many tokens: characters at the start of a word, and characters within a word.
# Words with rarer characters become [UNK], so that a few lines in other scripts cannot fill the vocabulary.
MAX_ALPHABET = 1000
# To bound memory, merges are learned only from this many of the most frequent words (see docs/background/appendix.md).
# Rarer words hardly change the count of a pair.
MAX_MERGE_WORDS = 1_000_000


def learn_vocabulary(settings: VocabularySettings) -> list[str]:
    """Learns or extends a vocabulary, and writes the vocabulary file. A new vocabulary starts with the special tokens
    ([PAD] 0, [UNK], [CLS], [SEP], [MASK]), then [unusedN]. The tokenizer's rules, the settings and a summary are
    written to `NAME.settings.json` in the same folder. Returns the tokens in the order of their ids."""
    files = reader.expand_files(settings.input_file)
    existing = ExistingVocabulary(settings) if settings.extend_vocab else None
    storage.check_outputs([settings.output_file], read=[*files, *([existing.path] if existing else [])])
    if not settings.overwrite and tf.io.gfile.exists(settings.output_file):
        raise InputError(
            f"--output_file={settings.output_file}: exists; give another name, or --overwrite to replace it"
        )
    settings = dataclasses.replace(settings, input_format=format_of(files, settings.input_format))
    check_corpus(files, settings.input_format, sentences=False)
    casing = settings.do_lower_case is not False, settings.strip_accents
    if existing:
        casing = existing.rules.do_lower_case, existing.rules.strip_accents
    counted = count_words(files, casing[0], settings.max_words, settings.input_format, settings.text_field, casing[1])
    if not counted.counts:
        raise InputError(
            f"--input_file={settings.input_file}: contains no word to learn from; check the file and "
            f"--input_format={settings.input_format}"
        )
    _log_counts(counted, settings.max_words)
    text = _extended(existing, counted, settings) if existing else _learned(counted, settings)
    tokens = [line.strip() for line in text.rstrip("\n").split("\n")]
    summary = _summary(tokens, counted, existing)
    added, form = (existing.rules.added_tokens, existing.rules.form) if existing else ((), {})
    rules = tokenizer_rules.of_tokens(tokens, *casing, added, **form)
    more = {**dataclasses.asdict(settings), "summary": summary}
    tokenizer_files.write_learned(settings.output_file, text, rules, more)
    _log_result(settings.output_file, summary)
    return tokens


def _learned(counted: WordCounts, settings: VocabularySettings) -> str:
    reserved = [*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(settings.num_unused))]
    tokens = [*reserved, *learn_tokens(counted.counts, settings.vocab_size - len(reserved))]
    if len(tokens) < settings.vocab_size:
        logging.warning(
            "learned %d tokens, fewer than --vocab_size=%d: every word of the corpus is already one token; "
            "give more text, or a smaller size", len(tokens), settings.vocab_size
        )  # fmt: skip
    return "".join(f"{token}\n" for token in tokens)


def _extended(existing: ExistingVocabulary, counted: WordCounts, settings: VocabularySettings) -> str:
    words = dict(_most_frequent(counted.counts.items()))
    added = extend_tokens(existing.tokens, words, existing.wanted)
    if not added:
        raise InputError(
            f"--input_file={settings.input_file}: adds nothing to {settings.extend_vocab}, which already contains "
            "every word as one token; use the vocabulary unchanged, or give other text"
        )
    if len(added) < existing.wanted:
        logging.warning(
            "added %d tokens, fewer than the %d requested: the corpus would not use other tokens",
            len(added), existing.wanted,
        )  # fmt: skip
    return existing.text_with(added)


def _summary(tokens: list[str], counted: WordCounts, existing: ExistingVocabulary | None) -> dict:
    summary = {
        "vocab_size": len(tokens),
        "words": sum(counted.counts.values()),
        "different_words": len(counted.counts),
        "dropped_words": counted.dropped_words,
        "dropped_occurrences": counted.dropped_occurrences,
        "largest_count_error": counted.largest_error,
    }
    if existing:
        before = set(existing.tokens)
        summary["tokens_added"] = sum(token not in before for token in tokens)
        summary["before"] = dataclasses.asdict(measure(existing.tokens, counted.counts))
    return {**summary, ("after" if existing else "fit"): dataclasses.asdict(measure(tokens, counted.counts))}


def _log_counts(counted: WordCounts, max_words: int) -> None:
    logging.info("counted %d different words, %d in total", len(counted.counts), sum(counted.counts.values()))
    if counted.dropped_words:
        logging.warning(
            "the corpus has more different words than --max_words=%d: dropped the rarest, %d words that occurred %d "
            "times; counts are too low by at most %d", max_words, counted.dropped_words, counted.dropped_occurrences,
            counted.largest_error,
        )  # fmt: skip


def _log_result(path: str, summary: dict) -> None:
    if "before" in summary:
        before, after = summary["before"], summary["after"]
        logging.info(
            "wrote %d tokens, %d of them new, to %s; tokens per word %.4f -> %.4f, [UNK] share %.6f -> %.6f",
            summary["vocab_size"], summary["tokens_added"], path, before["tokens_per_word"],
            after["tokens_per_word"], before["unknown_share"], after["unknown_share"],
        )  # fmt: skip
    else:
        logging.info(
            "wrote %d tokens to %s; tokens per word %.4f, [UNK] share %.6f",
            summary["vocab_size"], path, summary["fit"]["tokens_per_word"], summary["fit"]["unknown_share"],
        )  # fmt: skip


def learn_tokens(word_counts: Mapping[str, int], size: int) -> list[str]:
    """Learns tokens from counted words.
    `word_counts`: number of occurrences of each word.
    `size`: number of tokens; fewer are returned if no adjacent pair is left to merge.
    Returns the alphabet (each character at the start of a word and within a word), then the merged tokens in the order
    of the merges. The result does not depend on the order of the words."""
    alphabet = _alphabet(word_counts, size)
    # Share one string object among all occurrences of a token to save memory.
    first = {token: token for token in alphabet}
    continuing = {token[len(JOINER) :]: token for token in alphabet if token.startswith(JOINER) and token != JOINER}
    spelled = (
        (word, count)
        for word, count in word_counts.items()
        if len(word) <= MAX_CHARACTERS_PER_WORD and word[0] in first and continuing.keys() >= set(word[1:])
    )
    words, counts = [], []
    for word, count in _most_frequent(spelled):
        words.append([first[word[0]], *(continuing[c] for c in word[1:])])
        counts.append(count)
    merges = Merges(words, counts)
    tokens = dict.fromkeys(sorted(alphabet))
    with ProgressBar("learning tokens", size, "tokens") as progress:
        progress.update(len(tokens))
        while len(tokens) < size and (merged := merges.merge_most_frequent()):
            if merged not in tokens:  # different merges can produce the same token
                tokens[merged] = None
                progress.update()
    return list(tokens)


def _most_frequent(word_counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Returns the MAX_MERGE_WORDS most frequent words; ties are broken by character order."""
    kept = heapq.nsmallest(MAX_MERGE_WORDS, word_counts, key=lambda item: (-item[1], item[0]))
    if len(kept) == MAX_MERGE_WORDS:
        logging.info("learning from the %d most frequent words", len(kept))
    return kept


def _alphabet(word_counts: Mapping[str, int], size: int) -> set[str]:
    """Returns the most frequent single-character tokens; ties are broken by character order."""
    totals: collections.Counter = collections.Counter()
    for word, count in word_counts.items():
        totals[word[0]] += count
        for character in word[1:]:
            totals[JOINER + character] += count
    ranked = sorted(totals, key=lambda token: (-totals[token], token))
    number = min(size, 2 * MAX_ALPHABET)
    if len(ranked) > number:
        logging.warning(
            "omitted %d of %d single-character tokens, of which the most frequent occurs %d times; words that contain "
            "an omitted token become [UNK]%s", len(ranked) - number, len(ranked), totals[ranked[number]],
            "; the vocabulary has no room for these tokens, so give a larger --vocab_size" if number == size else "",
        )  # fmt: skip
    return set(ranked[:number])
