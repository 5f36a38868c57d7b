"""Writes models of all heads with transformers, in TensorFlow or PyTorch, and their answers to texts.

  python transformers_models.py FOLDER tensorflow|pytorch [FAMILY]

The folder HEAD/FORM has the model as `save_pretrained` leaves it, with its tokenizer; `answers.json` has the answers.
This script runs in an environment of its own (`make test-migration`), or is imported with PyTorch (`make test-parity`).
"""

import itertools
import json
import os
import pathlib
import random
import re
import sys

import numpy as np

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# The name of the class without "Bert", and the settings of its configuration.
HEADS = {
    "Model": {},
    "ForSequenceClassification": {"num_labels": 3},
    "ForTokenClassification": {
        "id2label": {0: "O", 1: "B-PER", 2: "I-PER"},
        "label2id": {"O": 0, "B-PER": 1, "I-PER": 2},
    },
    "ForQuestionAnswering": {},
    "ForMultipleChoice": {},
    "ForMaskedLM": {},
    "ForPreTraining": {},
}
# Casing, whether accents are kept, and whether there are added tokens.
TOKENIZERS = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "accents": {"do_lower_case": True, "strip_accents": False},
    "added": {"do_lower_case": True},
}
ADDED, ADDED_SPECIAL = ["<e1>", "covid", "<e1>x"], ["[URL]", "[E1]"]
WORDS = "the The cafe café Café NAIVE naive naïve man Éa ea éa 中 文 co vid".split()
# The beginning of the names of a family's classes, the class of its tokenizer, and its configuration.
_SHAPE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 32}
FAMILIES = {
    "bert": ("Bert", "BertTokenizer", _SHAPE | {"max_position_embeddings": 256}),
    "bert_epsilon": ("Bert", "BertTokenizer", _SHAPE | {"max_position_embeddings": 256, "layer_norm_eps": 1e-2}),
    "distilbert": ("DistilBert", "DistilBertTokenizer", {
        "dim": 24, "n_layers": 2, "n_heads": 6, "hidden_dim": 32, "max_position_embeddings": 256,
    }),
    "electra": ("Electra", "ElectraTokenizer", _SHAPE | {"embedding_size": 24, "max_position_embeddings": 256}),
    "mpnet": ("MPNet", "MPNetTokenizer", _SHAPE | {"max_position_embeddings": 258}),
    "xlm-roberta": ("XLMRoberta", "XLMRobertaTokenizer", _SHAPE | {
        "max_position_embeddings": 258, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    }),
    "electra_small": ("Electra", "ElectraTokenizer", _SHAPE | {"embedding_size": 10, "max_position_embeddings": 256}),
}  # fmt: skip
FORMS = {"tensorflow": ("h5", "safetensors", "saved_model"), "pytorch": ("safetensors",)}


def tokenizer_of(head: str, form: str) -> str:
    """Returns the name of the tokenizer; each head and each form meets several tokenizers."""
    return list(TOKENIZERS)[(list(HEADS).index(head) + ("h5", "safetensors", "saved_model").index(form)) % 4]


def texts(number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    words = [*WORDS, *ADDED, *ADDED_SPECIAL, "<E1>", "COVID", "[url]", "covid19", "zz", "man.", "(man)", "man[URL]man"]
    return [" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(number)]


def pairs(number: int) -> tuple[list[str], list[str]]:
    return texts(number, 1), texts(number, 2)


def make_tokenizer(folder: pathlib.Path, name: str, family: str = "bert"):
    import transformers

    if family == "xlm-roberta":
        from tests.bert_tf.text import sentence_pieces  # trains a model, in the environment of this project

        return transformers.XLMRobertaTokenizer.from_pretrained(sentence_pieces.folder_with_model(folder))
    characters = sorted({c for word in WORDS for c in word} | set("<>/[]().0123456789bcdefghijklmnopqrstuvwxyzER1URL"))
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"] if family == "mpnet" else SPECIAL_TOKENS
    vocabulary = dict.fromkeys([*special, *WORDS, *characters, *(f"##{c}" for c in characters)])
    path = folder / f"{name}.txt"
    path.write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    tokenizer = getattr(transformers, FAMILIES[family][1])(str(path), **TOKENIZERS[name])
    if name == "added":
        tokenizer.add_tokens(ADDED)
        tokenizer.add_special_tokens({"additional_special_tokens": ADDED_SPECIAL})
    return tokenizer


def softmax(logits):
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


class Answers:
    """Computes the answers of a model of transformers in plain NumPy."""

    def __init__(self, tokenizer, run):
        self._tokenizer, self._run = tokenizer, run

    def __call__(self, head: str, number: int = 200) -> list:
        return getattr(self, head)(*pairs(number))

    def _outputs(self, first, second=None):
        given = self._tokenizer(first, second, padding=True, return_tensors="np", return_token_type_ids=True)
        names = self._tokenizer.model_input_names  # DistilBERT has no token types
        return given, self._run({name: given[name].astype(np.int64) for name in names})

    def Model(self, first, second):
        given, outputs = self._outputs(first)
        mask = given["attention_mask"][..., np.newaxis]
        return ((outputs["last_hidden_state"] * mask).sum(1) / mask.sum(1)).tolist()

    def ForSequenceClassification(self, first, second):
        return softmax(self._outputs(first, second)[1]["logits"]).tolist()

    def ForTokenClassification(self, first, second):
        """Returns the probability of the tag at each word's first token, and whether it is an entity's tag."""
        _, outputs = self._outputs(first)
        found = []
        for text, logits in zip(first, outputs["logits"], strict=True):
            place, scores = 1, []
            for word in text.split():
                scores.append([float(softmax(logits[place]).max()), int(logits[place].argmax() > 0)])
                place += len(self._tokenizer.tokenize(word))
            found.append(scores)
        return found

    def ForQuestionAnswering(self, first, second):
        """Returns the sum of the logits of the best answer in the second text."""
        given, outputs = self._outputs(first, second)
        found = []
        for row in range(len(first)):
            if np.any(given["token_type_ids"]):
                places = np.flatnonzero(given["token_type_ids"][row] * given["attention_mask"][row])[:-1]  # no [SEP]
            else:
                places = [place for place, text in enumerate(given.sequence_ids(row)) if text == 1]
            spans = [(a, b) for a, b in itertools.product(places, places) if a <= b < a + 30]
            scores = [outputs["start_logits"][row, a] + outputs["end_logits"][row, b] for a, b in spans]
            found.append(float(max(scores)))
        return found

    def ForMultipleChoice(self, first, second):
        logits = [self._outputs(first, each)[1]["logits"] for each in (second, second[::-1])]
        return softmax(np.stack([each.reshape(-1) for each in logits], 1)).tolist()

    def ForMaskedLM(self, first, second, name="logits"):
        """Returns the sorted probabilities of the five most probable tokens of a mask between the texts."""
        mask = f" {self._tokenizer.mask_token} "
        given, outputs = self._outputs([a + mask + b for a, b in zip(first, second, strict=True)])
        rows, places = np.nonzero(given["input_ids"] == self._tokenizer.mask_token_id)
        return np.sort(softmax(outputs[name][rows, places]))[:, ::-1][:, :5].tolist()

    def ForPreTraining(self, first, second):
        return self.ForMaskedLM(first, second, "prediction_logits")


def heads_of(family: str) -> list[str]:
    """Only BERT has a next-sentence head."""
    return [head for head in HEADS if head != "ForPreTraining" or FAMILIES[family][0] == "Bert"]


def write(folder: pathlib.Path, framework: str, family: str = "bert") -> None:
    forms = FORMS[framework] if family == "bert" else FORMS[framework][:2]  # SavedModels are read only of BERT
    for head, form in itertools.product(heads_of(family), forms):
        target = folder / head / form
        target.mkdir(parents=True)
        tokenizer = make_tokenizer(folder, tokenizer_of(head, form), family)
        model, run = (_tensorflow if framework == "tensorflow" else _pytorch)(head, len(tokenizer), family)
        answers = Answers(tokenizer, run)(head)
        options = {"safe_serialization": form == "safetensors"} if form != "saved_model" else {"saved_model": True}
        model.save_pretrained(target, **options)
        tokenizer.save_pretrained(target)
        if form == "saved_model":
            (target / "tf_model.h5").unlink(missing_ok=True)
        (target.parent / f"{form}.json").write_text(json.dumps(answers))


def _config(head: str, tokens: int, family: str):
    import transformers

    classes, _, shape = FAMILIES[family]
    return getattr(transformers, f"{classes}Config")(vocab_size=tokens, **shape, **HEADS[head])


def _values(name: str, shape, rng) -> np.ndarray:
    return rng.normal(size=shape) * 0.2 + (1.0 if re.search("gamma|(LayerNorm|layer_norm).weight", name) else 0.0)


def _tensorflow(head: str, tokens: int, family: str):
    import transformers

    model = getattr(transformers, f"TF{FAMILIES[family][0]}{head}")(_config(head, tokens, family))
    rng = np.random.default_rng(0)
    one = {name: np.ones([1, 4], np.int64) for name in ("input_ids", "attention_mask")}

    def run(inputs):
        if head == "ForMultipleChoice":
            inputs = {name: value[:, np.newaxis] for name, value in inputs.items()}
        return {name: value.numpy() for name, value in model(inputs).items()}

    run(one)
    for variable in model.variables:
        variable.assign(_values(variable.name, variable.shape, rng))
    return model, run


def _pytorch(head: str, tokens: int, family: str):
    import torch
    import transformers

    model = getattr(transformers, f"{FAMILIES[family][0]}{head}")(_config(head, tokens, family)).eval()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(_values(name, tuple(parameter.shape), rng)))

    def run(inputs):
        tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
        if head == "ForMultipleChoice":
            tensors = {name: value[:, None] for name, value in tensors.items()}
        with torch.no_grad():
            return {name: value.numpy() for name, value in model(**tensors).items()}

    return model, run


if __name__ == "__main__":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    write(pathlib.Path(sys.argv[1]), *sys.argv[2:])
