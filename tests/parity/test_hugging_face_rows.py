"""Classifiers whose tokenizers make other rows give transformers' probabilities: loaded, exported and converted."""

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
import torch
import transformers

from bert_tf.classifier import TextClassifier
from bert_tf.features.rows import RowMaker
from bert_tf.features.texts import Text
from bert_tf.tokenization import SPECIAL_TOKENS, BertTokenizer
from tests import kit

pytestmark = pytest.mark.torch

WORDS = [f"w{letter}" for letter in "abcdefghijklmnop"]
VOCABULARY = [*SPECIAL_TOKENS, "<s>", "</s>", "<p>", "<m>", *WORDS]
LABELS = {0: "no", 1: "yes", 2: "unsure"}
# An odd length leaves an even number of tokens for a pair; transformers splits odd numbers differently.
LENGTH = 13
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice([*WORDS, "WA"], RNG.integers(1, 30))) for _ in range(12)]
PAIRS = list(zip(TEXTS, TEXTS[::-1], strict=True))
NO_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}
OWN = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<p>", "mask_token": "<m>"}
TEMPLATE = tokenizers.processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)


def write_tokenizer(folder, rules):
    path = folder / "words.txt"
    path.write_text("".join(f"{token}\n" for token in VOCABULARY))
    theirs = transformers.BertTokenizer(str(path), model_max_length=LENGTH, **rules)
    if rules.get("post_processor"):
        backend = theirs.backend_tokenizer
        backend.post_processor = rules["post_processor"]
        names = dict(
            zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True)
        )
        more = {"model_max_length": LENGTH, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names, **more)
    theirs.save_pretrained(folder / "theirs")


def probabilities(folder, texts) -> np.ndarray:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    first, second = zip(*texts, strict=True) if isinstance(texts[0], tuple) else (texts, None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = tokenizer(list(first), second and list(second), truncation=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**rows).logits.softmax(-1).numpy()


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
@pytest.mark.parametrize(
    "rules",
    [
        {"truncation_side": "left"},
        NO_TYPES,
        OWN,
        {"truncation_side": "left", **NO_TYPES, **OWN},
        {"post_processor": TEMPLATE},
        {"do_lower_case": False},
    ],
    ids=["left", "no_types", "own", "all", "template", "cased"],
)
def test_probabilities_equal_through_all_formats(tmp_path, rules, texts):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    more = {"max_position_embeddings": 32, "id2label": LABELS, "initializer_range": 0.5}
    config = transformers.BertConfig(vocab_size=len(VOCABULARY), **sizes, **more)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path, rules)
    expected = probabilities(tmp_path / "theirs", texts)
    is_pair = texts is PAIRS

    def assert_equal(found):
        np.testing.assert_allclose(found, expected, atol=2e-6)

    assert_equal(TextClassifier.load(tmp_path / "theirs", has_pairs=is_pair).probabilities(texts))
    source = tmp_path / "theirs"
    for format in ("bert_tf", "tf_models", "tf1", "hugging_face"):
        folder = tmp_path / format
        kit.run("convert_checkpoint", input=source, output=folder, format=format, has_pairs=is_pair)
        assert (folder / "vocab.txt").read_text().split() == VOCABULARY
        source = folder
    assert_equal(probabilities(source, texts))
    again, tokenizer = (auto.from_pretrained(source) for auto in (transformers.AutoConfig, transformers.AutoTokenizer))
    assert again.id2label == LABELS and again.pad_token_id == tokenizer.pad_token_id
    flags = {"checkpoint_dir": tmp_path / "bert_tf", "export_dir": tmp_path / "served/1"}
    kit.run("export.export_saved_model", **flags)
    serve = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    names = sorted(serve.structured_input_signature[1])
    columns = zip(*texts, strict=True) if is_pair else [texts]
    answers = serve(**{name: tf.constant(column) for name, column in zip(names, columns, strict=True)})
    assert_equal(answers["probabilities"])
    ours, theirs = (
        BertTokenizer(str(tmp_path / "theirs")),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs"),
    )
    found = theirs(*zip(*PAIRS, strict=True), truncation=True)["input_ids"]
    rows = RowMaker(ours, LENGTH)([Text(0, pair, (0, 0)) for pair in PAIRS])
    assert [row.tolist() for row in np.split(rows.input_ids, rows.splits[1:-1])] == found
