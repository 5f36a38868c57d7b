"""Writes presets with KerasHub, cased and uncased, and their answers to texts.

  python keras_hub_models.py FOLDER

This script runs in an environment of its own (`make test-migration`).
"""

import json
import os
import pathlib
import random
import sys

import numpy as np

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the The man Man café Café cafe Élan élan elan said , . 中".split()
CASES = ("cased", "uncased")


def texts(number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices([*WORDS, "zz", "MAN", "ÉLAN"], k=rng.randint(2, 8))) for _ in range(number)]


def randomize(variables) -> None:
    rng = np.random.default_rng(0)
    for variable in variables:
        variable.assign(rng.normal(size=variable.shape) * 0.3 + (1.0 if "gamma" in variable.name else 0.0))


def write(folder: pathlib.Path, case: str) -> None:
    from keras_hub import models

    words = WORDS if case == "cased" else sorted({word.lower() for word in WORDS})
    characters = sorted({c for word in words for c in word})
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *words, *characters, *(f"##{c}" for c in characters)]))
    tokenizer = models.BertTokenizer(vocabulary=vocabulary, lowercase=case == "uncased")
    sizes = {"num_layers": 2, "num_heads": 6, "hidden_dim": 24, "intermediate_dim": 32, "max_sequence_length": 64}
    backbone = models.BertBackbone(vocabulary_size=len(vocabulary), **sizes)
    preprocessor = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=64)
    classifier = models.BertTextClassifier(backbone=backbone, num_classes=3, preprocessor=preprocessor)
    masked_lm = models.BertMaskedLM(
        backbone=backbone, preprocessor=models.BertMaskedLMPreprocessor(tokenizer, sequence_length=64)
    )
    for model in (classifier, masked_lm):
        randomize(model.trainable_variables)
    first, second = texts(200, 1), texts(200, 2)
    answers = {
        "classifier": classifier.predict((first, second), verbose=0),
        "masked_lm": _guesses(masked_lm, tokenizer, first),
    }
    for name, model in (("backbone", backbone), ("classifier", classifier), ("masked_lm", masked_lm)):
        model.save_to_preset(str(folder / case / name))
        tokenizer.save_to_preset(str(folder / case / name))
    classifier.save_weights(str(folder / case / "model.weights.h5"))
    lists = {name: value.tolist() for name, value in answers.items()}
    (folder / case / "answers.json").write_text(json.dumps(lists))


def _guesses(masked_lm, tokenizer, first) -> np.ndarray:
    """Returns the scores of all tokens at a mask after each text."""
    ids = np.zeros([len(first), 64], np.int32)
    ends = []
    for row, tokens in enumerate(np.asarray(tokenizer(text)).tolist() for text in first):
        whole = [tokenizer.cls_token_id, *tokens, tokenizer.mask_token_id, tokenizer.sep_token_id]
        ids[row, : len(whole)] = whole
        ends.append([len(whole) - 2])
    inputs = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": ids > 0}
    return np.asarray(masked_lm({**inputs, "mask_positions": np.array(ends)}))[:, 0]


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"
    for each in CASES:
        write(pathlib.Path(sys.argv[1]), each)
