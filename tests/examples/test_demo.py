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
def test_pretraining_sees_no_dev_text(modules, tmp_path):
    rows = demo_text.write_task(modules, tmp_path)
    train, dev = ({text for text, _ in rows[split]} for split in ("train", "dev"))
    assert len(train) > 2000 and len(dev) > 500 and not train & dev
    demo_text.write_corpus(modules, tmp_path / "corpus.txt", dev=False)
    assert not dev & set((tmp_path / "corpus.txt").read_text().splitlines())
    for split in rows.values():
        labels = [label for _, label in split]
        assert abs(labels.count(demo_text.RIGHT) - labels.count(demo_text.SCRAMBLED)) <= 1


def test_a_scrambled_sentence_keeps_its_words():
    sentence = "Return the value of the option in the given section."
    scrambled = demo_text.scramble(sentence)
    assert scrambled != sentence and demo_text.scramble(sentence) == scrambled and scrambled.endswith(".")
    assert sorted(scrambled.rstrip(".").split()) == sorted(sentence.rstrip(".").split())


def test_report_is_self_contained_and_escapes_html():
    shown = {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.1, "next_sentence_accuracy": 0.5}
    results = [{"split": split, "step": step, **shown} for split in ("train", "eval") for step in (0, 1)]
    scores = {"pretrained": [0.7, 0.8], "scratch": [0.5, 0.6], "majority": [0.3]}
    page = demo_report.render([demo.Stage("text", 1.0, "a < b")], results, scores, [("<b>", "right", 0.875)])
    assert "a &lt; b" in page and "&lt;b&gt;" in page and "0.88" in page and page.count("<svg") == 4
    assert page.count('<div class="scroll"><table>') == page.count("<table") == 2
    references = re.findall(r"(?:href|src)=[\"']([^\"']+)", page)
    assert all(reference.startswith("#") for reference in references)
