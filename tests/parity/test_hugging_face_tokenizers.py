"""transformers' tokenizer for a folder that we converted gives the same ids as ours."""

import dataclasses

import pytest
import transformers

from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.settings import ConversionSettings
from bert_tf.tokenization import SPECIAL_TOKENS, BertTokenizer
from tests.bert_tf.checkpoint_formats.models import CONFIG, original_values, random_values, save_original

pytestmark = pytest.mark.torch

TEXTS = [
    "The Café in MÜNCHEN cost 3,141 naïve visitors É!", "hello WORLD's résumé - don't 中文字 ok?",
    "cafe\u0301 Cafe\u0301",
    "a\u00a0b\u2028c\u3000d\tE", "x\u200bY \ufeffZ", "Ångström, ŁÓDŹ and İstanbul", "", "...(!)", "日本語のテキスト",
]  # fmt: skip
WORDS = ["The", "the", "Café", "café", "cafe", "##ne", "##ié", "hello", "##LD", "don", "中", "文"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Every character of the texts, composed and decomposed, with and without accents and cases, and a few words."""
    text = "".join(TEXTS)
    characters = sorted({c for form in (text, text.lower()) for c in form if not c.isspace() and c.isprintable()})
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *WORDS, *characters, *(f"##{c}" for c in characters), *"aeioucnsz"])
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return str(path), len(tokens)


@pytest.mark.parametrize("through", ["tf1", "bert_tf", None])
@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
def test_a_converted_folder_tokenizes_as_we_do(vocabulary, tmp_path, lower, through):
    vocab_file, size = vocabulary
    config = dataclasses.replace(CONFIG, vocab_size=size)
    source = tmp_path / f"{'un' if lower else ''}cased_L-2_H-16_A-2"
    source.mkdir()
    save_original(source, original_values(random_values(config)), config)
    flags = [f"--vocab_file={vocab_file}"]
    for format in filter(None, [through, "hugging_face"]):
        target = tmp_path / format
        convert_checkpoint(
            parse(ConversionSettings, [f"--input={source}", f"--output={target}", f"--format={format}", *flags])
        )
        source, flags = target, []
    ours = BertTokenizer(vocab_file, lower)
    expected = ours.encode(TEXTS).to_list()
    theirs = transformers.AutoTokenizer.from_pretrained(target)
    assert [theirs(text, add_special_tokens=False)["input_ids"] for text in TEXTS] == expected
    assert BertTokenizer(vocab_file, not lower).encode(TEXTS).to_list() != expected, "the casing matters"
    assert theirs("a")["input_ids"] == [ours.cls_id, *ours.encode(["a"]).values.numpy(), ours.sep_id]
    assert (theirs.pad_token_id, theirs.mask_token_id, theirs.unk_token_id) == (ours.pad_id, ours.mask_id, ours.unk_id)
    assert theirs.model_max_length == config.max_position_embeddings
