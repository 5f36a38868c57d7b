"""Trains small SentencePiece models, and writes texts in 15 scripts."""

import functools
import io
import pathlib
import random

import sentencepiece

# The first and the last letter of the words in each script.
SCRIPTS = (
    "az", "àž", "αω", "аё", "աֆ", "את", "ءي", "अॐ", "অহ", "அஹ", "กฮ", "აჰ", "កឳ", "ぁゖ", "一亀", "가갛",
)  # fmt: skip


def lines(count: int, seed: int = 1) -> list[str]:
    """Returns lines of frequent words in all scripts."""
    rng = random.Random(seed)
    words = {
        script: ["".join(chr(rng.randint(*map(ord, script))) for _ in range(rng.randint(1, 5))) for _ in range(60)]
        for script in SCRIPTS
    }
    return [" ".join(rng.choices(words[rng.choice(SCRIPTS)], k=rng.randint(1, 9))) + "." for _ in range(count)]


@functools.cache
def model(normalization: str = "nmt_nfkc") -> bytes:
    """Returns the content of a model file of 1,500 pieces."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(3000)), model_writer=file, vocab_size=1500, character_coverage=1.0,
        normalization_rule_name=normalization, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return file.getvalue()


def folder_with_model(folder: pathlib.Path, **options: str) -> str:
    """Writes the only file of a tokenizer: the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(model(**options))
    return str(folder)
