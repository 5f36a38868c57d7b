"""A classifier of another project is predicted with, exported and loaded without a step of training."""

import json
import os

import numpy as np
import pytest

from bert_tf.classifier import TextClassifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.run_classifier import main as run_classifier
from bert_tf.settings import ConversionSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import ask, export, put_together

PAIRS = [("the man said", "he was there"), ("all of you", "they had")]


def take_over(source, target, **settings):
    convert_checkpoint(ConversionSettings(input=str(source), output=str(target), format="bert_tf", **settings))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, vocab_file):
    """The folder of a model as transformers saves it, and the run that it has the weights of."""
    folder = tmp_path_factory.mktemp("theirs")
    put_together(folder / "run", vocab_file, make_task(3), spread=0.3)
    hugging_face = {"input": str(folder / "run"), "output": str(folder / "hf"), "format": "hugging_face"}
    convert_checkpoint(ConversionSettings(**hugging_face))
    os.remove(folder / "hf/conversion.json")
    return folder


@pytest.mark.slow
def test_a_classifier_answers_as_the_model_that_it_was_taken_from(theirs, tmp_path):
    take_over(theirs / "hf", tmp_path / "ours", has_pairs=True, max_seq_length=24, do_lower_case=True)
    expected = TextClassifier.load(str(theirs / "run"))
    ours = TextClassifier.load(str(tmp_path / "ours"))
    assert ours.labels == expected.labels == ("0", "1", "2")
    np.testing.assert_allclose(ours.probabilities(PAIRS), expected.probabilities(PAIRS), atol=1e-6)
    first, second = zip(*PAIRS, strict=True)
    answers = ask(export(tmp_path / "ours"), text_a=first, text_b=second)
    np.testing.assert_allclose(answers["probabilities"], expected.probabilities(PAIRS), atol=1e-5)
    (tmp_path / "test.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in PAIRS))
    paths = [f"--output_dir={tmp_path}/ours", f"--test_data_path={tmp_path}/test.csv"]
    flags = [*paths, "--task_name=own", "--do_predict", "--text_a_column=a", "--text_b_column=b"]
    run_classifier(parse(ClassifierSettings, flags))
    rows = [line.split("\t") for line in (tmp_path / "ours/test_results.tsv").read_text().splitlines()]
    np.testing.assert_allclose(np.array(rows, np.float64), expected.probabilities(PAIRS), atol=1e-5)


def test_what_no_file_states_is_asked_for(theirs, tmp_path, vocab_file, caplog):
    take_over(theirs / "hf", tmp_path / "weights")
    assert not (tmp_path / "weights/task.json").exists()
    assert "to take over its classifier too, give --has_pairs if it reads pairs of texts" in caplog.text
    with pytest.raises(InputError, match="no file states the casing; give --do_lower_case or --nodo_lower_case"):
        take_over(theirs / "hf", tmp_path / "unknown", has_pairs=True)
    config = theirs / "hf/config.json"
    entries = json.loads(config.read_text())
    config.write_text(json.dumps(entries | {"problem_type": "multi_label_classification"}))
    take_over(theirs / "hf", tmp_path / "sets", has_pairs=False, do_lower_case=True)
    assert json.loads((tmp_path / "sets/task.json").read_text())["kind"] == "multi_label"
    config.write_text(json.dumps(entries | {"problem_type": "regression"}))
    with pytest.raises(InputError, match="predicts 3 scores for a text"):
        take_over(theirs / "hf", tmp_path / "scores", has_pairs=False, do_lower_case=True)
    config.write_text(json.dumps(entries))
    write_pretrained(tmp_path / "pretrained", vocab_file)
    with pytest.raises(InputError, match="--has_pairs: .* has no classifier of texts; drop the flag"):
        take_over(tmp_path / "pretrained", tmp_path / "none", has_pairs=True)
    with pytest.raises(InputError, match="--has_pairs is for --format=bert_tf, not for tf1"):
        ConversionSettings(input="a", output="b", format="tf1", has_pairs=True)
