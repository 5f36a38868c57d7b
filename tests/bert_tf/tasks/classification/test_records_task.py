"""Records that tf-models-official's own code wrote."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.run_classifier import main as run_classifier
from bert_tf.tasks.classification import records_task
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.classification import make_task
from tests.bert_tf.tasks.classification.official_records import TEXTS, create
from tests.bert_tf.tasks_of_flags import find_task
from tests.small_configs import small_config


@pytest.fixture(scope="module")
def records(tmp_path_factory, vocab_file):
    return create(tmp_path_factory.mktemp("records"), vocab_file)


def settings(folder, *more: str) -> ClassifierSettings:
    paths = [f"--{split}_data_path={folder}/{split}.tf_record" for split in ("train", "eval", "test")]
    return parse(ClassifierSettings, [f"--input_meta_data_path={folder}/meta.json", "--model_dir=o", *paths, *more])


def test_the_rows_are_those_that_our_own_encoder_makes(records, vocab_file):
    tokenizer, task = BertTokenizer(vocab_file), find_task(settings(records, "--do_train"))
    assert (task.name, task.labels, task.has_pairs, task.answers.score_names) == (
        "MRPC",
        ("0", "1"),
        True,
        ("accuracy", "f1"),
    )
    columns = task.encode(task.data.read("train"), tokenizer, 16)
    ours = make_task(2)
    expected = ours.encode([Example(a, b, str(label)) for a, b, label in TEXTS], tokenizer, 16)
    np.testing.assert_array_equal(columns["label_ids"], expected["label_ids"])
    for name, values in ours.model_inputs(expected, tokenizer, 16).items():
        found = task.model_inputs(columns, tokenizer, 16)[name]
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, values, err_msg=name)


def test_a_trained_run_knows_whether_there_are_pairs_without_its_training_data(records, tmp_path):
    task = find_task(settings(records, "--do_train"))
    description.write(str(tmp_path), description.describe(task, 16))
    (tmp_path / "ckpt-1.index").touch()
    assert find_task(settings(records, "--do_eval", f"--model_dir={tmp_path}", "--train_data_path=none")).has_pairs
    with pytest.raises(InputError, match="none"):
        find_task(settings(records, "--do_train", "--train_data_path=none"))


def test_scores_and_weights_are_read(tmp_path, vocab_file):
    create(tmp_path, vocab_file, is_regression=True, label_type=float, weight_key="weight")
    task = find_task(settings(tmp_path, "--do_train"))
    assert (task.kind == "regression") and task.data.read("train")[0].columns["label_ids"].tolist() == [
        float(i % 2) for i in range(12)
    ]
    batch = {"row_weights": tf.constant([1.0, 0.0]), "weight": tf.constant([0.5, 0.5])}
    assert task.weights(batch).numpy().tolist() == [0.5, 0.0]


def test_the_length_comes_from_the_meta_data(records, vocab_file):
    task = find_task(settings(records, "--do_train"))
    assert task.row_length == 16
    with pytest.raises(InputError, match=r"--max_seq_length=20: .*meta.json says 16; leave the flag out"):
        task.encode(task.data.read("train"), BertTokenizer(vocab_file), 20)


def test_the_modes_stand_for_flags(records):
    def asked(mode, *more):
        found = settings(records, f"--mode={mode}", *more)
        return found.do_train, found.do_eval, found.do_predict

    assert asked("train_and_eval") == (True, True, False) and asked("train") == (True, False, False)
    assert asked("eval") == (False, True, False) and asked("predict") == (False, False, True)
    assert settings(records, "--mode=predict", "--test_data_path=").test_data_path == f"{records}/eval.tf_record"
    for more, message in (
        (["--mode=export_only"], "export_saved_model --checkpoint_dir=o --export_dir=FOLDER/1"),
        (["--mode=train", "--train_data_path="], "--do_train needs --train_data_path"),
        (["--mode=train", "--task_name=MRPC"], "drop --data_dir and --task_name"),
        (["--mode=train", "--tfds_name=glue/mrpc"], "two data sets"),
    ):
        with pytest.raises(InputError, match=message):
            settings(records, *more)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"max_seq_length": 24}, r"train.tf_record: contradicts .*meta.json .*create both again"),
        ({"num_labels": 1}, "is damaged .max_seq_length and num_labels must be numbers above 1"),
        ({"task_type": "bert_squad"}, "describes bert_squad; give data of a classifier"),
        ({"label_type": "float"}, "contradicts"),
        ([], "is damaged"),
    ],
)
def test_meta_data_that_does_not_fit_is_refused(records, tmp_path, meta, message):
    good = json.loads((records / "meta.json").read_text())
    (tmp_path / "meta.json").write_text(json.dumps(good | meta if meta else []))
    flag = f"--input_meta_data_path={tmp_path}/meta.json"
    with pytest.raises(InputError, match=message) as refused:
        find_task(settings(records, "--do_train", flag)).data.read("train")
    assert "\n" not in str(refused.value)


def test_another_vocabulary_and_labels_out_of_range_are_refused(records, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[SEP]\n[MASK]\n[CLS]\na\n")
    task = find_task(settings(records, "--do_train"))
    with pytest.raises(InputError, match=r"do not begin with this vocabulary's \[CLS\], or have ids beyond its 6"):
        task.encode(task.data.read("train"), BertTokenizer(str(tmp_path / "vocab.txt")), 16)
    with pytest.raises(InputError, match="the label 2 of example 2 is not one of 0 to 1"):
        records_task._check_labels("train", settings(records, "--do_train"), np.array([0.0, 2.0]), task.answers)


@pytest.mark.slow
def test_a_command_of_tf_models_official_trains_and_predicts(records, vocab_file, tmp_path, caplog):
    config = small_config(dropout=0.0, initializer_range=0.1)
    (tmp_path / "config.json").write_text(config.to_json_string())
    common = [f"--bert_config_file={tmp_path}/config.json", f"--vocab_file={vocab_file}", f"--model_dir={tmp_path}/run"]
    training = ["--train_batch_size=4", "--num_train_epochs=20", "--learning_rate=3e-3", "--steps_per_loop=10"]
    found = run_classifier(settings(records, "--mode=train_and_eval", *common, *training))
    assert "95% up to" in caplog.text and "truncated" not in caplog.text, "nobody knows what was cut"
    assert found["accuracy"] == 1.0 and json.loads((tmp_path / "run/task.json").read_text())["max_seq_length"] == 16
    run_classifier(settings(records, "--mode=predict", *common))
    rows = np.loadtxt(tmp_path / "run/test_results.tsv")
    assert rows.argmax(axis=1).tolist() == [label for _, _, label in TEXTS]


def test_a_share_of_the_records_is_held_out(records, vocab_file):
    task = find_task(settings(records, "--do_train", "--do_eval", "--eval_data_path=", "--dev_share=0.34"))
    tokenizer = BertTokenizer(vocab_file)
    train, dev = (task.encode(task.data.read(split), tokenizer, 16) for split in ("train", "dev"))
    assert len(train["label_ids"]) + len(dev["label_ids"]) == len(TEXTS)
    assert sorted(dev["label_ids"].tolist()) == [0, 0, 1, 1]
    assert not set(map(bytes, train["input_ids"])) & set(map(bytes, dev["input_ids"]))
