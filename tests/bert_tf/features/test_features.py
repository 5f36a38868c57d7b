"""Vectors of texts in Python, compared with the encoder on single rows and a simple alignment of characters."""

import json
import re
import shutil

import numpy as np
import pytest

from bert_tf.checkpoint_formats.sentence_transformers import is_normalized, pooling_mode, prompt_of
from bert_tf.core.errors import InputError
from bert_tf.features import model
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.pooling import Pooling
from bert_tf.features.texts import text_of_line
from bert_tf.settings.features import VectorSettings
from bert_tf.text.packing import pack
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.conftest import WORDS
from tests.kit import refused, write


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, vocab_file):
    """A folder with a checkpoint of three layers, and its encoder."""
    folder = tmp_path_factory.mktemp("pretrained")
    return str(folder), write_pretrained(folder, vocab_file).encoder


@pytest.fixture(scope="module")
def extractor(pretrained):
    return FeatureExtractor(pretrained[0], layers="-1,0,2,-3", max_seq_length=24)


def alone(encoder, tokenizer, texts, length):
    """Returns the embeddings and layers of each text from one padded row per text: N times [tokens, layers, H]."""
    pairs = [(text, "") if isinstance(text, str) else text for text in texts]
    a, b = (tokenizer.encode([pair[segment] for pair in pairs]) for segment in (0, 1))
    rows = pack(a, b, max_seq_length=length, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    outputs = encoder(rows)
    layers = np.stack([outputs["embedding_output"], *outputs["encoder_outputs"]], axis=2)
    return [row[:used] for row, used in zip(layers, rows["input_mask"].numpy().sum(axis=1), strict=True)]


@pytest.mark.core
def test_packed_rows_have_same_layers_as_single_rows(extractor, pretrained):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(0, 40))) for _ in range(80)]
    texts += [(a, b) for a, b in zip(texts[:20], texts[20:40], strict=True)]
    expected = alone(pretrained[1], extractor.tokenizer, texts, 24)
    for features, layers in zip(extractor.tokens(texts), expected, strict=True):
        np.testing.assert_allclose(features.values, layers[:, [3, 0, 2, 1]], atol=2e-5)


def test_unused_layers_are_removed(pretrained):
    assert len(model.load(FeatureExtractor(pretrained[0], layers="1,0").settings).blocks) == 1


def test_tokens_know_their_word_and_characters(extractor):
    text = "The men's CAFÉ, \U0001f600 only-most waters"
    (features,) = extractor.tokens([text])
    assert features.tokens[0] == "[CLS]" and features.tokens[-1] == "[SEP]"
    for name in ("words", "starts", "ends"):
        assert getattr(features, name)[0] == getattr(features, name)[-1] == -1
    expected_words = re.findall(r"\w+|[^\w\s]", text)
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    assert [text[s:e] for s, e in spans] == expected_words
    for token, word, start, end in list(
        zip(features.tokens, features.words, features.starts, features.ends, strict=True)
    )[1:-1]:
        first, last = spans[word]
        assert first <= start < end <= last
        if token != "[UNK]":
            assert text[start:end].lower().replace("é", "e") == token.removeprefix("##")
    assert sorted(set(features.words[1:-1].tolist())) == list(range(len(spans)))
    # each word is covered from its first to its last character
    for number, span in enumerate(spans):
        own = features.words == number
        assert (features.starts[own].min(), features.ends[own].max()) == span


def test_the_second_text_counts_its_own_words(extractor):
    (features,) = extractor.tokens([("the man", "all, now")])
    assert features.tokens == ["[CLS]", "the", "man", "[SEP]", "all", ",", "now", "[SEP]"]
    assert features.words.tolist() == [-1, 0, 1, -1, 0, 1, 2, -1]
    assert features.starts.tolist() == [-1, 0, 4, -1, 0, 3, 5, -1]
    assert features.segment_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_pooling_is_that_of_each_texts_tokens(mode, normalize):
    values = np.random.default_rng(0).standard_normal([9, 2, 5]).astype(np.float32)
    splits = np.array([0, 2, 3, 9])
    pooled = Pooling(mode, normalize)(values, splits)
    for number, (start, end) in enumerate([(0, 2), (2, 3), (3, 9)]):
        own = values[start:end].astype(np.float64)
        expected = {"cls": own[0], "mean": own.mean(axis=0), "max": own.max(axis=0)}[mode]
        if normalize:
            expected /= np.sqrt((expected**2).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(pooled[number], expected, atol=1e-6)


def sentence_transformer(folder, mode, *modules, length=20):
    kinds = ["Transformer", "Pooling", *modules]
    paths = ["", "1_Pooling", *(f"{index}_X" for index in range(2, len(kinds)))]
    entries = [{"type": f"sentence_transformers.models.{k}", "path": p} for k, p in zip(kinds, paths, strict=True)]
    write(folder / "modules.json", entries)
    write(folder / "1_Pooling/config.json", json.dumps({"word_embedding_dimension": 16, **mode}))
    write(folder / "sentence_bert_config.json", json.dumps({"max_seq_length": length}))


@pytest.mark.slow
def test_the_checkpoints_folder_says_how_to_pool(tmp_path, vocab_file):
    write_pretrained(tmp_path, vocab_file)
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
    sentence_transformer(tmp_path, modes, "Normalize")
    extractor = FeatureExtractor(tmp_path, sentence_vectors=True)
    settings = extractor.settings
    assert (settings.pooling, settings.max_seq_length, settings.layers) == ("max", 20, "-1")
    vectors = extractor.sentences(["the men", "all of it"])
    assert vectors.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    # version 6 stores the length in the tokenizer's file
    (tmp_path / "sentence_bert_config.json").write_text("{}")
    for length, expected in ((18, 18), (10**30, 40)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert FeatureExtractor(tmp_path, sentence_vectors=True).settings.max_seq_length == expected
    # flags have priority
    own = FeatureExtractor(tmp_path, pooling="cls", max_seq_length=16).settings
    assert (own.pooling, own.normalize, own.max_seq_length) == ("cls", None, 16)
    sentence_transformer(tmp_path, {"pooling_mode": "mean"})
    assert (pooling_mode(str(tmp_path)), is_normalized(str(tmp_path))) == ("mean", False)
    for mode, modules, message in (
        ({"pooling_mode_mean_sqrt_len_tokens": True}, (), "mean_sqrt_len_tokens; only cls"),
        (modes | {"pooling_mode_cls_token": True}, (), "cls_token and max_tokens"),
        (modes, ("Dense",), "names Dense"),
    ):
        sentence_transformer(tmp_path, mode, *modules)
        with pytest.raises(InputError, match=message):
            (pooling_mode(str(tmp_path)), is_normalized(str(tmp_path)))


def test_another_pooling_keeps_the_other_settings(pretrained, tmp_path):
    folder = shutil.copytree(pretrained[0], tmp_path / "model")
    sentence_transformer(folder, {"pooling_mode": "max"}, "Normalize")

    def resolved(**flags):
        found = model.resolve(VectorSettings(init_checkpoint=str(folder), sentence_vectors=True, **flags))
        return found.pooling, model.pooling_of(found, str(folder)).normalize, found.max_seq_length

    assert resolved(pooling="cls") == ("cls", True, 20)
    assert resolved(normalize=False) == ("max", False, 20)
    sentence_transformer(folder, {"pooling_mode": "max"}, "Dense")
    assert resolved(pooling="cls", normalize=False) == ("cls", False, 20)
    refused("names Dense", resolved, pooling="cls")


def test_refuses_sentence_transformers_text_changes(pretrained, tmp_path):
    folder = shutil.copytree(pretrained[0], tmp_path / "model")
    sentence_transformer(folder, {"pooling_mode": "mean"})
    write(folder / "sentence_bert_config.json", '{"do_lower_case": true}')

    def resolved(**flags):
        return model.resolve(VectorSettings(init_checkpoint=str(folder), **{"do_lower_case": False} | flags))

    refused("do_lower_case, which is not supported for a cased", resolved, sentence_vectors=True)
    assert resolved(pooling="mean").max_seq_length == 40
    assert resolved(sentence_vectors=True, do_lower_case=True).pooling == "mean"


def test_prompts_are_those_of_sentence_transformers(pretrained, tmp_path):
    folder = shutil.copytree(pretrained[0], tmp_path / "model")
    sentence_transformer(folder, {"pooling_mode": "mean"})
    prompts = {"prompts": {"query": "the man ", "none": ""}}
    stated = write(folder / "config_sentence_transformers.json", json.dumps(prompts | {"default_prompt_name": "query"}))
    texts = ["was", "said so"]

    def extractor(**flags):
        return FeatureExtractor(folder, **{"sentence_vectors": True} | flags)

    plain, asked = extractor(prompt="").sentences(texts), extractor().sentences(texts)
    by_hand = extractor(sentence_vectors=False, pooling="mean", prompt="").sentences([f"the man {t}" for t in texts])
    np.testing.assert_allclose(by_hand, asked)
    np.testing.assert_allclose(extractor(prompt_name="none").sentences(texts), plain)
    refused("--prompt_name=other: .* has the prompts query, document, none", extractor, prompt_name="other")
    short = extractor(dimensions=3, normalize=True).sentences(texts)
    np.testing.assert_allclose(short, asked[:, :3] / np.linalg.norm(asked[:, :3], axis=1, keepdims=True), rtol=1e-5)
    refused("--dimensions=99: the model's vectors have", extractor, dimensions=99)
    write(stated, json.dumps({"truncate_dim": 3}))
    cut = extractor()
    assert cut.vector_size == 3 and cut.with_prompt("", dimensions=2).vector_size == 2
    np.testing.assert_allclose(cut.sentences(texts), plain[:, :3])
    write(stated, json.dumps(prompts))
    sentence_transformer(folder, {"pooling_mode": "mean", "include_prompt": False})
    refused("include_prompt is false", extractor)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"layers": "-4"}, "no layer -4; give -3 to 3"),
        ({"layers": "1,x"}, "'x' is not a whole number"),
        ({"layers": [-1, -1.5]}, "--layers=-1,-1.5: '-1.5' is not a whole number"),
        ({"max_seq_length": 41}, "beyond max_position_embeddings=40"),
        ({"max_seq_length": 2}, "at least 3"),
        ({"normalize": True}, "--normalize needs --sentence_vectors or --pooling; add"),
        ({"pooling": "sum"}, "must be one of cls, mean, max"),
        ({"max_length": 24}, "max_length: no such argument; did you mean max_seq_length"),
    ],
)
def test_a_wrong_setting_is_one_line(pretrained, settings, message):
    refused(message, FeatureExtractor, pretrained[0], **{"layers": "-1", **settings})


@pytest.mark.parametrize(
    "texts, message",
    [
        (["a", 3], r"texts\[1\]"), ([("a", "b", "c")], r"texts\[0\]"), ([("a", None)], r"texts\[0\]"),
        ("a text", "texts: is of type str; give a list"), (np.array([["a", "b"]]), "is of type ndarray; give a list"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_texts_is_refused(extractor, texts, message):
    refused(message, extractor.tokens, texts)


def test_pooled_vectors_need_a_pooling(extractor, pretrained):
    refused("no pooling", extractor.sentences, ["a"])
    stated = "1_Pooling/config.json; give --pooling=cls, mean or max"
    refused(stated, FeatureExtractor, pretrained[0], sentence_vectors=True)
    assert FeatureExtractor(pretrained[0], pooling="mean").sentences([]).shape == (0, 16)
    assert extractor.tokens([]) == []


@pytest.mark.parametrize(
    "line, segments, starts",
    [
        ("  the men \r", ("the men",), (2,)),
        ("a ||| b", ("a", "b"), (0, 6)),
        (" a ||| b ||| c", ("a ||| b", "c"), (1, 13)),
        ("a ||| ", ("a |||",), (0,)),
        ("a|||b", ("a|||b",), (0,)),
        ("", ("",), (0,)),
    ],
)
def test_a_line_is_split_as_the_original_does(line, segments, starts):
    text = text_of_line(line, 5)
    # The rule of the original's extract_features.py: split at the last " ||| " of the stripped line.
    found = re.match(r"^(.*) \|\|\| (.*)$", line.strip())
    assert text.segments == (found.groups() if found else (line.strip(),)) == segments
    assert text.starts == starts
    assert all(line[start:].startswith(segment) for segment, start in zip(segments, starts, strict=True))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"prompts": ["query: "]}, "prompts is not an object of texts"),
        ({"prompts": {"query": 7}}, "prompts is not an object of texts"),
        ({"prompts": {}, "default_prompt_name": "query"}, "default_prompt_name is 'query', which prompts does not"),
    ],
)
def test_bad_stated_prompts_are_refused_by_name(entries, message, tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(entries))
    refused(f"config_sentence_transformers.json: {message}", prompt_of, str(tmp_path), "")
