"""SentencePiece's Unigram tokenizers give the ids and offsets of transformers' fast tokenizers."""

import itertools
import json
import random
import unicodedata

import pytest
import tensorflow as tf
import transformers
from transformers.convert_slow_tokenizer import XLMRobertaConverter

from bert_tf.preprocessing import BertPreprocessor
from bert_tf.text import tokenizer_files
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.text import sentence_pieces

pytestmark = pytest.mark.torch

ODD = (
    "", " ", "  a  b ", "\tx\ty\n", "a\u00a0b", "ﬁne ½ ①", "Ａ１", "e\u0301 é e\u0302\u0323 \u1ec7", "日本。",
    "a\u200bz\u200cw\u200d", "か\u3099", "\u1112\u1161\u11ab", "😀 👨‍👩‍👧", "▁a▁z", "<s> x </s>", "a<mask>b <mask> c",
    "<unk><pad>x", "İı", "\x00nul", "a\x00<s>b", "\ufeffx", "a" * 60, "az" * 60, "…", "x\x85", "x\x85y \x85", "\x85",
    "“q”", "Ⅷ",
)  # fmt: skip
BLOCKS = (
    (0x20, 0x7E), (0xA0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x5F4), (0x606, 0x6DC),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x11FF), (0x1780, 0x17FF),
    (0x1E00, 0x206F), (0x3000, 0x33FF), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xFB00, 0xFDFF), (0xFE00, 0xFF9D),
    (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF),
)  # fmt: skip


def random_lines(count: int, seed: int) -> list[str]:
    """Returns lines of random characters. No mark begins a text or follows a space."""
    rng, result = random.Random(seed), []
    for _ in range(count):
        blocks = [*rng.sample(BLOCKS, 3), BLOCKS[0]]
        letters = [chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(1, 40))]
        result.append("x" + "".join(" x" if rng.random() < 0.15 else letter for letter in letters))
    return result


def written(folder, kind: str):
    """Returns transformers' tokenizer of the model, and the folder from which ours is read."""
    source = sentence_pieces.folder_with_model(folder / "own")
    if kind == "converted":  # the steps differ from those of XLM-R's class
        slow = type("Slow", (), {"vocab_file": f"{source}/sentencepiece.bpe.model", "add_prefix_space": True})()
        slow.vocab, slow.legacy, ids = {}, True, {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        slow.convert_tokens_to_ids = ids.__getitem__
        roles = dict(
            zip(("cls", "sep", "pad", "unk", "mask"), ("<s>", "</s>", "<pad>", "<unk>", "<mask>"), strict=True)
        )
        theirs = transformers.PreTrainedTokenizerFast(
            tokenizer_object=XLMRobertaConverter(slow).converted(), **{f"{role}_token": t for role, t in roles.items()}
        )
    else:
        theirs = transformers.XLMRobertaTokenizer.from_pretrained(source)
    if kind == "added":
        theirs.add_tokens(
            [transformers.AddedToken("[URL]", special=True), transformers.AddedToken("ﬁAZ", normalized=True)]
        )
    theirs.save_pretrained(folder / "saved")
    return theirs, source if kind == "model" else str(folder / "saved")


def bare(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the range without the white space before a word."""
    while start < end and (text[start].isspace() or text[start] in "\u061c\u200b\u200c\u200e\u200f\ufeff\u2581"):
        start += 1
    return start, end


def has_mark_after_several(text: str) -> bool:
    """Returns whether a mark follows a character that becomes several characters. transformers gives the mark to the
    last of these characters; ours share the character."""
    pairs = itertools.pairwise(text)
    return any(
        (unicodedata.category(mark)[0] == "M" or mark in "\u0e33\u0eb3\u200d")
        and len(unicodedata.normalize("NFKC", before)) > 1
        for before, mark in pairs
    )


@pytest.mark.parametrize("kind", ["model", "saved", "converted", "added"])
def test_ids_and_offsets_equal_theirs(tmp_path, kind):
    theirs, folder = written(tmp_path, kind)
    ours = BertTokenizer(folder)
    texts = [*ODD, *sentence_pieces.lines(1500, 7), *random_lines(3000, 3)]
    texts += ["a [URL]x fiAZ ﬁAZ", "[URL][URL"]
    found = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    encode = tf.function(ours.encode_with_offsets, input_signature=[tf.TensorSpec([None], tf.string)])
    ids, starts, ends = (part.to_list() for part in encode(tf.constant([text.encode() for text in texts])))
    assert ours.encode(texts).to_list() == ids
    different = [ascii(text) for text, own, other in zip(texts, ids, found["input_ids"], strict=True) if own != other]
    assert not different
    for number, (text, expected) in enumerate(zip(texts, found["offset_mapping"], strict=True)):
        if has_mark_after_several(text):
            continue
        places = list(zip(starts[number], ends[number], strict=True))
        usual = [bare(text, *place) for place in expected]
        assert all(a == b or b[0] == b[1] for a, b in zip(places, usual, strict=True)), ascii(text)


def test_rows_and_words_equal_theirs(tmp_path):
    theirs, folder = written(tmp_path, "model")
    ours, rng = BertTokenizer(folder), random.Random(4)
    words = [line.split() for line in [*sentence_pieces.lines(200, 2), "☃ x☃ ½"]]
    for each in words:
        expected = theirs(each, is_split_into_words=True, add_special_tokens=False)
        encoded = ours.encode(each)
        assert encoded.values.numpy().tolist() == expected["input_ids"]
        assert encoded.value_rowids().numpy().tolist() == expected.word_ids()
    firsts, seconds = ([" ".join(rng.choice(words)) for _ in range(100)] for _ in range(2))
    rows = BertPreprocessor(folder, 24)((tf.constant(firsts), tf.constant(seconds)))
    options = {"padding": "max_length", "truncation": "longest_first", "max_length": 24}
    expected = theirs(firsts, seconds, **options)
    assert rows["input_mask"].numpy().tolist() == expected["attention_mask"]
    assert rows["input_ids"].numpy().tolist() == expected["input_ids"]


def test_transformers_reads_our_files(tmp_path):
    for kind in ("model", "converted", "added"):
        theirs, folder = written(tmp_path / kind, kind)
        tokenizer_files.write(str(tmp_path / kind), BertTokenizer(folder).rules, 99)
        again = transformers.AutoTokenizer.from_pretrained(str(tmp_path / kind))
        texts = [*ODD, *sentence_pieces.lines(100, 8), *random_lines(300, 5)]
        assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
        assert again("a b", "c") == theirs("a b", "c") and again.mask_token_id == theirs.mask_token_id
        assert json.loads((tmp_path / kind / "tokenizer_config.json").read_text())["model_max_length"] == 99
