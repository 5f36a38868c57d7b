"""Tagging tasks and sentences for tests."""

import numpy as np

from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tasks.tagging.tagging_task import TaggingTask, labels_of

# Removed by the tokenizer, unknown, long, many tokens, other scripts, emoji, an apostrophe, spaces inside.
ODD_WORDS = [
    "\u200b", "\u0301", "中文", "x" * 50, "x" * 450, "abcdefghijklmnop", "日本x",
    "🏳️‍🌈", "O'Neill's", "a b", "Æø", "\x07", "U.S.",
]  # fmt: skip


def make_task(types=("LOC", "PER"), scheme="iob2", **options) -> TaggingTask:
    return TaggingTask(labels_of(types, scheme), scheme, **options)


def sentences(vocabulary, count, seed=0, longest=12, documents_of=0) -> list[Sentence]:
    """Returns random words, where a name follows "mr" and a place follows "in", so that a tagger can learn both."""
    rng = np.random.default_rng(seed)
    words = [word for word in vocabulary if word.isalpha() and len(word) > 2]
    found, line = [], 1
    for number in range(count):
        drawn = rng.choice(words, rng.integers(1, longest + 1)).tolist()
        tags = ["O"] * len(drawn)
        for place in range(len(drawn) - 2):
            choice = rng.random()
            if choice < 0.15 and tags[place] == "O":
                drawn[place], tags[place + 1], tags[place + 2] = "he", "B-PER", "I-PER"
            elif choice < 0.3 and tags[place] == "O":
                drawn[place], tags[place + 1] = "in", "B-LOC"
        starts = bool(documents_of) and number % documents_of == 0
        found.append(Sentence(tuple(drawn), tuple(repaired(tags)), line, starts_document=starts))
        line += len(drawn) + 1
    return found


def repaired(tags: list[str]) -> list[str]:
    """Drops an I tag if another entity has overwritten its entity."""
    return [
        "O" if tag[0] == "I" and (not i or tags[i - 1][1:] != tag[1:] or tags[i - 1] == "O") else tag
        for i, tag in enumerate(tags)
    ]


def write(path, found: list[Sentence], columns="{word} {tag}") -> None:
    lines = []
    for sentence in found:
        if sentence.starts_document:
            lines += ["-DOCSTART- O", ""]
        lines += [columns.format(word=w, tag=t) for w, t in zip(sentence.words, sentence.tags, strict=True)]
        lines.append("")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
