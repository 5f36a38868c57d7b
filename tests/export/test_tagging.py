"""Served tags compared with the trainer's on words that are hard to split, and the words of running text."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.tagging import running_text, tag_schemes
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tokenization import BertTokenizer
from export.kinds import tagging
from tests.bert_tf.tagging import ODD_WORDS, make_task
from tests.conftest import WORDS
from tests.export.exports import ask, export, put_together

# A space would separate two words.
ODD = [*(word for word in ODD_WORDS if " " not in word), "..."]


def drawn_sentences():
    """Returns short, long, very long and unusual sentences, and a single word."""
    rng = np.random.default_rng(1)
    plain = [rng.choice(WORDS, count).tolist() for count in (1, 5, 24, 25, 60, 700)]
    return [*plain, ["the"] * 90, *(rng.choice(np.array(ODD, object), count).tolist() for count in (1, 6, 30)), ODD]


SENTENCES = drawn_sentences()


def served(folder, vocab_file, length=26, bilstm_head=False, **options):
    """An export, the task, and the trainer's tags and probabilities of SENTENCES."""
    task = make_task(**options)
    model = put_together(folder / "run", vocab_file, task, length, bilstm_head, spread=0.3)
    tokenizer = BertTokenizer(vocab_file)
    split = encoded_split(task, [Sentence(tuple(found), None, 1) for found in SENTENCES], tokenizer, length)
    inputs = task.model_inputs(split.columns, tokenizer, length)
    logits = model(inputs)["logits"]
    tags = task.predicted_tags(split, task.prediction(logits, inputs).numpy())
    ordered = task.distillation.outputs(logits, inputs)
    scores = tf.boolean_mask(tf.reduce_max(tf.nn.softmax(ordered), -1), inputs["read_mask"] > 0).numpy()
    return export(folder / "run"), tags, np.split(scores, np.cumsum([len(found) for found in tags])[:-1])


def assert_equal(answers, tags, scores, sentences=SENTENCES):
    counts = [len(found) for found in tags]
    assert answers["num_words"].tolist() == counts
    longest = max(counts)
    for name, padding in (("words", b""), ("tags", b""), ("start", -1), ("end", -1), ("scores", 0.0)):
        assert answers[name].shape == (len(tags), longest)
        for number, count in enumerate(counts):
            assert (answers[name][number, count:] == padding).all()
    for number, count in enumerate(counts):
        assert [tag.decode() for tag in answers["tags"][number, :count]] == tags[number]
        assert [word.decode() for word in answers["words"][number, :count]] == sentences[number]
        np.testing.assert_allclose(answers["scores"][number, :count], scores[number], atol=1e-5)


@pytest.fixture(scope="module")
def tagger(vocab_file, tmp_path_factory):
    return served(tmp_path_factory.mktemp("tagging"), vocab_file)


@pytest.mark.core
def test_words_get_the_trainers_tags(tagger):
    model, tags, scores = tagger
    texts = [" ".join(found) for found in SENTENCES]
    answers = ask(model, "words", words=texts)
    assert_equal(answers, tags, scores)
    assert len({tag for found in tags for tag in found}) >= 4
    for number, text in enumerate(texts):
        for place in range(len(tags[number])):
            start, end = answers["start"][number, place], answers["end"][number, place]
            assert text[start:end] == SENTENCES[number][place]


@pytest.mark.slow
def test_splits_running_text_with_character_offsets(tagger):
    model = tagger[0]
    text = "Caf\u00e9\t“J. O'Brien's” 😀 (U.S.)  北京"
    words_there = ["Café", "“", "J.", "O'Brien", "'s", "”", "😀", "(", "U.S.", ")", "北", "京"]
    broken = text.encode().replace(b"(", b"\xff(\xe4\xb8")
    spaced = ask(model, "words", words=[" ".join(words_there)])
    for given in (text, broken):
        answers = ask(model, text=[given])
        assert [word.decode() for word in answers["words"][0]] == words_there
        assert [text[a:b] for a, b in zip(answers["start"][0], answers["end"][0], strict=True)] == words_there
        assert answers["tags"].tolist() == spaced["tags"].tolist()
        np.testing.assert_allclose(answers["scores"], spaced["scores"], atol=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Jean-Luc met AT&T, Inc.", "Jean-Luc met AT&T , Inc ."),
        ("The dog's and the dogs' food, it's!", "The dog 's and the dogs ' food , it 's !"),
        ("On 1996-08-22 at 10:30, 1,000.5% (3rd)", "On 1996-08-22 at 10:30 , 1,000.5 % ( 3rd )"),
        ("U.S. e.g. J. R. Smith. So...", "U.S. e.g. J. R. Smith . So ..."),
        ("test中文ab 東京タワー", "test 中 文 ab 東 京 タワー"),
        ("a\u3000b\u00a0c\u2028d\u200be", "a b c d e"),
    ],
)
def test_the_words_of_running_text(text, expected):
    found = running_text.of_sentences(tf.constant([text, "x"]))
    assert [word.decode() for word in found.words[0].numpy()] == expected.split(" ")
    starts, ends = found.starts.numpy(), found.ends.numpy()
    assert [text[a:b] for a, b in zip(starts[:-1], ends[:-1], strict=True)] == expected.split(" ")


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_tags_are_those_of_the_entities(scheme):
    task, rng = make_task(scheme=scheme), np.random.default_rng(0)
    labels = [rng.integers(0, len(task.labels), count) for count in (1, 0, 7, 300, 2, 0)]
    splits = np.cumsum([0, *map(len, labels)])
    found = tagging.tags_of(tf.constant(np.concatenate(labels), tf.int32), tf.constant(splits), task.labels, scheme)
    expected = []
    for ids in labels:
        tags = [task.labels[i] for i in ids]
        expected += tag_schemes.write_tags(tag_schemes.entities(tags), len(tags), scheme)
    assert [tag.decode() for tag in found.numpy()] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"bilstm_head": True, "scheme": "bioes", "length": 5},
     {"features": "weighted_sum_all", "lstm_size": 8, "scheme": "iob1"}],
    ids=str,
)  # fmt: skip
def test_other_heads_and_schemes_are_served(vocab_file, tmp_path, options):
    model, tags, scores = served(tmp_path, vocab_file, **options)
    assert_equal(ask(model, "words", words=[" ".join(found) for found in SENTENCES]), tags, scores)


def of_tokens(model, tokenizer) -> np.ndarray:
    """Returns the probabilities of the second sentence's tokens, and of two tokens of padding."""
    ids = tokenizer.encode([" ".join(SENTENCES[1])])
    row = tf.concat([[tokenizer.cls_id], ids[0], [tokenizer.sep_id, 0, 0]], 0)[tf.newaxis]
    mask = tf.cast(row > 0, tf.int32)
    return model.signatures["tokens"](input_ids=row, input_mask=mask, segment_ids=0 * row)["probabilities"].numpy()


def test_tokens_have_the_probabilities_of_their_words(tagger, tokenizer):
    model, _, scores = tagger
    found = of_tokens(model, tokenizer)
    assert found.shape == (1, len(SENTENCES[1]) + 4, 5)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(found[0, 1:-3].max(-1), scores[1], atol=1e-5)


@pytest.mark.slow
def test_activation_models_read_first_tokens(vocab_file, tokenizer, tmp_path):
    model, _, scores = served(tmp_path, vocab_file, features="last_hidden", lstm_size=8)
    found = of_tokens(model, tokenizer)
    np.testing.assert_allclose(found[0, 1:-3].max(-1), scores[1], atol=1e-5)
    assert not found[0, [0, -3, -2, -1]].any()
    for texts in ([""], [" "], []):
        answers = ask(model, text=texts)
        assert answers["words"].shape == (len(texts), 0) and answers["num_words"].tolist() == [0] * len(texts)
    none = tf.zeros([0, 4], tf.int32)
    assert model.signatures["tokens"](input_ids=none, input_mask=none, segment_ids=none)["probabilities"].shape[0] == 0
