"""Dev data that is held out of the training data: the division, and `--dev_share` for each kind of task."""

import json
import random
import shutil
from collections import Counter

import numpy as np
import pytest

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.stratified_split import content_of, held_out
from bert_tf.task_script import main
from tests.bert_tf.tasks_of_flags import choice_task, find_task, squad_task, tagging_task
from tests.kit import refused, write
from tests.small_configs import small_config

WORDS = ("man", "woman", "time", "years", "people", "said")
LABELED = [(f"the {WORDS[i % 6]} number {i // 2}", ("bad", "good", "good")[i % 3]) for i in range(60)]


@pytest.fixture
def flags(project):
    write(project.config_file(), small_config(300, 8, hidden_dropout_prob=0.0).to_json_string())

    def make(script, *more, output="out"):
        own = ["--max_query_length=8"] if script == "run_squad" else []
        return project.settings(script, f"--output_dir={project.folder / output}", "--max_seq_length=32", *own, *more)

    return make


def table(path, rows=LABELED, head="text\tlabel"):
    path.write_text(head + "\n" + "".join("\t".join(row) + "\n" for row in rows))
    return f"--train_data_path={path}"


def conll(path, documents):
    lines = []
    for document in documents:
        lines += ["-DOCSTART- O", ""] + [line for sentence in document for line in (*sentence, "")]
    path.write_text("\n".join(lines) + "\n")
    return f"--train_data_path={path}"


DOCUMENTS = [
    [[f"{w} O", f"{WORDS[d % 3]} B-PER" if (d + s) % 2 else "number O", f"{d} O"] for s, w in enumerate(WORDS[:3])]
    for d in range(10)
]


def squad(path, contexts=12):
    paragraphs = []
    for number in range(contexts):
        context = f"they said {WORDS[number % 6]} {number} ."
        answers = [{"text": WORDS[number % 6], "answer_start": context.index(WORDS[number % 6], 9)}]
        asked = [{"id": f"{number}-{n}", "question": f"what {n} ?", "answers": answers} for n in range(2)]
        paragraphs.append({"context": context, "qas": asked})
    return write(path, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def choices(path):
    rows = [
        {"context": f"the {WORDS[i // 2 % 6]} {i // 12}", "choices": [f"had {i}", "number"], "label": 0}
        for i in range(40)
    ]
    return f"--train_data_path={write(path, rows)}"


def parts(task):
    """Returns the examples of both parts; checks that they are the examples of the training file, in order."""
    train, dev = task.data.read("train"), task.data.read("dev")
    whole = task.data.load("train")
    assert [example for example in whole if example in train or example in dev] == whole
    assert task.data.fingerprint("dev") != task.data.fingerprint("train")
    return train, dev


def test_held_out_classes_are_proportional(flags, tmp_path):
    def task_of(train_file, *more):
        own = ("--task_name=own", train_file, "--do_train", "--do_eval", "--dev_share=0.2")
        return find_task(flags("run_classifier", *own, *more))

    train, dev = parts(task_of(table(tmp_path / "all.tsv")))
    assert sorted(example.label for example in dev) == ["bad"] * 4 + ["good"] * 8
    assert not {example.text_a for example in train} & {example.text_a for example in dev}
    moved = table(tmp_path / "moved.tsv", random.Random(0).sample(LABELED, len(LABELED)))
    again, other = (task_of(moved, flag).data.read("dev") for flag in ("--random_seed=7", "--dev_seed=7"))
    assert {(e.text_a, e.label) for e in again} == {(e.text_a, e.label) for e in dev}
    assert {e.text_a for e in other} != {e.text_a for e in dev}


def test_a_regression_and_label_sets_are_divided_too(flags, tmp_path):
    share = ("--task_name=own", "--do_train", "--do_eval", "--dev_share=0.25")
    numbers = table(tmp_path / "scores.tsv", [(f"text {i}", str(i / 7)) for i in range(40)])
    task = find_task(flags("run_classifier", *share, numbers, "--regression"))
    train, dev = parts(task)
    assert len(dev) == 10 and task.answers.mean == pytest.approx(sum(float(e.label) for e in train) / 30)
    sets = table(tmp_path / "sets.tsv", [(f"text {i}", "common,rare" if i < 8 else "common") for i in range(40)])
    task = find_task(flags("run_classifier", *share, sets, "--multi_label", "--class_weights=balanced"))
    assert sum("rare" in example.label for example in parts(task)[1]) == 2
    assert len(task.answers.weights) == 2


def test_a_benchmark_is_divided(flags, tmp_path):
    head = "index\tsentence1\tsentence2\tlabel"
    rows = [(str(i), f"text {i}", "he was there", ("entailment", "not_entailment")[i % 2]) for i in range(40)]
    table(tmp_path / "train.tsv", rows, head)
    own = ("--task_name=RTE", f"--data_dir={tmp_path}", "--do_train", "--do_eval", "--dev_share=0.1")
    assert len(parts(find_task(flags("run_classifier", *own)))[1]) == 4


def test_the_questions_on_a_context_stay_together(flags, tmp_path):
    task = squad_task(flags("run_squad", f"--train_file={squad(tmp_path / 'all.json')}", "--do_train", "--do_eval",
                            "--dev_share=0.25"))  # fmt: skip
    train, dev = parts(task)
    assert len(dev) == 6 and not {q.context for q in train} & {q.context for q in dev}


def test_the_choices_on_a_context_stay_together(flags, tmp_path):
    own = (choices(tmp_path / "all.jsonl"), "--do_train", "--do_eval", "--dev_share=0.2")
    task = choice_task(flags("run_swag", *own))
    train, dev = parts(task)
    assert len(dev) == 8 and not {e.context for e in train} & {e.context for e in dev}


def test_holds_out_sentences_or_whole_documents(flags, tmp_path):
    own = (conll(tmp_path / "all.conll", DOCUMENTS), "--do_train", "--do_eval", "--dev_share=0.2")
    _, dev = parts(tagging_task(flags("run_ner", *own)))
    assert len(dev) == 6 and sum("B-PER" in sentence.tags for sentence in dev) == 3
    train, dev = parts(tagging_task(flags("run_ner", *own, "--document_context")))
    assert len(dev) == 6 and not {s.words[2] for s in train} & {s.words[2] for s in dev}
    assert [sentence.starts_document for sentence in dev] == [True, False, False] * 2


@pytest.mark.slow
def test_classifier_keeps_dev_data_in_later_commands(flags, tmp_path, caplog):
    own = ("--task_name=own", table(tmp_path / "train.tsv"), f"--data_dir={tmp_path}")
    scores = main(flags("run_classifier", *own, "--do_train", "--do_eval", "--dev_share=0.2"))
    assert description.read(str(tmp_path / "out")).data["dev_share"] == 0.2
    assert "train: 48 examples, 6 steps of 8; tokens: median " in caplog.text and "dev: 12 examples; " in caplog.text
    lines = (tmp_path / "out" / "dev_predictions.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert main(flags("run_classifier", *own, "--do_eval")) == pytest.approx(scores)
    for flag, message in (
        ("--dev_share=0.3", r"--dev_share=0.3: .* was trained with 0.2; leave the flag out"),
        ("--dev_share=0.2 --dev_seed=1", "--dev_seed=1: .* was trained with 0"),
    ):
        refused(message, find_task, flags("run_classifier", *own, "--do_eval", *flag.split()))
    more = table(tmp_path / "more.tsv", [*LABELED, ("more", "bad")])
    with pytest.raises(InputError, match="was trained on other files or with another --dev_share"):
        find_task(flags("run_classifier", "--task_name=own", more, "--do_eval", "--dev_share=0.2"))
    shutil.copy(tmp_path / "train.tsv", tmp_path / "copy.tsv")
    copied = ("--task_name=own", f"--train_data_path={tmp_path / 'copy.tsv'}", "--dev_share=0.2")
    assert len(find_task(flags("run_classifier", *copied, "--do_eval")).data.read("dev")) == 12
    shutil.copy(tmp_path / "more.tsv", tmp_path / "dev.tsv")
    resumed = find_task(flags("run_classifier", *own, "--do_train", "--do_eval"))
    assert (len(resumed.data.read("train")), len(resumed.data.read("dev"))) == (48, 61)
    with pytest.raises(InputError, match=r"--dev_share=0.2: there already is dev data \(.*dev.tsv\)"):
        find_task(flags("run_classifier", *own, "--do_eval", "--dev_share=0.2"))


@pytest.mark.slow
def test_questions_have_a_dev_set_beside_the_test_set(flags, tmp_path):
    own = (f"--train_file={squad(tmp_path / 'all.json')}", "--dev_share=0.25")
    test = squad(tmp_path / "test.json", 3)
    scores = [
        main(flags("run_squad", *own, "--do_train", "--do_eval", "--do_predict", f"--predict_file={test}",
                        f"--random_seed={seed}", output=f"member{seed}"))
        for seed in (1, 2)
    ]  # fmt: skip
    assert scores[0].keys() == {"f1", "exact_match", "loss"}
    assert len(json.loads((tmp_path / "member1" / "predictions.json").read_text())) == 6
    members = f"--ensemble_checkpoints={tmp_path / 'member1'},{tmp_path / 'member2'}"
    main(flags("run_squad", own[0], own[1], "--do_eval", members, output="ensemble"))
    assert len(json.loads((tmp_path / "ensemble" / "predictions.json").read_text())) == 6
    more = f"--train_file={squad(tmp_path / 'more.json', 16)}"
    message = "member1: was trained on other files"
    refused(message, main, flags("run_squad", more, own[1], "--do_eval", members, output="ensemble"))


def test_missing_dev_data_names_the_flag(flags, tmp_path):
    own = ("--task_name=own", table(tmp_path / "train.tsv"))
    message = "needs --eval_data_path or --data_dir, or --dev_share and the train"
    refused(message, flags, "run_classifier", *own, "--do_train", "--do_eval")


def _examples(**counts):
    return [(f"{name} {number}", name) for name, count in counts.items() for number in range(count)]


def _held(examples, share=0.1, seed=0):
    texts, classes = zip(*examples, strict=True)
    chosen = held_out([content_of(text) for text in texts], classes, share, seed)
    return {example for example, is_held in zip(examples, chosen, strict=True) if is_held}


def test_each_class_has_the_share():
    held = _held(_examples(good=70, bad=20, none=10))
    assert Counter(name for _, name in held) == {"good": 7, "bad": 2, "none": 1}
    # Quotas of 9.5 and 0.5: their sum stays 10, and the rarer class gets the undecided example.
    assert Counter(name for _, name in _held(_examples(good=95, bad=5))) == {"good": 9, "bad": 1}
    # Quotas of 1.7 and 0.3: the class with the larger remainder gets the second example.
    assert Counter(name for _, name in _held(_examples(good=17, bad=3))) == {"good": 2}


def test_case_and_space_variants_stay_together():
    examples = [
        (spelled, "ab"[number % 2]) for number in range(40) for spelled in (f"Text {number}", f"text  {number} ")
    ]
    held = {content_of(text) for text, _ in _held(examples)}
    kept = {content_of(text) for text, _ in set(examples) - _held(examples)}
    assert len(held) == 4 and not held & kept


def test_class_keeps_an_example_and_one_is_held_out():
    assert len(_held(_examples(a=3, b=3), share=0.01)) == 1
    kept = set(examples := _examples(a=2, b=1)) - _held(examples, share=0.9)
    assert {name for _, name in kept} == {"a", "b"}


def test_a_share_that_leaves_a_part_empty_is_refused():
    refused("holds out none", _held, [("same", "a")] * 10)


def test_without_classes_it_is_a_random_share():
    held = held_out([str(number) for number in range(1000)], [None] * 1000, 0.25, 0)
    assert held.sum() == 250 and 50 < held[:500].sum() < 200
    assert not np.array_equal(np.flatnonzero(held)[:10], np.arange(10))
