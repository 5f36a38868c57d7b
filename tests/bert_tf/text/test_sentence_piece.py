"""SentencePiece's Unigram models: their files, the tokenizer in eager code and graphs, and rows of pairs."""

import dataclasses
import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tf_keras as keras

from bert_tf.core.errors import InputError
from bert_tf.preprocessing import BertPreprocessor
from bert_tf.text import tokenizer_files
from bert_tf.text.packing import cut_windows, pack
from bert_tf.text.tokenizer_rules import difference
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.text import sentence_pieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sentence_pieces.folder_with_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return BertTokenizer(folder)


def test_ids_are_those_of_the_model_shifted_by_one(tokenizer):
    """As in fairseq: <s>, <pad>, </s> and <unk> are 0 to 3, and <mask> is the last."""
    theirs = sentencepiece.SentencePieceProcessor(model_proto=sentence_pieces.model())
    texts = [*sentence_pieces.lines(300, 5), "", "  ", "Ａ　ﬁ½ a\tb\u00a0c", "e\u0301", "zz☃☃z ☃"]
    expected = [[3 if id_ == 0 else id_ + 1 for id_ in theirs.encode(text)] for text in texts]
    assert tokenizer.encode(texts).to_list() == expected
    assert [tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id] == [0, 1, 2, 3]
    assert tokenizer.mask_id == len(tokenizer.vocabulary) - 1 == theirs.vocab_size() + 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("  ☃ ﬁ", ["☃", "☃", "ﬁ", "ﬁ", "ﬁ"]),
        ("가\tＡ☃", ["가", "Ａ", "Ａ☃"]),
        ("<s>☃<mask>", ["<s>", "☃", "☃", "<mask>"]),
        ("e\u0301☃", ["e", "☃"]),
    ],
)
def test_offsets_are_characters_of_the_source(tokenizer, text, parts):
    """A token that is only U+2581 has the range of the next character; U+2581 adds nothing to the others."""
    ids, starts, ends = (part.to_list()[0] for part in tokenizer.encode_with_offsets([text]))
    found = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert list(dict.fromkeys(found)) == list(dict.fromkeys(parts))
    assert ids == tokenizer.encode([text]).to_list()[0]


@pytest.mark.slow
def test_clear_session_does_not_change_tokens(tokenizer):
    texts = tf.constant([*sentence_pieces.lines(50, 9), "a<mask>b", "e\u0301 ½ ☃", ""])
    expected = tokenizer.encode(texts).to_list()
    keras.backend.clear_session()
    assert tokenizer.encode(texts).to_list() == expected
    assert tf.function(tokenizer.encode)(texts).to_list() == expected
    assert [row.to_list() for row in tf.data.Dataset.from_tensors(texts).map(tokenizer.encode)] == [expected]


@pytest.mark.slow
def test_a_saved_model_gives_the_same_tokens(tmp_path, tokenizer):
    texts = tf.constant([*sentence_pieces.lines(50, 9), "a<mask>b", "e\u0301 ½ ☃", ""])
    expected = tokenizer.encode(texts)

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def tokens(self, texts):
            return self.tokenizer.encode(texts).to_tensor(-1)

    tf.saved_model.save(Module(), str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).tokens(texts), expected.to_tensor(-1))


@pytest.mark.slow
def test_a_keras_model_with_the_tokenizer_is_saved(tmp_path, folder):
    layer = BertPreprocessor(folder, 16)
    texts = keras.Input((), dtype=tf.string)
    model = keras.Model(texts, layer(texts)["input_ids"])
    values = tf.constant([*sentence_pieces.lines(5), "<mask>"])
    expected = model(values)
    for name in ("model", "model.keras"):
        model.save(tmp_path / name)
        np.testing.assert_array_equal(keras.models.load_model(tmp_path / name)(values), expected)


def test_the_written_files_give_the_same_rules(tmp_path, tokenizer):
    tokenizer_files.write(str(tmp_path), tokenizer.rules, 99)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    again = tokenizer_files.read(str(tmp_path))
    assert again == tokenizer.rules and again.facts == tokenizer.rules.facts
    assert json.dumps(again.facts) and len(json.dumps(again.facts)) < 3000
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["cls_token"] == "<s>" and config["model_max_length"] == 99


@pytest.mark.parametrize("name", ["tokenizer.json", "sentencepiece.bpe.model"])
def test_the_models_type_decides_without_a_class(tmp_path, folder, tokenizer, name):
    """The files of xlm-roberta-base name no class; those of camembert-base neither, but its ids are others."""
    tokenizer_files.write(str(tmp_path), tokenizer.rules, 9)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    if name != "tokenizer.json":
        (tmp_path / "tokenizer.json").unlink()
        sentence_pieces.folder_with_model(tmp_path)
    assert BertTokenizer(str(tmp_path)).rules == tokenizer.rules
    (tmp_path / "config.json").write_text('{"model_type": "camembert"}')
    with pytest.raises(InputError, match="tokenizer_class is camembert, which is not supported"):
        BertTokenizer(str(tmp_path))


@pytest.mark.parametrize("changes", [{"scores": (0.5,)}, {"charsmap": ""}, {"splits_at_all_spaces": False}])
def test_another_model_is_another_tokenizer(tokenizer, changes):
    rules = tokenizer.rules
    other = dataclasses.replace(rules, unigram=rules.unigram._replace(**changes))
    assert "unigram=" in difference(rules.facts, other.facts) and not difference(rules.facts, dict(rules.facts))


def test_rows_have_two_separators_between_texts(tokenizer):
    rows = pack(
        tf.ragged.constant([[10, 11], [10] * 9, [10]]), tf.ragged.constant([[20], [20] * 9, []], dtype=tf.int32),
        max_seq_length=9, **tokenizer.row_form,
    )  # fmt: skip
    assert rows["input_ids"].numpy().tolist() == [
        [0, 10, 11, 2, 2, 20, 2, 1, 1], [0, 10, 10, 10, 2, 2, 20, 20, 2], [0, 10, 2, 1, 1, 1, 1, 1, 1],
    ]  # fmt: skip
    assert rows["input_mask"].numpy().sum(1).tolist() == [7, 9, 3]
    assert not rows["segment_ids"].numpy().any()
    a, b, _ = cut_windows(
        tf.ragged.constant([[10]]), tf.ragged.constant([[*range(20, 30)]]), max_seq_length=9, stride=0, separators=2
    )
    assert a.to_list() == [[10]] * len(b.to_list()) and {len(row) for row in b.to_list()} == {4}


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("tokenizer_class is T5Tokenizer", {"tokenizer_config": {"tokenizer_class": "T5Tokenizer"}}),
        ("the steps are NFKC, WhitespaceSplit, Metaspace", {"normalizer": {"type": "NFKC"}}),
        ("the steps are Precompiled, Metaspace", {"pre_tokenizer": {"type": "Metaspace"}}),
        ('pre_tokenizer is {"type": "Metaspace", "prepend_scheme": "first"}', {"pre_tokenizer": {
            "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "prepend_scheme": "first"}]}}),
        ("post_processor makes other rows", {"post_processor": None}),
        ("model.byte_fallback is true", {"model": {"byte_fallback": True}}),
    ],
)  # fmt: skip
def test_other_rules_of_unigram_are_refused(tmp_path, tokenizer, message, changes):
    tokenizer_files.write(str(tmp_path), tokenizer.rules, 9)
    for name in ("tokenizer", "tokenizer_config"):
        entries = json.loads((tmp_path / f"{name}.json").read_text())
        own = changes.get(name, changes if name == "tokenizer" else {})
        own = {key: entries[key] | value if key == "model" else value for key, value in own.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps(entries | own))
    with pytest.raises(InputError) as refused:
        BertTokenizer(str(tmp_path))
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"\x0a\xff\xff"])
def test_a_damaged_model_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(content)
    with pytest.raises(InputError, match=f"{tmp_path}") as refused:
        BertTokenizer(str(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "????"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAEAAD/////"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": 5}},
        {"vocab": [["<unk>"]]}, {"vocab": [["<unk>", "x"]]}, {"vocab": [["", 0.5]]}, {"vocab": [[5, 0.5]]},
        {"vocab": []}, {"vocab": {"a": 1}}, {"unk_id": 5000}, {"unk_id": None},
    ],
)  # fmt: skip
def test_a_damaged_tokenizer_json_is_refused(tmp_path, tokenizer, changes):
    tokenizer_files.write(str(tmp_path), tokenizer.rules, 9)
    entries = json.loads((tmp_path / "tokenizer.json").read_text())
    own = {name: value for name, value in changes.items() if name == "normalizer"}
    entries["model"] |= changes if not own else {}
    (tmp_path / "tokenizer.json").write_text(json.dumps(entries | own))
    with pytest.raises(InputError, match=f"{tmp_path}") as refused:
        BertTokenizer(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_casing_flags_are_refused(folder):
    with pytest.raises(InputError, match="the map in a Unigram model normalizes texts; remove --do_lower_case"):
        BertTokenizer(folder, do_lower_case=True)
