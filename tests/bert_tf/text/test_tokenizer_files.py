"""Every rule in a tokenizer's files of transformers is followed, or refused by name."""

import json
import re

import pytest
import tensorflow as tf

from bert_tf.text import tokenizer_files
from bert_tf.text.tokenizer_rules import SPECIAL_TOKENS, AddedToken, difference
from bert_tf.tokenization import BertTokenizer
from tests.kit import refused

VOCABULARY = [*SPECIAL_TOKENS, "<s>", "</s>", "a", "b", "[E1]"]
CONFIG, JSON, MAP = "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"
MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {token: id_ for id_, token in enumerate(VOCABULARY)}}
STEPS = {"model": MODEL, "normalizer": {"type": "BertNormalizer", "lowercase": True}}
GENERIC = {"tokenizer_class": "TokenizersBackend", "model_input_names": ["input_ids", "token_type_ids"]}


def template(*pair: tuple[str, int]) -> dict:
    """Returns the post-processor whose pairs consist of these tokens or texts with their types."""
    parts = [{"Sequence" if id_ in "AB" else "SpecialToken": {"id": id_, "type_id": type_}} for id_, type_ in pair]
    return {"type": "TemplateProcessing", "single": parts[:3], "pair": parts}


def usual(cls="[CLS]", sep="[SEP]", type_=1) -> dict:
    return template((cls, 0), ("A", 0), (sep, 0), ("B", type_), (sep, type_))


def folder_with(folder, **files) -> str:
    """Writes a vocabulary and JSON files; the names of the files are without ".json"."""
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    for name, entries in files.items():
        (folder / f"{name}.json").write_text(json.dumps(entries))
    return str(folder)


OWN = {"special_tokens": ("[PAD]", "[UNK]", "<s>", "</s>", "[MASK]")}
LEFT, NO_TYPES = {"truncation_side": "left"}, {"has_token_types": False}
LEFT_IN_JSON = {"direction": "Left", "max_length": 9}


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (LEFT, {"tokenizer_config": {"truncation_side": "left"}}),
        (LEFT, {"tokenizer": {**STEPS, "truncation": LEFT_IN_JSON}}),
        ({}, {"tokenizer_config": {"truncation_side": "right"}, "tokenizer": {**STEPS, "truncation": LEFT_IN_JSON}}),
        (NO_TYPES, {"tokenizer_config": {"model_input_names": ["input_ids", "attention_mask"]}}),
        (NO_TYPES, {"tokenizer_config": {"tokenizer_class": "TokenizersBackend"}}),
        ({}, {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}}),
        (NO_TYPES, {"tokenizer_config": GENERIC, "tokenizer": STEPS | {"post_processor": usual(type_=0)}}),
        ({}, {"tokenizer_config": GENERIC, "tokenizer": STEPS | {"post_processor": usual()}}),
        (OWN, {"tokenizer_config": GENERIC, "tokenizer": STEPS | {"post_processor": usual("<s>", "</s>")}}),
        (OWN, {"tokenizer_config": GENERIC, "tokenizer": STEPS | {
            "post_processor": {"type": "BertProcessing", "cls": ["<s>", 5], "sep": ["</s>", 6]}}}),
        # BERT's classes make the usual rows. They ignore the post-processor in tokenizer.json.
        ({}, {"tokenizer_config": {"do_lower_case": True}, "tokenizer": STEPS | {"post_processor": None}}),
        (OWN, {"tokenizer_config": {"cls_token": "<s>", "sep_token": {"content": "</s>", "lstrip": False}}}),
        (OWN, {"tokenizer_config": {"cls_token": "[CLS]"},
               "special_tokens_map": {"cls_token": "<s>", "sep_token": "</s>"}}),
        ({}, {"tokenizer_config": {"added_tokens_decoder": {}}, "special_tokens_map": {"cls_token": "<s>"}}),
    ],
)  # fmt: skip
def test_the_form_of_rows_is_read_and_written(tmp_path, form, files):
    rules = tokenizer_files.read(folder_with(tmp_path, **files))
    assert rules.form == form
    expected = ("<s>", "</s>") if form == OWN else ("[CLS]", "[SEP]")
    row = BertTokenizer(rules).row_form
    assert (VOCABULARY[row["cls_id"]], VOCABULARY[row["sep_id"]]) == expected
    (tmp_path / "again").mkdir()
    tokenizer_files.write(str(tmp_path / "again"), rules, 9)
    again = tokenizer_files.read(str(tmp_path / "again"))
    assert again == rules and again.facts == rules.facts
    plain = tokenizer_files.read(folder_with(tmp_path / "again", tokenizer_config={"do_lower_case": True}))
    assert len(plain.facts) == 4 and bool(difference(rules.facts, plain.facts)) == bool(form)
    assert bool(difference(plain.facts, rules.facts)) == bool(form)


@pytest.mark.parametrize(
    ("message", "files"),
    [
        ("tokenizer.json: post_processor makes other rows than", {"tokenizer": STEPS | {"post_processor": None}}),
        ("tokenizer.json: post_processor makes other rows than", {"tokenizer_config": GENERIC, "tokenizer": STEPS | {
            "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 5], "sep": ["</s>", 6]}}}),
        ("tokenizer.json: post_processor makes other rows than", {"tokenizer_config": GENERIC, "tokenizer": STEPS | {
            "post_processor": template(("A", 0))}}),
        ("/config.json: tokenizer_class is BertJapaneseTokenizer", {
            "config": {"tokenizer_class": "BertJapaneseTokenizer"}}),
        ('config.json: word_tokenizer_type is "mecab"', {"tokenizer_config": {"word_tokenizer_type": "mecab"}}),
        ('subword_tokenizer_type is "character"', {"tokenizer_config": {"subword_tokenizer_type": "character"}}),
        ('config.json: padding_side is "left"', {"tokenizer_config": {"padding_side": "left"}}),
        ('padding.direction is "Left"', {"tokenizer": STEPS | {"padding": {"direction": "Left"}}}),
        ("split_special_tokens is true", {"tokenizer_config": {"split_special_tokens": True}}),
        ("config.json: auto_map is", {"tokenizer_config": {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}}),
        ('never_split is ["a"]', {"tokenizer_config": {"never_split": ["a"]}}),
        ('special_tokens_map.json: unk_token is "<s>"', {"special_tokens_map": {"unk_token": "<s>"}}),
        ('model.unk_token is "<s>"', {"tokenizer": STEPS | {"model": MODEL | {"unk_token": "<s>"}}}),
        ('model.type is "BPE"', {"tokenizer": STEPS | {"model": {"type": "BPE"}}}),
        ('normalizer.type is "Sequence"', {"tokenizer": STEPS | {"normalizer": {"type": "Sequence"}}}),
        ("normalizer.type is null", {"tokenizer": STEPS | {"normalizer": None}}),
        ("pre_tokenizer.type is null", {"tokenizer": STEPS | {"pre_tokenizer": None}}),
        ("single_word is true for [E1]", {"tokenizer_config": {
            "added_tokens_decoder": {"9": {"content": "[E1]", "single_word": True}}}}),
    ],
)  # fmt: skip
def test_other_rules_are_refused_by_name(tmp_path, message, files):
    folder = folder_with(tmp_path, **files)
    assert "not supported; give another checkpoint, or correct" in refused(re.escape(message), BertTokenizer, folder)
    assert tokenizer_files.read(folder, strict=False).vocabulary == tuple(VOCABULARY)


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map"])
def test_special_tokens_of_the_vocabulary_are_found(tmp_path, name, key):
    tokens = {"first": "[E1]", "second": "[E2]"} if key.startswith("extra") else ["[E1]", {"content": "[E2]"}]
    tokenizer = BertTokenizer(folder_with(tmp_path, **{name: {key: tokens}}))
    assert tokenizer.rules.added_tokens == (AddedToken("[E1]", normalized=False, special=True),)
    assert tokenizer.encode(["a[E1]b"]).to_list() == [[7, 9, 8]]


def test_normalized_tokens_match_normalized_text(tmp_path):
    """As in transformers, the tokens that are not normalized are found before all others."""
    added = [("Café", True), ("New York", True), ("b Café", False), ("中文", True), ("Caf", True)]
    vocabulary = [*VOCABULARY, "cafe", *"cf"]
    decoder = {len(vocabulary) + n: {"content": c, "normalized": each} for n, (c, each) in enumerate(added)}
    folder = folder_with(tmp_path, tokenizer_config={"do_lower_case": True, "added_tokens_decoder": decoder})
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    a, b, cafe, york, exact, ideographs, caf = 7, 8, *range(len(vocabulary), len(vocabulary) + 5)
    texts = {
        "a cafe": ([a, cafe], [(0, 1), (2, 6)]),
        "a Cafe\u0301": ([a, cafe], [(0, 1), (2, 6)]),
        "aCa\u00adFÉb": ([a, cafe, b], [(0, 1), (1, 6), (6, 7)]),
        "new\u00a0YORK": ([york], [(0, 8)]),
        "new\tyork a": ([york, a], [(0, 8), (9, 10)]),
        "b Café b cafe": ([exact, b, cafe], [(0, 6), (7, 8), (9, 13)]),
        "a中文b caf": ([a, ideographs, b, caf], [(0, 1), (1, 3), (3, 4), (5, 8)]),
        "new  york": ([1, 1], [(0, 3), (5, 9)]),
    }
    tokenizer = BertTokenizer(folder)
    for encode in (tokenizer.encode_with_offsets, tf.function(tokenizer.encode_with_offsets)):
        ids, starts, ends = (part.to_list() for part in encode(tf.constant([*texts])))
        for number, (expected, places) in enumerate(texts.values()):
            assert (ids[number], list(zip(starts[number], ends[number], strict=True))) == (expected, places)
    assert tokenizer.encode([*texts]).to_list() == ids
