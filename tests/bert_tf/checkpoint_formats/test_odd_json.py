"""JSON files of another project with values that they should not have end in one line."""

import json
import shutil

import hypothesis
import pytest
from hypothesis import strategies as st

from bert_tf.conversion import convert_checkpoint
from bert_tf.core.errors import InputError
from bert_tf.settings import ConversionSettings
from tests.bert_tf.checkpoint_formats.models import original_values, random_values, save_original

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(33))]
FAST = {
    "added_tokens": [{"id": 38, "content": "[URL]", "special": True, "normalized": False, "single_word": False}],
    "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": "##",
        "vocab": dict(zip(TOKENS, range(38), strict=True)),
    },
}
SLOW = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 12, "added_tokens_decoder": {
    "38": {"content": "[URL]", "special": True, "normalized": False}}}  # fmt: skip


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder of transformers, with the entries of its JSON files by their paths."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "source").mkdir()
    save_original(folder / "source", original_values(random_values()))
    flags = {"input": str(folder / "source"), "output": str(folder / "hf"), "format": "hugging_face"}
    convert_checkpoint(ConversionSettings(**flags))
    config = json.loads((folder / "hf/config.json").read_text()) | {"id2label": {"0": "a"}, "label2id": {"a": 0}}
    files = {"config.json": config, "tokenizer.json": FAST, "tokenizer_config.json": SLOW}
    for name, entries in files.items():
        (folder / "hf" / name).write_text(json.dumps(entries))
    return folder / "hf", [path for name, entries in files.items() for path in paths_in(entries, (name,))], files


def paths_in(entries, path):
    for key in entries if isinstance(entries, dict) else range(len(entries)):
        if key in TOKENS:  # one token is like another
            continue
        yield (*path, key)
        if isinstance(entries[key], (dict, list)):
            yield from paths_in(entries[key], (*path, key))


@pytest.mark.slow
@hypothesis.settings(max_examples=200)
@hypothesis.given(st.data())
def test_odd_json_is_read_or_refused_in_a_line(theirs, data):
    folder, paths, files = theirs
    name, *keys = data.draw(st.sampled_from(paths))
    entries = inner = json.loads(json.dumps(files[name]))
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = data.draw(VALUES)
    target = folder.parent / "out"
    (folder / name).write_text(json.dumps(entries))
    try:
        convert_checkpoint(ConversionSettings(input=str(folder), output=str(target), format="bert_tf"))
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    finally:
        shutil.rmtree(target, ignore_errors=True)
        (folder / name).write_text(json.dumps(files[name]))
