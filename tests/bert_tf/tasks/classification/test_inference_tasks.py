"""SNLI and SciTail, read from files with the layout of their archives."""

import numpy as np
import pytest

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Split
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks_of_flags import find_task

_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)


def snli_line(number, label, first, second) -> str:
    parses = "\t".join([f"( {first} )", f"( {second} )", f"(ROOT {first})", f"(ROOT {second})"])
    return f"{label}\t{parses}\t{first}\t{second}\t{number}.jpg#0\t{number}.jpg#0r1n\t{label}\t\t\t\t"


def write_snli(folder, count=9):
    labels = ("neutral", "contradiction", "entailment")
    for split in ("train", "dev", "test"):
        lines = [snli_line(i, labels[i % 3], "the man said", f"all of you {i}") for i in range(count)]
        lines.insert(2, snli_line(99, "-", "they had", "no answer"))
        (folder / f"snli_1.0_{split}.txt").write_text("\n".join([_HEADER, *lines]) + "\n")


def settings(name, folder, *more) -> ClassifierSettings:
    return parse(ClassifierSettings, [f"--task_name={name}", f"--data_dir={folder}", *more])


def test_snli_leaves_out_pairs_without_a_gold_label(tmp_path):
    write_snli(tmp_path)
    task = find_task(settings("snli", tmp_path, "--output_dir=out", "--do_train"))
    for split in ("train", "dev"):
        examples = task.data.read(split)
        assert len(examples) == 9 and {example.label for example in examples} == set(task.labels)
        assert (examples[0].text_a, examples[0].text_b) == ("the man said", "all of you 0")
    assert task.labels == ("contradiction", "entailment", "neutral")
    test = task.data.read("test")
    assert [example.id for example in test][:2] == ["0.jpg#0r1n", "1.jpg#0r1n"]
    task.write_predictions(str(tmp_path), Split(test, {}, np.arange(9)), np.zeros([9, 3], np.float32))
    assert not (tmp_path / "SNLI.tsv").exists(), "there is no server for it"


def test_scitail_is_found_in_its_archives_subfolder(tmp_path):
    (tmp_path / "tsv_format").mkdir()
    for split in ("train", "dev", "test"):
        lines = ["Pluto rotates.\tPluto turns.\tentails", 'A "quote" stays.\tIt goes.\tneutral']
        (tmp_path / f"tsv_format/scitail_1.0_{split}.tsv").write_text("\n".join(lines) + "\n")
    task = find_task(settings("SciTail", tmp_path, "--output_dir=out", "--do_train"))
    first, second = task.data.read("train")
    assert (first.text_a, first.text_b, first.label) == ("Pluto rotates.", "Pluto turns.", "entails")
    assert (second.text_a, second.label) == ('A "quote" stays.', "neutral")
    (tmp_path / "tsv_format/scitail_1.0_dev.tsv").write_text("a\tb\tcontradicts\n")
    with pytest.raises(InputError, match=r"scitail_1.0_dev.tsv, line 1: .*contradicts"):
        task.data.read("dev")
