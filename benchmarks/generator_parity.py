"""Our generator and tf-models-official's produce the same distributions from the same real text and flags.

The script compares the contents of both generators' records. Rows of one document are not independent: they
share the document's length, its sentences and, in one pass, whether it is cut short. Both generators also read the same
documents, so chi-square on pooled counts would be wrong. Documents are independent. For each category of a statistic
and each document, the difference between the two generators' counts has mean 0 if their distributions are equal. The
script therefore compares a statistic by Hotelling's T-squared test on these differences, one vector per document, which
allows any dependence of rows within a document. Each vector is divided by the root of the sum of both counts, so that a
few long documents do not dominate.

A row belongs to the first document that contains its A. For a short A, the true source may be another document, but the
rule depends only on the row, so it is the same for both generators.

Different seeds of the incumbent gave uniform p-values, as they should (432 p-values: 4% below 0.05, 13% below 0.1, 54%
below 0.5, minimum 0.01). Seeds are fixed, so results do not change: python benchmarks/generator_parity.py DATA. The
last line counts our p-values below FAMILY_LEVEL divided by their number (Bonferroni's inequality): the chance that
equal generators give one is FAMILY_LEVEL. Other settings of our generator, such as --short_seq_prob=0.17, give many.

Letters: R rows, S tokens per row, D documents, N items (rows, predictions or words), K categories.
"""

import dataclasses
import functools
import pathlib
import random
import sys
import tempfile

import numpy as np
import tensorflow as tf
from official.nlp.data import create_pretraining_data as incumbent
from official.nlp.tools.tokenization import FullTokenizer
from scipy import stats

from bert_tf.jobs.run_local import LocalRunner
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings

FAMILY_LEVEL = 1e-3
S, P = 128, 20
EVERY = 6  # every sixth document: all sources in their proportions, 2.6 MB
# The first mode also compares truncation, which needs more passes.
MODES = {
    "tokens": {"dupe_factor": 4},
    "words": {"dupe_factor": 2, "do_whole_word_mask": True},
    "ngrams": {"dupe_factor": 2, "do_whole_word_mask": True, "max_ngram_size": 3},
}
CLS_ID, SEP_ID, MASK_ID = 101, 102, 103
GRAM = 6
LENGTHS = (2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 124, 127, 128)
CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class Corpus:
    """The incumbent's tokens of the text, one character per token, so that segments can be found."""

    def __init__(self, path: pathlib.Path, tokenizer: FullTokenizer):
        documents = [[]]
        for line in path.read_text(encoding="utf-8").splitlines():
            tokens = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line))
            if tokens:
                documents[-1].append(tokens)
            elif documents[-1]:
                documents.append([])
        self.text, starts, ends, self.document_starts = "", [], [], []
        parts, position = [], 0
        for document in filter(None, documents):
            self.document_starts.append(position)
            for sentence in document:
                starts.append(position)
                position += len(sentence)
                ends.append(position)
                parts.append(characters(np.array(sentence)))
            parts.append("\uffff")  # segments never contain this
            position += 1
        self.text, self.starts, self.ends = "".join(parts), np.array(starts), np.array(ends)
        self.first: dict[str, int] = {}
        for index in range(len(self.text) - GRAM + 1):
            self.first.setdefault(self.text[index : index + GRAM], index)

    def find(self, segment: str, start: int = 0) -> int:
        """Returns the first position of a segment, which must exist."""
        if not start and len(segment) >= GRAM:
            start = self.first[segment[:GRAM]]
        return self.text.index(segment, start)

    def documents_of(self, positions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.document_starts, positions, side="right") - 1

    def stands_elsewhere(self, segment: str, document: int) -> bool:
        """Whether a segment also occurs in another document."""
        end = self.document_starts[document + 1] if document + 1 < len(self.document_starts) else len(self.text)
        return segment in self.text[: self.document_starts[document]] or segment in self.text[end:]


def characters(ids: np.ndarray) -> str:
    # ids of this vocabulary are below the surrogates
    return ids.astype("<u2").tobytes().decode("utf-16-le")


@dataclasses.dataclass(frozen=True)
class Output:
    """A generator's records, and the positions of their segments in the corpus.

    `input_ids`, `text` (before masking) and `is_piece` (a token of A or B) are [R, S]; `row`, `column` and `label` are
    [N] for predictions; all others are [R]. Positions in the corpus are counted in tokens.
    """

    input_ids: np.ndarray
    text: np.ndarray
    is_piece: np.ndarray
    length_a: np.ndarray
    length_b: np.ndarray
    is_random: np.ndarray
    row: np.ndarray
    column: np.ndarray
    label: np.ndarray
    place_a: np.ndarray
    place_b: np.ndarray
    document: np.ndarray


def read(path: str, corpus: Corpus) -> Output:
    lengths = {"input_ids": S, "segment_ids": S, "input_mask": S, "masked_lm_positions": P, "masked_lm_ids": P}
    features = {name: tf.io.FixedLenFeature([length], tf.int64) for name, length in lengths.items()}
    features["masked_lm_weights"] = tf.io.FixedLenFeature([P], tf.float32)
    features["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    columns = {name: values.numpy() for name, values in tf.io.parse_example(records, features).items()}
    row, slot = np.nonzero(columns["masked_lm_weights"])
    column, label = columns["masked_lm_positions"][row, slot], columns["masked_lm_ids"][row, slot]
    text = columns["input_ids"].copy()
    text[row, column] = label
    length_b = columns["segment_ids"].sum(1) - 1
    length_a = columns["input_mask"].sum(1) - length_b - 3
    places = np.arange(S)
    ends = (length_a[:, None] + 1, (length_a + length_b)[:, None] + 2)
    assert (text[:, 0] == CLS_ID).all() and all((text[places == end] == SEP_ID).all() for end in ends)
    is_piece = (places > 0) & (places < ends[1]) & (places != ends[0])
    place_a = [corpus.find(characters(ids[1 : 1 + n])) for ids, n in zip(text, length_a, strict=True)]
    cuts = zip(text, length_a + 2, length_b, strict=True)
    place_b = [corpus.find(characters(ids[start : start + n])) for ids, start, n in cuts]
    return Output(
        columns["input_ids"], text, is_piece, length_a, length_b, columns["next_sentence_labels"][:, 0] == 1,
        row, column, label, np.array(place_a), np.array(place_b), corpus.documents_of(np.array(place_a)),
    )  # fmt: skip


class Bench:
    """Makes and keeps both generators' outputs."""

    def __init__(self, data: pathlib.Path, folder: pathlib.Path):
        self.folder, self.vocab_file = folder, str(data / "vocab/uncased-30522.txt")
        documents = (data / "corpus/english.txt").read_text(encoding="utf-8").split("\n\n")
        self.path = folder / "part.txt"
        self.path.write_text("\n\n".join(filter(str.strip, documents[::EVERY])), encoding="utf-8")
        self.tokenizer = FullTokenizer(self.vocab_file)
        # Tokenization is most of the incumbent's work, and its results are the same each time, so they are cached.
        self.tokenizer.tokenize = functools.cache(self.tokenizer.tokenize)
        self.corpus = Corpus(self.path, self.tokenizer)
        self.made: dict[tuple, Output] = {}
        self.continues = np.array([token.startswith("##") for token in self.tokenizer.vocab])

    def output(self, whose: str, mode: str, seed: int = 1, **changes) -> Output:
        """Returns the output of "ours" or "theirs"."""
        key = (whose, mode, seed, *changes.items())
        if key not in self.made:
            path = f"{self.folder}/{len(self.made)}"
            {"ours": self._ours, "theirs": self._theirs}[whose](path, mode, seed, **changes)
            self.made[key] = read(path, self.corpus)
        return self.made[key]

    def _ours(self, path: str, mode: str, seed: int, **changes) -> None:
        settings = GeneratorSettings(
            input_file=str(self.path), output_file=path, vocab_file=self.vocab_file, max_seq_length=S,
            max_predictions_per_seq=P, random_seed=seed, **(MODES[mode] | changes),
        )  # fmt: skip
        with LocalRunner(1) as runner:
            create_pretraining_data(settings, runner)

    def _theirs(self, path: str, mode: str, seed: int, short_seq_prob: float = 0.1) -> None:
        random.seed(seed)  # n-gram sizes come from the global generator
        instances = incumbent.create_training_instances(
            [str(self.path)], self.tokenizer, incumbent.get_processor_text_fn(False, True), max_seq_length=S,
            short_seq_prob=short_seq_prob, masked_lm_prob=0.15, max_predictions_per_seq=P, rng=random.Random(seed),
            **MODES[mode],
        )  # fmt: skip
        incumbent.write_instance_to_example_files(instances, self.tokenizer, S, P, [path], False, False)


def row_statistics(output: Output, corpus: Corpus) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns statistics of rows: name -> document and category of each item."""
    lengths = {"A": output.length_a, "B": output.length_b}
    every, is_random = np.ones(len(output.document), bool), output.is_random
    predictions = np.bincount(output.row, minlength=len(output.document))
    # A row that does not end at the end of a document is full, unless it was chosen to be short.
    ended = np.isin(output.place_b + output.length_b + 1, [*corpus.document_starts, len(corpus.text)])
    rows = {
        "full rows": (~is_random & ~ended, (output.length_a + output.length_b + 3 == S).astype(int)),
        "rows": (every, np.zeros(len(every), int)),
        "random next": (every, is_random.astype(int)),
        "row length": (every, np.digitize(output.length_a + output.length_b + 3, LENGTHS)),
        "predictions of a row": (every, predictions),
    }
    for name, length in lengths.items():
        place = output.place_a if name == "A" else output.place_b
        front = place - corpus.starts[np.searchsorted(corpus.starts, place, side="right") - 1]
        back = corpus.ends[np.searchsorted(corpus.ends, place + length)] - place - length
        for which, kept in {"": every, ", random next": is_random, ", actual next": ~is_random}.items():
            rows[f"length of {name}{which}"] = (kept, np.digitize(length, LENGTHS))
            rows[f"cut off {name}'s front{which}"] = (kept, np.digitize(front, CUTS))
            rows[f"cut off {name}'s back{which}"] = (kept, np.digitize(back, CUTS))
            rows[f"sides cut of {name}{which}"] = (kept, 2 * (front > 0) + (back > 0))
    return {name: (output.document[kept], category[kept]) for name, (kept, category) in rows.items()}


def masking_statistics(output: Output, continues: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns statistics of predictions, and of words that are masked entirely or in part."""
    found = output.input_ids[output.row, output.column]
    kept, masked = found == output.label, found == MASK_ID
    document = output.document[output.row]
    is_random = ~kept & ~masked
    length = (output.length_a + output.length_b + 3)[output.row]
    items = {
        "actions": (document, np.where(masked, 0, 1 + kept)),
        "places": (document, 10 * output.column // length),
        "random tokens": (document[is_random], found[is_random] // 3000),
        "continuing tokens": (document, continues[output.label].astype(int)),
    }
    # Words are numbered over all rows; [CLS], [SEP] and padding count as words that are never masked.
    before = np.pad(output.is_piece[:, :-1], ((0, 0), (1, 0)))
    starts = ~(output.is_piece & continues[output.text] & before)
    word = np.cumsum(starts.reshape(-1)) - 1
    words = word[-1] + 1
    word_of = word[output.row * S + output.column]
    size = np.minimum(np.bincount(word, minlength=words), 4)
    chosen = np.bincount(word_of, minlength=words)
    actions = [np.bincount(word_of[action], minlength=words) == chosen for action in (masked, kept, is_random)]
    action = np.select(actions, [0, 1, 2], 3)  # 3: different actions within a word
    touched = np.flatnonzero(chosen)
    document = np.repeat(output.document, S)[np.flatnonzero(starts)]
    items["words: size, tokens chosen"] = (document[touched], (5 * size + np.minimum(chosen, 4))[touched])
    items["words: size, action"] = (document[touched], (4 * size + action)[touched])
    edges = np.flatnonzero(np.diff(np.pad(chosen > 0, 1).astype(int)))
    first, end = edges[::2], edges[1::2]
    items["masked words in a row"] = (document[first], np.minimum(end - first, 9))
    return items


def statistics(output: Output, bench: Bench) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return row_statistics(output, bench.corpus) | masking_statistics(output, bench.continues)


def p_values(ours: Output, theirs: Output, bench: Bench) -> dict[str, float]:
    """Returns for every statistic the chance of at least this difference if both distributions are equal."""
    both = statistics(ours, bench), statistics(theirs, bench)
    documents = len(bench.corpus.document_starts)
    result = {}
    for name in both[0]:
        most = 1 + max(category.max(initial=0) for _, category in (side[name] for side in both))
        counts = [
            np.bincount(document * most + category, minlength=documents * most).reshape(documents, most)
            for document, category in (side[name] for side in both)
        ]
        result[name] = hotelling(*_without_rare(*counts))
    return result


def _without_rare(ours: np.ndarray, theirs: np.ndarray, least: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Joins adjacent categories [D, K] until each has `least` items, so that sums are nearly normal."""
    sums, groups, size = (ours + theirs).sum(axis=0), [0], 0
    for index, count in enumerate(sums):
        if size >= least and sums[index:].sum() >= least:
            groups.append(index)
            size = 0
        size += count
    return np.add.reduceat(ours, groups, axis=1), np.add.reduceat(theirs, groups, axis=1)


def hotelling(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the p-value of Hotelling's test that the differences of counts [D, K] have mean 0."""
    items = (ours + theirs).sum(axis=1, keepdims=True)
    used = ((ours - theirs) / np.sqrt(np.maximum(items, 1)))[items[:, 0] > 0]
    mean, covariance = used.mean(axis=0), np.atleast_2d(np.cov(used.T))
    # some sums are equal by construction and have no variance
    rank = np.linalg.matrix_rank(covariance, hermitian=True)
    t_squared = len(used) * mean @ np.linalg.pinv(covariance, hermitian=True) @ mean
    return float(stats.f.sf(t_squared * (len(used) - rank) / (rank * (len(used) - 1)), rank, len(used) - rank))


def main() -> None:
    """Prints p-values: the incumbent's seeds against each other, then ours against the incumbent."""
    with tempfile.TemporaryDirectory() as folder:
        bench, seeds, every = Bench(pathlib.Path(sys.argv[1]), pathlib.Path(folder)), range(1, 9), []
        for mode in MODES:
            outputs = [bench.output("theirs", mode, seed) for seed in seeds]
            null = [p_values(a, b, bench) for a, b in zip(outputs[::2], outputs[1::2], strict=True)]
            ours = [
                p_values(bench.output("ours", mode, seed), bench.output("theirs", mode, seed), bench)
                for seed in seeds[:4]
            ]
            every += [p for found in ours for p in found.values()]
            for name in null[0]:
                columns = " ".join(f"{found[name]:8.1g}" for found in null), " ".join(f"{o[name]:8.1g}" for o in ours)
                print(f"{mode:<7} {name:<34} {columns[0]}   {columns[1]}", flush=True)
        level = FAMILY_LEVEL / len(every)
        print(f"below {level:.1g}: {sum(p < level for p in every)} of {len(every)}")


if __name__ == "__main__":
    main()
