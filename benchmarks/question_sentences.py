"""Shortens the contexts of questions from paragraphs to sentences, so that few examples are enough for training.

XQuAD has 786 training questions and 227 dev questions. These are too few for a model to learn to find an answer in a
paragraph.
"""

import json
import pathlib


def of_sentences(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Writes a SQuAD file in which each question's context is the sentence with its answer; returns the file's path."""
    paragraphs = []
    for article in json.loads(source.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                context, (answer,) = paragraph["context"], question["answers"]
                begin = context.rfind(". ", 0, answer["answer_start"])
                begin = begin + 2 if begin >= 0 else 0
                end = context.find(". ", answer["answer_start"] + len(answer["text"]))
                moved = {**answer, "answer_start": answer["answer_start"] - begin}
                sentence = context[begin : end + 1 if end >= 0 else len(context)]
                paragraphs.append({"context": sentence, "qas": [{**question, "answers": [moved]}]})
    target.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return target
