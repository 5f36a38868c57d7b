"""Exports of models with any number of labels per text."""

import json

import numpy as np
import pytest

from bert_tf.classifier import TextClassifier
from bert_tf.tasks.classification import multi_label
from tests.bert_tf.classification import make_task
from tests.export.exports import ask, export, put_together

# The quick tests of exports use classifiers, questions and entities.
pytestmark = pytest.mark.slow

TEXTS = ["the man said", "word", "all of you", "", "they had 中文"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory, vocab_file):
    """The trained model and its export; each threshold is between the probabilities of two texts."""
    run = tmp_path_factory.mktemp("sets") / "run"
    put_together(run, vocab_file, make_task(3, has_pairs=False), spread=0.3)
    described = json.loads((run / "task.json").read_text())
    described |= {"kind": multi_label.MULTI_LABEL, "labels": ["old", "élan", "kind"]}
    (run / "task.json").write_text(json.dumps(described))
    ranked = np.sort(TextClassifier.load(str(run)).probabilities(TEXTS), axis=0)
    multi_label.THRESHOLDS.write(str(run), (ranked[1:4] + ranked[2:5]).diagonal() / 2, 1, described["labels"])
    return TextClassifier.load(str(run)), export(run)


def test_answers_are_the_trainers_and_name_the_labels(pair):
    trained, served = pair
    answers = ask(served, text_a=TEXTS)
    np.testing.assert_allclose(answers["probabilities"], trained.probabilities(TEXTS), atol=1e-6)
    named = [tuple(name.decode() for name in row if name) for row in answers["labels"]]
    assert named == trained.predict(TEXTS)
    assert len({len(row) for row in named}) > 1, "rows are padded"
    assert [tuple(np.array(trained.labels)[row]) for row in answers["predicted"]] == named
