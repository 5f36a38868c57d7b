import pytest
import tensorflow as tf

from bert_tf.tokenization import BertTokenizer
from data_gen import documents


def read(tmp_path, vocab_file, *files):
    paths = []
    for number, content in enumerate(files):
        paths.append(str(tmp_path / f"{number}.txt"))
        with open(paths[-1], "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    tokenizer = BertTokenizer(vocab_file)
    found = documents.read_documents(paths, tokenizer)
    return [[" ".join(tokenizer.to_pieces(sentence)) for sentence in document] for document in found]


@pytest.mark.parametrize(
    "files, expected",
    [
        (["The of\nand.\n\nto in\n"], [["the of", "and ."], ["to in"]]),
        (["the\n", "of\n"], [["the"], ["of"]]),  # a document ends with its file
        (["the", "of"], [["the"], ["of"]]),  # and a line does without a line end
        (["\n\n\nthe\n\n\n\nof\n\n\n"], [["the"], ["of"]]),
        (["the\n  \t\nof\n"], [["the"], ["of"]]),  # white space alone is a blank line
        (["the\r\nof\r\n\r\nand\r\n"], [["the", "of"], ["and"]]),
        (["  the  \n\tof\n"], [["the", "of"]]),
        # a line without a piece is no sentence, but no boundary either
        (["the\n\u200b\x01\nof\n"], [["the", "of"]]),
        # invalid bytes are dropped before a line is looked at, so a line of them is blank
        ([b"the\n\xff\nof\xff\n"], [["the"], ["of"]]),
        (["\u200b\n", "the\n"], [["the"]]),
        (["", "\n", "the\n"], [["the"]]),
        pytest.param(
            ["the\n\u00a0\nof\n\u3000\nand\n"],
            [["the"], ["of"], ["and"]],
        ),
    ],
)
def test_documents_are_what_the_originals_format_says(tmp_path, vocab_file, files, expected):
    assert read(tmp_path, vocab_file, *files) == expected


def test_documents_longer_than_a_batch_of_lines_stay_whole(tmp_path, vocab_file):
    long = ["the of"] * 1500
    # a batch ends at line 1024, 2048, ...: within a document, at a blank line, before one
    for sizes in ([1500, 546, 3], [1023, 1, 5], [1024, 5]):
        text = "\n\n".join("\n".join((long * 2)[:size]) for size in sizes) + "\n"
        assert [len(document) for document in read(tmp_path, vocab_file, text)] == sizes


def test_sentences_are_ids_of_the_tokenizer(tmp_path, vocab_file):
    (tmp_path / "text").write_text("Thez, the!\n")
    tokenizer = BertTokenizer(vocab_file)
    ((sentence,),) = documents.read_documents([str(tmp_path / "text")], tokenizer)
    assert sentence.dtype == tf.int32.as_numpy_dtype
    assert tokenizer.to_pieces(sentence) == ["the", "##z", ",", "the", "!"]
