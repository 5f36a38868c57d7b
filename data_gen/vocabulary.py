"""Learning a WordPiece vocabulary from a corpus.

Paper: section 3 ("Input/Output Representations").

Pieces are merged pair by pair, the most frequent pair first (byte-pair encoding over words, the
continuing pieces marked with "##"), until the vocabulary has the size asked for. Greedy
longest-match then leaves no word of the alphabet's characters unknown.
"""

import collections
import dataclasses
import heapq
import json
from collections.abc import Iterable, Mapping

from absl import logging

from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD
from bert_tf.tokenization import SPECIAL_TOKENS
from data_gen.compressed import check_readable
from data_gen.merges import JOINER, Merges
from data_gen.progress import Progress
from data_gen.segmentation import measure
from data_gen.settings import VocabularySettings
from data_gen.vocabulary_extension import ExistingVocabulary, extend_pieces
from data_gen.words import WordCounts, count_words
from tfrecords import reader, writer
from tfrecords.errors import InputError

# Rarer characters are left to [UNK], so that a few foreign lines cannot fill the vocabulary.
MAX_ALPHABET = 1000
# Only so many words, the most frequent, teach merges, which bounds their memory (docs/performance.md has it
# measured); rarer ones hardly move a pair's count.
MAX_MERGE_WORDS = 1_000_000


def learn_vocabulary(settings: VocabularySettings) -> list[str]:
    """Learns a vocabulary, or extends one, and writes it.

    A new one starts with the special tokens ([PAD] 0, [UNK], [CLS], [SEP], [MASK]), then [unusedN].
    `NAME.settings.json` beside it keeps the settings and what came of them.

    Returns:
      The pieces in the order of their ids.

    Raises:
      InputError: a file is missing, damaged, of another format or read and written at once, the corpus holds no
        word, or the vocabulary to extend has no room or gains nothing.
    """
    files = reader.expand_files(settings.input_file)
    writer.check_outputs([settings.output_file], read=[*files, *filter(None, [settings.extend_vocab])])
    check_readable(files)
    existing = ExistingVocabulary(settings) if settings.extend_vocab else None
    counted = count_words(files, settings.do_lower_case, settings.max_words, settings.input_format, settings.text_field)
    if not counted.counts:
        raise InputError(
            f"--input_file={settings.input_file}: holds no word to learn from; check the file and "
            f"--input_format={settings.input_format}"
        )
    _log_counts(counted, settings.max_words)
    text = _extended(existing, counted, settings) if existing else _learned(counted, settings)
    pieces = [line.strip() for line in text.rstrip("\n").split("\n")]
    summary = _summary(pieces, counted, existing)
    writer.write_text(settings.output_file, text)
    kept = {**dataclasses.asdict(settings), "summary": summary}
    writer.write_text(f"{settings.output_file}.settings.json", json.dumps(kept, indent=2) + "\n")
    _log_result(settings.output_file, summary)
    return pieces


def _learned(counted: WordCounts, settings: VocabularySettings) -> str:
    reserved = [*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(settings.num_unused))]
    pieces = [*reserved, *learn_pieces(counted.counts, settings.vocab_size - len(reserved))]
    if len(pieces) < settings.vocab_size:
        logging.warning(
            "%d pieces, fewer than --vocab_size=%d: every word of the corpus is one piece already; "
            "give more text, or a smaller size", len(pieces), settings.vocab_size
        )  # fmt: skip
    return "".join(f"{piece}\n" for piece in pieces)


def _extended(existing: ExistingVocabulary, counted: WordCounts, settings: VocabularySettings) -> str:
    words = dict(_most_frequent(counted.counts.items()))
    added = extend_pieces(existing.pieces, words, existing.wanted)
    if not added:
        raise InputError(
            f"--input_file={settings.input_file}: adds nothing to {settings.extend_vocab}, which holds every "
            "word as one piece already; use the vocabulary as it is, or give other text"
        )
    if len(added) < existing.wanted:
        logging.warning(
            "%d pieces added, fewer than the %d asked for: the corpus holds no more that would be used",
            len(added), existing.wanted,
        )  # fmt: skip
    return existing.text_with(added)


def _summary(pieces: list[str], counted: WordCounts, existing: ExistingVocabulary | None) -> dict:
    summary = {
        "vocab_size": len(pieces),
        "words": sum(counted.counts.values()),
        "different_words": len(counted.counts),
        "dropped_words": counted.dropped_words,
        "dropped_occurrences": counted.dropped_occurrences,
        "largest_count_error": counted.largest_error,
    }
    if existing:
        before = set(existing.pieces)
        summary["pieces_added"] = sum(piece not in before for piece in pieces)
        summary["before"] = dataclasses.asdict(measure(existing.pieces, counted.counts))
    fit = measure(pieces, counted.counts)
    return {**summary, ("after" if existing else "fit"): dataclasses.asdict(fit)}


def _log_counts(counted: WordCounts, max_words: int) -> None:
    logging.info("counted %d different words, %d in all", len(counted.counts), sum(counted.counts.values()))
    if counted.dropped_words:
        logging.warning(
            "more different words than --max_words=%d: dropped the rarest, %d words that came %d times; "
            "no count is too low by more than %d", max_words, counted.dropped_words, counted.dropped_occurrences,
            counted.largest_error,
        )  # fmt: skip


def _log_result(path: str, summary: dict) -> None:
    if "before" in summary:
        before, after = summary["before"], summary["after"]
        logging.info(
            "wrote %d pieces, %d of them new, to %s; pieces per word %.4f -> %.4f, [UNK] share %.6f -> %.6f",
            summary["vocab_size"], summary["pieces_added"], path, before["pieces_per_word"],
            after["pieces_per_word"], before["unknown_share"], after["unknown_share"],
        )  # fmt: skip
    else:
        logging.info(
            "wrote %d pieces to %s; pieces per word %.4f, [UNK] share %.6f",
            summary["vocab_size"], path, summary["fit"]["pieces_per_word"], summary["fit"]["unknown_share"],
        )  # fmt: skip


def learn_pieces(word_counts: Mapping[str, int], size: int) -> list[str]:
    """Learns pieces from counted words.

    Args:
      word_counts: how often each word occurs.
      size: number of pieces; fewer come back when no pair of neighbours is left to merge.

    Returns:
      First the alphabet (every character, at a word's start and within it), then the merges in
      their order; the same for the same counts whatever their order.
    """
    alphabet = _alphabet(word_counts, size)
    # one string object for all occurrences of a piece
    first = {piece: piece for piece in alphabet}
    continuing = {piece[len(JOINER) :]: piece for piece in alphabet if piece.startswith(JOINER) and piece != JOINER}
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
    pieces = dict.fromkeys(sorted(alphabet))
    with Progress("learning pieces", size, "pieces") as progress:
        progress.update(len(pieces))
        while len(pieces) < size and (merged := merges.merge_most_frequent()):
            if merged not in pieces:  # else two ways of merging led to it
                pieces[merged] = None
                progress.update()
    return list(pieces)


def _most_frequent(word_counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The most frequent words, ties in their own order, as many as may teach merges."""
    kept = heapq.nsmallest(MAX_MERGE_WORDS, word_counts, key=lambda item: (-item[1], item[0]))
    if len(kept) == MAX_MERGE_WORDS:
        logging.info("learning from the %d most frequent words", len(kept))
    return kept


def _alphabet(word_counts: Mapping[str, int], size: int) -> set[str]:
    """The most frequent single-character pieces, ties in their own order."""
    totals: collections.Counter = collections.Counter()
    for word, count in word_counts.items():
        totals[word[0]] += count
        for character in word[1:]:
            totals[JOINER + character] += count
    ranked = sorted(totals, key=lambda piece: (-totals[piece], piece))
    number = min(size, 2 * MAX_ALPHABET)
    if len(ranked) > number:
        logging.warning(
            "%d of %d single-character pieces left out, the most frequent of them %d times: words with them become "
            "[UNK]%s", len(ranked) - number, len(ranked), totals[ranked[number]],
            "; they alone would fill the vocabulary, give a larger --vocab_size" if number == size else "",
        )  # fmt: skip
    return set(ranked[:number])
