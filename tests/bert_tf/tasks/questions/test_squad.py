"""Windows, answers and metric of SQuAD beside tf-models-official's code, on texts that are hard to align."""

import collections
import dataclasses
import gzip
import json
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.data import squad_lib
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0
from official.nlp.tools.tokenization import FullTokenizer

from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.questions import squad_results, squad_windows
from bert_tf.tasks.questions.squad_answers import Candidate, Decoding, SpanAnswers
from bert_tf.tasks.questions.squad_file import Answer, Question
from bert_tf.tasks.questions.squad_source import question_data
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tokenization import BertTokenizer
from tests import kit
from tests.bert_tf.original_tokenizer import ALPHABETS, SPECIAL_TOKENS
from tests.bert_tf.tasks.questions.hard_texts import HARD, LONG
from tests.bert_tf.tasks.reading import read
from tests.kit import refused

LENGTH, STRIDE, QUERY = 32, 8, 10


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizers(request, tmp_path_factory):
    """Our tokenizer and the reference's, whose limit for the length of a word is set to the original's."""
    letters = "abcdefghijklmnopqrstuvwxyzABZSP0123456789"
    tokens = [*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters), *".,()'", *"北京大中é", "##ë", "##é"]
    tokens += ["the", "man", "said", "##in", "cafe", "café", "school", "한", "##국", "##ㄱ", "two"]
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    theirs = FullTokenizer(str(path), do_lower_case=request.param)
    theirs.wordpiece_tokenizer.max_input_chars_per_word = 200
    return BertTokenizer(str(path), request.param), theirs


def paragraph(context, answers, number, **more) -> dict:
    qas = [
        {"id": f"{number}-{i}", "question": f"who said {i}, the man or é?" + " so" * (i % 12),
         "answers": [{"text": text, "answer_start": context.index(text)}], **more}
        for i, text in enumerate(answers)
    ]  # fmt: skip
    return {"context": context, "qas": qas}


def random_paragraphs(count):
    rng = random.Random(3)
    for number in range(count):
        parts = rng.sample([*ALPHABETS, "the man said ", "a b c d "], 4)
        context = "".join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(1, 60)))
        cuts = [sorted(rng.sample(range(len(context) + 1), 2)) for _ in range(3)]
        answers = [context[a:b] for a, b in cuts if context[a:b].strip()]
        yield paragraph(context, answers, f"random {number}")


def write(path, *paragraphs) -> str:
    return str(kit.write(path, json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]})))


def write_vocabulary(folder, characters) -> BertTokenizer:
    return BertTokenizer(str(kit.write(folder / "vocab.txt", "\n".join([*SPECIAL_TOKENS, *characters, ""]))))


def hard_paragraphs() -> list[dict]:
    return [paragraph(context, answers, i) for i, (context, answers) in enumerate(HARD)]


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    impossible = [{"id": "none", "question": "why?", "answers": [], "is_impossible": True}]
    paragraphs = [*hard_paragraphs(), *random_paragraphs(150), {"context": LONG, "qas": impossible}]
    for entry in paragraphs:
        for question in entry["qas"]:
            question.setdefault("is_impossible", False)
    return write(tmp_path_factory.mktemp("hard") / "hard.json", *paragraphs)


def features_of(examples, theirs, training: bool) -> list:
    found = []
    squad_lib.convert_examples_to_features(
        examples, theirs, LENGTH, STRIDE, QUERY, training, lambda feature, is_padding=False: found.append(feature),
        batch_size=1,
    )  # fmt: skip
    unique = {feature.unique_id: feature for feature in found}
    return list(unique.values())


def make_task(path, **decoding) -> SquadTask:
    paths = dict.fromkeys(("train", "dev", "test"), (path,))
    data = question_data(paths, decoding.get("has_unanswerable", False))
    return SquadTask(Decoding(**decoding), doc_stride=STRIDE, max_query_length=QUERY, data=data)


def has_spaces(question) -> bool:
    """Whether white space separates all words; elsewhere, we do not follow the original (see the tests of Chinese)."""
    return not re.search(
        "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]", question.context
    )


@pytest.mark.quick_cases("uncased")
def test_rows_and_labels_are_those_of_the_reference(hard, tokenizers, caplog):
    ours, theirs = tokenizers
    task = make_task(hard, has_unanswerable=True)
    examples = squad_lib.read_squad_examples(hard, True, True)
    questions = task.data.read("train")
    assert [question.id for question in questions] == [example.qas_id for example in examples]
    split = encoded_split(task, questions, ours, LENGTH)
    features = features_of(examples, theirs, training=True)
    assert split.example_ids.tolist() == [feature.example_index for feature in features]
    inputs = task.model_inputs(split.columns, ours, LENGTH)
    for name in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(inputs[name], [getattr(feature, name) for feature in features], err_msg=name)
    labeled = split.columns["has_label"].numpy() == 1
    assert labeled.mean() > 0.95
    labeled &= np.array(list(map(has_spaces, questions)))[split.example_ids]
    assert labeled.mean() > 0.3
    for name in ("start_positions", "end_positions"):
        wanted = np.array([getattr(feature, name.removesuffix("s")) for feature in features])
        np.testing.assert_array_equal(split.columns[name].numpy()[labeled], wanted[labeled], err_msg=name)
    assert np.sum(split.columns["start_positions"].numpy() > 0) > 100
    several = collections.Counter(split.example_ids.tolist())
    assert max(several.values()) > 10, "long contexts have many windows"


@pytest.mark.parametrize(
    ("answer", "start", "token"), [("中国", 3, 3), ("中国", 12, 12), ("北京", 23, 23), ("大", 15, 15)]
)
def test_without_spaces_the_answer_is_at_its_start(answer, start, token, tmp_path):
    """The context is one word for google-research/bert, which would take the first occurrence of the answer."""
    context = "北京是中国的首都。上海是中国最大的城市，人口在北京之上。"
    tokenizer = write_vocabulary(tmp_path, sorted(set(context)))
    question = Question("1", "？", context, (Answer(answer, start),))
    columns = squad_windows.encode_questions([question], tokenizer, 64, 32, 8)
    first = columns["start_positions"].numpy().item() - 2 - columns["segment_a"].row_lengths().numpy().item()
    assert columns["token_starts"].numpy()[0, first] == token


def test_without_spaces_an_answer_with_unk_is_exact(tmp_path):
    tokenizer = write_vocabulary(tmp_path, "北京是中国的首都")
    data = paragraph("北京是権中国的首都", ["是"], 0)
    data["qas"] = [{"id": "1", "question": "是"}]
    task = make_task(write(tmp_path / "a.json", data))
    split = encoded_split(task, task.data.read("test"), tokenizer, LENGTH)
    logits = np.full([1, LENGTH, 2], -9, np.float32)
    logits[0, 3 + 3, 0] = logits[0, 3 + 4, 1] = 9.0  # the unknown character and the next one
    _, answers = task.by_example(split, logits)
    assert answers[0].text(0.0) == "権中"


Result = collections.namedtuple("Result", "unique_id start_logits end_logits")


def logits_for(features, rng) -> np.ndarray:
    """Random logits with ties, with high logits on some [CLS], and with very low logits on padding."""
    logits = np.round(rng.normal(size=(len(features), LENGTH, 2)), 1).astype(np.float32)
    logits[rng.random(len(features)) < 0.3, 0] += 2
    mask = np.array([feature.input_mask for feature in features])
    return np.where(mask[:, :, None] > 0, logits, np.float32(-1e9))


@pytest.mark.quick_cases("uncased-3-v2.0", "cased-3-v1.1")
@pytest.mark.parametrize(
    ("n_best_size", "has_unanswerable"), [(3, False), (3, True), (20, True)], ids=["3-v1.1", "3-v2.0", "20-v2.0"]
)
def test_prediction_files_equal_the_references(hard, tokenizers, tmp_path, has_unanswerable, n_best_size):
    ours, theirs = tokenizers
    examples = squad_lib.read_squad_examples(hard, False, has_unanswerable)
    features = features_of(examples, theirs, training=False)
    logits = logits_for(features, np.random.default_rng(1))
    results = [
        Result(feature.unique_id, *(row[:, side].astype(float).tolist() for side in (0, 1)))
        for feature, row in zip(features, logits, strict=True)
    ]
    with_rows = {feature.example_index for feature in features}
    examples_with_rows = [example for i, example in enumerate(examples) if i in with_rows]
    numbers = {index: number for number, index in enumerate(sorted(with_rows))}
    for feature in features:
        feature.example_index = numbers[feature.example_index]
    expected = squad_lib.postprocess_output(
        examples_with_rows, features, results, n_best_size, 7, ours.do_lower_case, has_unanswerable, 0.5
    )
    task = make_task(hard, n_best_size=n_best_size, max_answer_length=7, has_unanswerable=has_unanswerable)
    split, answers = task.by_example(encoded_split(task, task.data.read("test"), ours, LENGTH), logits)
    paths = squad_results.write_predictions(str(tmp_path), split.examples, answers, 0.5)
    assert len(paths) == 2 + has_unanswerable
    found = [json.loads(open(path).read()) for path in paths]
    for got, wanted in zip(found, expected, strict=False):
        assert len(wanted) > 300
        compared = [question.id for question in split.examples if has_spaces(question)]
        assert len(compared) > 50 and all(got[id_] == wanted[id_] for id_ in compared)
    assert len(set(found[0].values())) > 150
    assert ("" in found[0].values()) == has_unanswerable


@pytest.mark.quick_cases("cased")
def test_a_context_without_a_token_is_answered_too(tokenizers, tmp_path):
    contexts = enumerate(["", " \t", LONG])
    path = write(tmp_path / "a.json", *({"context": c, "qas": [{"id": str(i), "question": ""}]} for i, c in contexts))
    for has_unanswerable, empty in ((False, "empty"), (True, "")):
        task = make_task(path, has_unanswerable=has_unanswerable)
        split = encoded_split(task, task.data.read("test"), tokenizers[0], LENGTH)
        _, answers = task.by_example(split, np.zeros([len(split), LENGTH, 2], np.float32))
        texts = [found.text(0.0) for found in answers]
        assert texts[:2] == [empty, empty] and texts[2]
    only = [question for question in task.data.read("test") if question.id != "2"]
    refused("the context of each of the 2 questions is empty", encoded_split, task, only, tokenizers[0], LENGTH)


@pytest.mark.quick_cases("uncased")
def test_exact_offsets_cut_answer_from_context(hard, tokenizers):
    task = make_task(hard, exact_offsets=True, max_answer_length=1000)
    questions = [
        q for q in read("questions", hard, has_unanswerable=True) if q.answers and q.text.startswith("who said")
    ]
    split = encoded_split(task, questions, tokenizers[0], LENGTH)
    columns = {name: split.columns[name].numpy() for name in ("start_positions", "end_positions")}
    logits = np.full([len(split), LENGTH, 2], -5, np.float32)
    rows = np.arange(len(split))
    logits[rows, columns["start_positions"], 0] = logits[rows, columns["end_positions"], 1] = 9
    # A window that lacks the answer has its label on [CLS].
    _, answers = task.by_example(split, logits)
    exact = 0
    for question, found in zip(questions, answers, strict=True):
        for candidate in found.candidates:
            if candidate.text:
                start, end = candidate.offsets
                assert question.context[start:end] == candidate.text
        exact += found.candidates[0].text == question.answers[0].text
    named = {question.id: found.candidates[0].text for question, found in zip(questions, answers, strict=True)}
    assert named["0-0"] == "café" and named["0-4"] == "São Paulo" and named["1-0"] == "two  three"
    assert named["2-0"] == "大学" and named["3-2"] == "it" and named["5-0"] == "the"
    assert exact > 100


def dataset_of(questions) -> list[dict]:
    qas = [{"id": q.id, "answers": [{"text": answer.text} for answer in q.answers]} for q in questions]
    return [{"paragraphs": [{"qas": qas}]}]


def by_id(questions, values) -> dict:
    return dict(zip((question.id for question in questions), values, strict=True))


def graded(rng, with_none: bool):
    texts = ["the man", "a man", "Paris, France", "in 1895", "", "that", "Zoë's café", "man man"]
    questions, answers = [], []
    for number in range(60):
        known = (
            [] if with_none and number % 3 == 0 else [Answer(rng.choice(texts[:4]), 0) for _ in range(1 + number % 3)]
        )
        questions.append(Question(str(number), "?", "", tuple(known), not known))
        best = Candidate(rng.choice([text for text in texts if text]), 0.0, 0.0)
        answers.append(SpanAnswers((best, Candidate("", 0.0, 0.0)), round(rng.gauss(0, 2), 1 if number % 2 else 6)))
    return questions, answers


def test_scores_are_the_official_ones():
    rng = random.Random(0)
    questions, answers = graded(rng, with_none=False)
    texts = [found.best_text for found in answers]
    official = squad_evaluate_v1_1.evaluate(dataset_of(questions), by_id(questions, texts))
    found = squad_results.scores(questions, texts, has_unanswerable=False)
    assert found == pytest.approx({"f1": official["final_f1"], "exact_match": official["exact_match"]})
    questions, answers = graded(rng, with_none=True)
    texts = [found.text(0.3) for found in answers]
    official = squad_evaluate_v2_0.evaluate(dataset_of(questions), by_id(questions, texts))
    found = squad_results.scores(questions, texts, has_unanswerable=True)
    names = {"f1": "f1", "exact_match": "exact", "HasAns_f1": "HasAns_f1", "HasAns_exact_match": "HasAns_exact",
             "NoAns_f1": "NoAns_f1", "NoAns_exact_match": "NoAns_exact"}  # fmt: skip
    assert found == pytest.approx({ours: official[theirs] / 100 for ours, theirs in names.items()})
    assert 0.2 < found["f1"] < 0.8


@pytest.mark.slow
def test_the_tuned_threshold_has_the_best_f1():
    def f1(threshold):
        texts = [found.text(threshold) for found in answers]
        return squad_results.scores(questions, texts, has_unanswerable=True)["f1"]

    for seed in range(5):
        questions, answers = graded(random.Random(seed), with_none=True)
        odds = [found.null_odds for found in answers]
        best = squad_results.best_threshold(questions, answers)
        assert f1(best) == pytest.approx(max(map(f1, [*odds, min(odds) - 1])))
        best_texts = by_id(questions, [found.best_text for found in answers])
        # the official search may separate equal odds
        official = squad_evaluate_v2_0.evaluate(dataset_of(questions), best_texts, by_id(questions, odds))
        assert official["final_f1"] / 100 >= f1(best) - 1e-12
        distinct = [value + number * 1e-9 for number, value in enumerate(odds)]
        answers = [dataclasses.replace(a, null_odds=value) for a, value in zip(answers, distinct, strict=True)]
        official = squad_evaluate_v2_0.evaluate(dataset_of(questions), best_texts, by_id(questions, distinct))
        best = squad_results.best_threshold(questions, answers)
        assert f1(best) == pytest.approx(official["final_f1"] / 100, abs=1e-12)
        sides = [[value <= at for value in distinct] for at in (best, official["final_f1_thresh"])]
        assert sides[0] == sides[1] and best not in distinct
    # If all questions are unanswerable, no answer is predicted, which the official search cannot express.
    none = [Question(str(i), "?", "", (), True) for i in range(3)]
    answers = [SpanAnswers((Candidate("x", 0.0, 0.0),), odds) for odds in (-2.0, 0.0, 3.0)]
    assert squad_results.best_threshold(none, answers) < -2
    # equal odds: both questions are answered, or neither
    one = [Question("0", "?", "man", (Answer("man", 0),), False), Question("1", "?", "", (), True)]
    one.append(dataclasses.replace(one[1], id="2"))
    answers = [SpanAnswers((Candidate("man", 0.0, 0.0),), 1.0)] * 3
    assert squad_results.best_threshold(one, answers) < 1


def test_answers_not_at_offset_are_counted_and_named(tmp_path, caplog):
    good = [paragraph("the man said so", ["man"], f"good {i}") for i in range(3)]
    wrong = [paragraph("the man said so", ["man"], f"wrong {i}") for i in range(4)]
    for entry, start in zip(wrong, (9, -4, 900, 13), strict=True):
        entry["qas"][0]["answers"][0]["answer_start"] = start
    good[2]["qas"][0]["answers"][0]["answer_start"] = 5  # within a word, which the original accepts
    path = write(tmp_path / "train.json", *good, *wrong)
    task = make_task(path)
    assert [question.id for question in task.data.read("train")] == [f"good {i}-0" for i in range(3)]
    line = f"{path}: the answers of 4 of 7 questions are not at their answer_start and are left out of training: wrong"
    assert line in caplog.text and "wrong 3-0" in caplog.text
    assert len(task.data.read("dev")) == 7
    assert "do not affect the loss, but count in the metrics: wrong 0-0" in caplog.text
    refused("no answer is at its answer_start", make_task(write(tmp_path / "b.json", *wrong)).data.read, "train")
    assert "no-break space" not in caplog.text
    spaced = paragraph("the man said 10\u00a0000 so", ["10\u00a0000"], "spaced")
    make_task(write(tmp_path / "spaced.json", *good, spaced)).data.read("train")
    assert "spaced-0; as in the original, an answer with a no-break space or other" in caplog.text
    alone = make_task(write(tmp_path / "spaced.json", spaced))
    refused("from 0; as in the original, an answer with a no-break space", alone.data.read, "train")


QA = {"id": "1", "question": "who?", "answers": [{"text": "man", "answer_start": 4}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no such file; check its path"),
        ("", "a.json: is not JSON .*; give a file in SQuAD's layout, or name JSON Lines .jsonl"),
        ("question,context\nwho?,a man\n", "a.json: is not JSON .*line 1 column 1"),
        (b"{\xff", "not UTF-8"),
        (gzip.compress(b"{}", mtime=0), "is compressed with gzip; unpack it"),
        ({"data": []}, "a.json: holds no example"),
        ({"data": [{"title": "x"}]}, r"a.json, data\[0\]: the key 'context' is missing"),
        ([QA], r"data\[0\].paragraphs\[0\]: the key 'context' is missing"),
        ({"qas": [QA | {"id": 3.5}]}, r"qas\[0\]: 3.5 is not a text"),
        ({"qas": [{"id": "1", "answers": []}]}, r"qas\[0\]: the key 'question' is missing"),
        ({"qas": [QA | {"answers": [{"text": "a", "answer_start": "4"}]}]}, r"qas\[0\]: answer_start is '4', which is"),
        ({"qas": [QA | {"answers": "[{'text': 'a'}]"}]}, r"qas\[0\]: answers is the text .*, not a list; write it"),
        ({"qas": [QA, QA | {"id": 1}]}, r"qas\[1\] \(id 1\): .* is also the id of data\[0\].paragraphs\[0\].qas\[0\]"),
        ({"qas": [{"id": "1", "question": "?"}]}, "question 1 has no answers"),
        ({"qas": [QA | {"answers": []}]}, "question 1 has no answer; give --version_2_with_negative"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_their_place(tmp_path, content, message):
    if isinstance(content, dict) and "qas" in content:
        content = {"data": [{"paragraphs": [{"context": "the man said so"} | content]}]}
    if isinstance(content, list):
        content = {"data": [{"paragraphs": [{"qas": content}]}]}
    path = tmp_path / "a.json"
    if content is not None:
        kit.write(path, json.dumps(content) if isinstance(content, dict) else content)
    for split in ("train", "dev"):
        refused(message, make_task(str(path)).data.read, split)
    refused("is a folder, not a file; check its path", make_task(str(tmp_path)).data.read, "train")


def read_one(tmp_path, **changes):
    """The only question of a file of version 2."""
    write(tmp_path / "a.json", {"context": "the man said so", "qas": [QA | changes]})
    (question,) = make_task(str(tmp_path / "a.json"), has_unanswerable=True).data.read("train")
    return question


@pytest.mark.parametrize(
    ("changes", "is_impossible"),
    [
        ({"answers": []}, True),
        ({"answers": [{"text": "", "answer_start": -1}]}, True),
        ({"answers": [{"text": "man", "answer_start": 4}, {"text": " ", "answer_start": None}]}, False),
        ({"is_impossible": True, "answers": [{"text": "man", "answer_start": 4}]}, True),
        ({"is_impossible": "False"}, False),
        ({"is_impossible": "true", "answers": []}, True),
        ({"is_impossible": 0}, False),
        ({"is_impossible": 1, "answers": []}, True),
    ],
)
def test_is_impossible_may_be_missing_or_no_boolean(tmp_path, changes, is_impossible):
    question = read_one(tmp_path, **changes)
    assert question.is_impossible is is_impossible and len(question.answers) == (not is_impossible)


@pytest.mark.parametrize("name", ["list.json", "lines.jsonl", "data.json"])
def test_questions_in_rows_as_pandas_writes_them(tmp_path, name):
    """`answer_start` becomes a float if another row of the column has none."""
    rows = [
        {
            "id": number,
            "context": "the man said so",
            "question": "who?",
            "answers": {"text": [text], "answer_start": [start]},
        }
        for number, text, start in ((1, "man", 4.0), (2, "", None))
    ]
    path = kit.write(tmp_path / name, json.dumps({"data": rows}) if name == "data.json" else rows)
    first, second = make_task(str(path), has_unanswerable=True).data.read("train")
    assert (first.id, first.answers, second.answers, second.is_impossible) == ("1", (Answer("man", 4),), (), True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": [], "is_impossible": False}, "question 1 has no answer; set its is_impossible to true"),
        ({"is_impossible": ""}, r"qas\[0\]: is_impossible is '', which is neither true nor false"),
    ],
)
def test_a_contradicting_question_names_its_key(tmp_path, changes, message):
    refused(message, read_one, tmp_path, **changes)


def test_several_files_keep_their_order(tmp_path, caplog):
    first, second = (write(tmp_path / f"{name}.json", paragraph("the man", ["man"], name)) for name in "ab")
    task = SquadTask(Decoding(), data=question_data({"train": (first, second, first)}, False))
    assert [question.id for question in task.data.read("train")] == ["a-0", "b-0", "a-0"]
    assert "1 ids occur in several of the files a.json, b.json, a.json, for example a-0" in caplog.text
    assert task.data.source.files("train") == [first, second, first]


def test_the_softmax_does_not_see_what_is_no_token():
    task = make_task("")
    batch = {
        "input_mask": tf.constant([[1, 1, 1, 0]]),
        "start_positions": tf.constant([1]),
        "end_positions": tf.constant([2]),
    }
    logits = np.zeros([1, 4, 2], np.float32)
    logits[0, 3] = 50
    found = task.losses(tf.constant(logits), batch)
    np.testing.assert_allclose(found["loss"], [np.log(3)], rtol=1e-6)
    logits[0, 1, 0] = logits[0, 2, 1] = 40
    found = task.losses(tf.constant(logits), batch)
    assert found["loss"] < 1e-6 and found["span_accuracy"] == 1
