import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import demo
import demo_report
import demo_text


@pytest.fixture(scope="module")
def modules():
    return demo_text.read_modules()


@pytest.mark.slow
def test_no_paragraph_is_on_both_sides_of_the_split(modules, tmp_path):
    rows = demo_text.write_task(modules, tmp_path)
    train, dev = ({text for text, _ in rows[split]} for split in ("train", "dev"))
    assert len(train) > 200 and len(dev) > 200 and not train & dev
    assert len(train) + len(dev) == len(rows["train"]) + len(rows["dev"]), "no paragraph stands twice"
    demo_text.write_corpus(modules, tmp_path / "corpus.txt", dev=False)
    seen = set((tmp_path / "corpus.txt").read_text().splitlines())
    assert not {text for text in dev if len(demo_text.sentences(text)) == 1} & seen, "pre-training sees no dev text"


@pytest.mark.slow
def test_every_label_is_in_train_and_dev(modules, tmp_path):
    rows = demo_text.write_task(modules, tmp_path)
    labels = set(demo_text.labeled_packages(modules))
    assert {label for _, label in rows["train"]} == {label for _, label in rows["dev"]} == labels
    assert len(labels) == demo_text.NUM_LABELS


def test_code_and_tables_are_no_paragraphs():
    text = "Return the value of the option as given.\n\n>>> f(1)\n\na  |  b\n---- | ----\n\nx = 1; y = {2: 3}"
    assert list(demo_text.english_paragraphs(text)) == ["Return the value of the option as given."]


def test_sentences_are_cut_after_their_end():
    assert demo_text.sentences("Do it. Use e.g. this one! Why?") == ["Do it.", "Use e.g. this one!", "Why?"]


def test_the_report_stands_alone_and_escapes_what_it_shows():
    shown = {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.1, "next_sentence_accuracy": 0.5}
    results = [{"split": split, "step": step, **shown} for split in ("train", "eval") for step in (0, 1)]
    scores = {"pretrained": [0.7, 0.8], "scratch": [0.5, 0.6], "majority": [0.3]}
    page = demo_report.render([demo.Stage("text", 1.0, "a < b")], results, scores, [("<b>", "email", 0.875)])
    assert "a &lt; b" in page and "&lt;b&gt;" in page and "0.88" in page and page.count("<svg") == 4
    assert page.count('<div class="scroll"><table>') == page.count("<table") == 2
    references = re.findall(r"(?:href|src)=[\"']([^\"']+)", page)
    assert all(reference.startswith("#") for reference in references)
