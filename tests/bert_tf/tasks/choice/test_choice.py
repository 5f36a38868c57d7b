"""Choices: files, the softmax over the choices of an example, and whole runs of `run_swag`."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import description
from bert_tf.finetuning.task import Split
from bert_tf.runs import checkpoint_folder
from bert_tf.tasks.choice.choice_files import ChoiceExample, choice_data
from bert_tf.tasks.choice.choice_task import ChoiceTask
from tests import kit
from tests.bert_tf.finetuning.killed_run import assert_same_weights, weights
from tests.kit import refused, run
from tests.small_configs import small_config

SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
ROW = '7,v,3416,The man said. He,The man said.,He,gen,"was, so",is,will,had'


TABBED_ROW = "7\tv\t3416\tThe man said. He\tThe man said.\tHe\tgen\twas, so\tis\twill\thad"


def write(path, *lines):
    return kit.write(path, "".join(f"{line}\n" for line in lines))


def read(path, split="train"):
    return choice_data("", {split: (str(path),)}).read(split)


def test_story_cloze_has_two_endings_counted_from_one(tmp_path):
    header = "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,RandomFifthSentenceQuiz1,"
    header += "RandomFifthSentenceQuiz2,AnswerRightEnding"
    rows = [
        '138d5bfb,Rick grew up.,"He hid, often.",He ran.,He fell.,He is happy.,He joined a gang.,1',
        "x,a,b,c,d,e,f,2",
    ]
    first, second = read(write(tmp_path / "val.csv", header, *rows))
    story = "Rick grew up. He hid, often. He ran. He fell."
    assert first == ChoiceExample(story, "", ("He is happy.", "He joined a gang."), 0, "138d5bfb")
    assert (second.context, second.label, second.id) == ("a b c d", 1, "x")
    unlabeled = [",".join(line.split(",")[:-1]) for line in (header, rows[1])]
    (example,) = read(write(tmp_path / "test.csv", *unlabeled), "test")
    assert example.label is None and example.choices == ("e", "f")


FULL_SWAG = "video-id,fold-ind,startphrase,gold-ending,distractor-0,distractor-1,gold-source,sent1,sent2"
FULL_ROW = "v,9,s,right,wrong,bad,gold,first,then"
FULL_JSON = [dict(zip(FULL_SWAG.split(","), FULL_ROW.split(","), strict=True))]
SAID = ("The man said.", "He", ("was, so", "is", "will", "had"), 2, "3416")
CONTRACTED = ["video-id,fold-ind,Sent1,sent2,Ending1,Ending2,Ending3,Label", "v,5,so,,a,b,c,1"]
CONCATENATED = [",sent1,ending0,ending1,ending2,label", "0,c,a,b,c,2", "0,d,a,b,,1"]  # by pandas
OBJECTS = [
    {"context": "c", "choices": ["x", "y"], "label": "y", "id": 44},
    {"context": "c", "question": "q", "choices": ["1", "2", "3"], "label": 2.0},
    {"context": "c", "start": "s", "choices": ["1", "2", "3"], "label": "3"},
    {"video-id": "v", "sent1": "c", "sent2": "s", "ending0": "x", "ending1": "y", "label": 1},  # SWAG on the hub
    {"sent1": "c", "sent2": "s", "ending0": "x", "ending1": "y", "ending2": None, "label": 1},
]
READ = {
    "swag": ("a.csv", [SWAG + ",label", ROW + ",2.0"], [SAID]),
    "swag with tabs": ("a.tsv", [SWAG.replace(",", "\t") + "\tlabel", f"{TABBED_ROW}\t2.0"], [SAID]),
    "other names": ("a.csv", CONTRACTED, [("so", "", ("a", "b", "c"), 1, "5")]),
    "numbers of rows": ("a.csv", CONCATENATED, [("c", "", ("a", "b", "c"), 2, None), ("d", "", ("a", "b"), 1, None)]),
    "full swag": ("a.csv", [FULL_SWAG, FULL_ROW], [("first", "then", ("right", "wrong", "bad"), 0, "9")]),
    "full swag in json": ("a.json", FULL_JSON, [("first", "then", ("right", "wrong", "bad"), 0, "9")]),
    "objects": ("a.jsonl", OBJECTS, [
        ("c", "", ("x", "y"), 1, "44"), ("c", "q", ("1", "2", "3"), 2, None), ("c", "s", ("1", "2", "3"), 2, None),
        ("c", "s", ("x", "y"), 1, None), ("c", "s", ("x", "y"), 1, None),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_layout_is_read(tmp_path, name):
    file, rows, expected = READ[name]
    path = kit.write(tmp_path / file, rows) if "json" in file else write(tmp_path / file, *rows)
    assert read(path) == [ChoiceExample(*fields) for fields in expected]


def test_a_test_file_has_no_labels(tmp_path):
    (example,) = read(write(tmp_path / "a.csv", SWAG, ROW), "test")
    assert example == ChoiceExample(*SAID[:3], None, SAID[4])


def write_race(folder):
    for split in ("train", "dev", "test"):
        for level, numbers in (("middle", range(3)), ("high", (7,))):
            for number in numbers:
                entry = {
                    "answers": ["B", "D"], "options": [["was", "is", "had", "all"], ["a", "the", "of", "you"]],
                    "questions": ["The man _ there.", "Who said?"], "article": f"The man said so {number}.",
                    "id": f"{level}{number}.txt",
                }  # fmt: skip
                kit.write(folder / split / level / f"{number}.txt", json.dumps(entry))


def test_race_folder_has_questions_of_all_levels(tmp_path):
    write_race(tmp_path)
    source = choice_data(str(tmp_path), {})
    first, second, *rest = source.read("train")
    assert first == ChoiceExample(
        "The man said so 7.", "The man _ there.", ("was", "is", "had", "all"), 1, "high/7.txt-0"
    )
    assert (second.start, second.label, len(rest)) == ("Who said?", 3, 6)
    (entry,) = source.fingerprint("train")
    (middle,) = source.fingerprint("dev")
    assert entry == middle.replace("dev", "train") == f"train, 8 examples, {entry[-16:]}", "the same contents"
    (tmp_path / "dev/high/7.txt").write_text('{"article": "a", "questions": ["b"], "options": [], "answers": ["A"]}')
    refused("high/7.txt: does not have RACE's layout", choice_data(str(tmp_path), {}).read, "dev")


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.csv", [SWAG, ROW], "line 2: there is no label; give the number of the right choice, from 0, or its text"),
        ("a.csv", [SWAG + ",label", ROW + ",4"], "line 2: the label 4 is not the number of a choice"),
        ("a.csv", [SWAG + ",label", ROW + ",x"], "line 2: the label 'x' is not one of the choices"),
        ("a.csv", ["sent1,ending0,label", "a,b,0"], "line 2: has 1 choices; give at least two"),
        ("a.csv", [",ending0,ending1,label", "a,b,c,0"], "line 2: there is no context or sent1; the line has a col"),
        ("a.tsv", [SWAG, ROW], "line 2: there is no context or sent1"),
        ("a.jsonl", ['{"context": "a", "choices": ["b", ""], "label": 0}'], "line 1: choice 1, counted from 0, is"),
        ("a.jsonl", ['{"context": "a", "choices": ["b", "c"], "label": "d"}'], "line 1: the label 'd' is not one of"),
        ("a.jsonl", ['{"context": "a", "choices": ["b", "c"]}'], "line 1: there is no label"),
        ("a.jsonl", ['{"context": "a", "choices": ["1", "2"], "label": "1"}'],
         "line 1: the label '1' is the text of one choice and the number of another; give the number"),
        ("a.jsonl", ['{"context": "a", "choices": "bc", "label": 0}'], "line 1: the choices are not a list of strings"),
        ("a.jsonl", ['{"context": "a", "label": 0}'], "line 1: has 0 choices; give at least two, as ending0 and"),
        ("a.jsonl", ['{"choices": ["b", "c"], "label": 0}'], "line 1: there is no context or sent1; the line has choi"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_file_and_line(tmp_path, name, lines, message):
    path = write(tmp_path / name, *lines)
    refused(f"^{re.escape(str(path))}.*{re.escape(message)}", read, path)


def test_loss_and_accuracy_are_those_of_a_softmax():
    counts, labels = [3, 2, 4, 2], [2, 0, 1, 1]
    scores = [np.array(s, np.float32) for s in ([1, 2, 400.0], [0.5, 3], [-1, 7, 2, 2], [5, 5])]
    right = [np.eye(count)[label] for count, label in zip(counts, labels, strict=True)]
    batch = {
        "choice_ids": tf.constant(np.concatenate([np.arange(c) for c in counts] + [[0, 0]]), tf.int32),
        "label_ids": tf.constant(np.concatenate([*right, [1, 1]]), tf.float32),
        "row_weights": tf.constant([1.0] * 11 + [0.0] * 2),
    }  # two more rows only fill the batch
    task = ChoiceTask()
    logits = tf.constant(np.concatenate([*scores, [9.0, 9.0]])[:, None], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values, weights = task.losses(logits, batch), task.weights(batch)
        loss = tf.reduce_sum(values["loss"] * weights)
    expected = [np.logaddexp.reduce(s.astype(np.float64)) - s[x] for s, x in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(loss, sum(expected), rtol=1e-6)
    softmax = np.concatenate([np.exp(s - np.logaddexp.reduce(s)) - one for s, one in zip(scores, right, strict=True)])
    np.testing.assert_allclose(tape.gradient(loss, logits)[:11, 0], softmax, atol=1e-6)
    assert float(tf.reduce_sum(weights)) == 4
    assert float(tf.reduce_sum(values["accuracy"] * weights)) == 2, "a tie is not an answer"
    examples = [ChoiceExample("", "", tuple("wxyz"[:c]), x) for c, x in zip(counts, labels, strict=True)]
    split = Split(examples, {}, np.repeat(np.arange(4), counts))
    assert task.scores(split, logits.numpy()[:11])["accuracy"] == 0.5
    assert task.baseline(Split(examples[:1], {}, np.zeros(3, int))) is None, "all labels are equal"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples whose right choice is "well", which is easy to learn; they have two, three or four choices."""
    folder = tmp_path_factory.mktemp("choices")
    words = ["the", "man", "said"]
    lines = []
    for number in range(30):
        count, right = 2 + number % 3, "well"
        wrong = words[: count - 1]
        choices = [*wrong[: number % count], right, *wrong[number % count :]]
        entry = {
            "context": f"{'all of them ' * (number % 2)}{words[number % 3]}", "start": "it is", "choices": choices,
        }  # fmt: skip
        lines.append(json.dumps(entry | {"label": choices.index(right), "id": f"n{number}"}))
    for split in ("train", "dev", "test"):
        write(folder / f"{split}.jsonl", *lines)
    config = small_config(dropout=0.0, initializer_range=0.1)
    (folder / "config.json").write_text(config.to_json_string())
    return folder


def train(folder, vocab_file, output_dir, *more):
    return run(
        "run_swag", f"--data_dir={folder}", f"--bert_config_file={folder}/config.json", f"--vocab_file={vocab_file}",
        f"--output_dir={output_dir}", "--max_seq_length=24", "--train_batch_size=8", "--learning_rate=3e-3", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(folder, vocab_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("trained")
    do = ["--do_train", "--do_eval", "--do_predict", "--num_train_epochs=40"]
    return output, train(folder, vocab_file, output, *do)


def test_a_run_learns_and_predicts_by_id(folder, trained):
    output, scores = trained
    assert scores["accuracy"] == 1.0 and scores["loss"] < 0.3
    found = [json.loads(line) for line in (output / "test_predictions.jsonl").read_text().splitlines()]
    truth = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in found] == [f"n{number}" for number in range(30)]
    assert [answer["prediction"] for answer in found] == [entry["label"] for entry in truth]
    assert all(answer["choice"] == entry["choices"][entry["label"]] for answer, entry in zip(found, truth, strict=True))
    rows = [list(map(float, line.split("\t"))) for line in (output / "test_results.tsv").read_text().splitlines()]
    assert [len(row) for row in rows] == [len(entry["choices"]) for entry in truth]
    np.testing.assert_allclose([sum(row) for row in rows], 1, rtol=1e-6)
    described = description.read(str(output))
    assert (described.kind, described.task_name, described.labels) == ("choice", "SWAG", ())
    page = (output / "report.html").read_text()
    assert "0 of 30 answers are wrong" in page


def test_a_conversion_names_the_class_of_transformers(trained, tmp_path):
    run("convert_checkpoint", input=trained[0], output=tmp_path / "hf", format="hugging_face")
    assert json.loads((tmp_path / "hf/config.json").read_text())["architectures"] == ["BertForMultipleChoice"]


@pytest.mark.slow
def test_resumed_and_replicated_runs_are_equal(folder, vocab_file, tmp_path):
    flags = ["--do_train", "--num_train_epochs=3", "--save_checkpoints_steps=6", "--noskip_non_finite_steps"]
    train(folder, vocab_file, tmp_path / "one", *flags)
    shutil.copytree(tmp_path / "one", tmp_path / "cut")
    for path in [*(tmp_path / "cut").glob("ckpt-11.*"), tmp_path / "cut/checkpoint"]:  # 30 examples * 3 epochs / 8
        path.unlink()
    assert checkpoint_folder.newest_intact(str(tmp_path / "cut")).position == (1, 18, 0), "counted in examples"
    train(folder, vocab_file, tmp_path / "cut", *flags)
    assert_same_weights(tmp_path / "cut/ckpt-11", tmp_path / "one/ckpt-11")
    more = ["--distribution_strategy=mirrored", "--gradient_accumulation_steps=2"]
    for number, packing in enumerate(["--pack_sequences", "--nopack_sequences"]):
        output = tmp_path / f"two{number}"
        train(folder, vocab_file, output, *flags, *more, packing)
        expected = weights(tmp_path / "one/ckpt-11")
        for name, value in weights(output / "ckpt-11").items():
            # All choices have the same bias, so it has no effect, and its gradient is rounding noise.
            if name.startswith("model/") and "OPTIMIZER" not in name and "head/dense/bias" not in name:
                np.testing.assert_allclose(value, expected[name], atol=2e-4, err_msg=name)
