import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import BertTokenizer
from data_gen import documents, token_blocks
from data_gen.settings import GeneratorSettings

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "b", "##b", "c", ".", "ab"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(TOKENS))
    return str(path)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return BertTokenizer(vocabulary)


# includes characters that are white space in Python but that the tokenizer drops inside a word
TEXT = st.text(st.sampled_from("aabc. \t\u3000\x85\x1c\xa0Á日"), max_size=40)


def tokenize(folder, paths, vocabulary):
    sources = [source for path in paths for source in documents.plan_sources(str(path), "lines")]
    groups = token_blocks.group_sources(sources)
    blocks = []
    flags = GeneratorSettings(
        input_file="text", output_file="records", vocab_file=vocabulary, input_format="lines", do_lower_case=True,
        strip_accents=True,
    )  # fmt: skip
    for index, group in enumerate(groups):
        task = token_blocks.TokenizeTask(group, flags, "", f"{folder}/{index:03d}")
        assert token_blocks.read_blocks(task) is None
        found = token_blocks.tokenize_sources(task)
        assert token_blocks.read_blocks(task) == found
        blocks += found
    return blocks


@settings(max_examples=60, deadline=None)
@given(sentences=st.lists(TEXT, max_size=5), at_once=st.integers(1, 30))
@pytest.mark.slow
def test_long_sentences_are_tokenized_as_if_at_once(tmp_path_factory, vocabulary, tokenizer, sentences, at_once):
    path = tmp_path_factory.mktemp("long") / "text"
    path.write_text("\n".join(sentences), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_blocks, "_CHARACTERS_PER_CALL", at_once)
        windows = [token_blocks.load_window([block], str(path)) for block in tokenize(path.parent, [path], vocabulary)]
    found = [part.tolist() for each in windows for part in np.split(each.tokens, each.sentence_starts[1:-1])]
    assert found == [ids for ids in map(tokenizer.encode, zip(sentences)) for ids in ids.to_list() if ids]


def test_small_files_share_a_block(tmp_path, vocabulary, tokenizer):
    paths = []
    for index in range(50):
        paths.append(tmp_path / f"{index:02d}.txt")
        paths[-1].write_text("ab a" + " b" * index + ".")  # no line end, no blank line
    (block,) = tokenize(tmp_path, paths, vocabulary)
    window = token_blocks.load_window([block], "")
    assert (block.documents, block.sentences) == (50, 50)
    for index in range(50):
        start, end = window.sentence_starts[window.document_starts[index] : window.document_starts[index] + 2]
        expected = tokenizer.encode([paths[index].read_text()]).values.numpy()
        np.testing.assert_array_equal(window.tokens[start:end], expected)


def test_omits_text_without_pieces_and_counts_unknowns(tmp_path, vocabulary):
    path = tmp_path / "text"
    path.write_text("a\n\x00\nx b\n\n\x00\n\n\u200b\n\nx y z.\n")
    (block,) = tokenize(tmp_path, [path], vocabulary)
    assert (block.documents, block.sentences, block.tokens, block.unknown) == (2, 3, 7, 4)
    window = token_blocks.load_window([block], "")
    assert window.document_starts.tolist() == [0, 2, 3]
    assert window.sentence_starts.tolist() == [0, 1, 3, 7]
