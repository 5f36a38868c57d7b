"""Served answers compared with the trainer's on real texts; weights are random, since only equality matters."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import description
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tasks.tagging import running_text
from bert_tf.tokenization import BertTokenizer
from export.kinds.questions import ServedQuestions
from export.kinds.tagging import ServedTagging
from tests.bert_tf.tagging import make_task
from tests.bert_tf.tasks.reading import read
from tests.small_configs import small_config

pytestmark = pytest.mark.real
_ROWS = 32


@pytest.fixture(scope="module")
def tokenizer(data_dir):
    return BertTokenizer(str(data_dir / "vocab/uncased-30522.txt"))


def predicted(task, examples, tokenizer, length):
    """Returns a model, the split of the examples, and the trainer's predictions."""
    config = small_config(len(tokenizer.vocabulary), 64, 2, max_position_embeddings=384, initializer_range=0.3)
    model, split = FineTunedBert(config, task.head), encoded_split(task, examples, tokenizer, length)
    inputs, found = task.model_inputs(split.columns, tokenizer, length), []
    for start in range(0, len(split), _ROWS):
        rows = {name: values[start : start + _ROWS] for name, values in inputs.items()}
        found.append(task.prediction(model(rows)["logits"], rows).numpy())
    return model, split, np.concatenate(found)


def test_real_questions_get_the_trainers_answers(data_dir, tokenizer):
    questions = read("questions", data_dir / "squad/xquad-en-dev-v2.0.json", "test")[:200]
    task = SquadTask(Decoding(20, 30, True, exact_offsets=True))
    model, split, logits = predicted(task, questions, tokenizer, 256)
    described = description.describe(task, 256)
    options = {"n_best_size": 20, "max_answer_length": 30, "null_threshold": 0.0}
    described = dataclasses.replace(described, parameters={**described.parameters, **options})
    served = ServedQuestions(model, tokenizer, described, {})
    given = ([question.text for question in questions], [question.context for question in questions])
    found = tf.function(served.answer, autograph=False)(*map(tf.constant, given))
    answers = task.by_example(split, logits)[1]
    assert len(split) > len(questions)
    assert [text.decode() for text in found["answer"].numpy()] == [answer.text(0.0) for answer in answers]
    np.testing.assert_allclose(found["null_odds"], [answer.null_odds for answer in answers], atol=1e-4)


@pytest.mark.parametrize("name", ["wnut17-dev.conll", "conll2002-esp.testa"])
def test_real_words_get_the_trainers_tags(data_dir, tokenizer, name):
    found = read("tagging", data_dir / "ner" / name, repairs=True)[:300]
    # A space within a word would separate two words.
    sentences = [dataclasses.replace(s, tags=None) for s in found if all(word.split() == [word] for word in s.words)]
    task, texts = make_task(), tf.constant([" ".join(sentence.words) for sentence in sentences])
    for length in (128, 20):
        model, split, labels = predicted(task, sentences, tokenizer, length)
        served = ServedTagging(model, tokenizer, description.describe(task, length), {})
        answers = served.answer_words(texts)
        rows = zip(answers["tags"].numpy(), answers["num_words"].numpy(), strict=True)
        assert [row[:count].astype(str).tolist() for row, count in rows] == task.predicted_tags(split, labels)
    found = running_text.of_sentences(texts)
    text = [word.decode() for word in found.words.values.numpy()]
    expected = [word for sentence in sentences for word in sentence.words]
    assert len(set(expected) & set(text)) >= 0.99 * len(set(expected))
