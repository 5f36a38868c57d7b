"""A checkpoint keeps the tokenizer of its training, and other tokenizers are refused."""

import dataclasses
import json
import os
import shutil

import pytest

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.core import storage
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.run_classifier import main
from bert_tf.text import tokenizer_files
from bert_tf.text.data_vocabulary import DataVocabulary
from bert_tf.tokenization import SPECIAL_TOKENS
from tests.bert_tf import pretraining_runs
from tests.bert_tf.checkpoint_formats.models import original_values, random_values, save_original
from tests.bert_tf.pretraining_runs import write_records
from tests.kit import refused, settings, write


@pytest.fixture(scope="module")
def cased(tmp_path_factory, corpus_file, vocab_file, runs):
    """A folder with cased rows of 32 tokens, a vocabulary that ends in [unused0], and a run on this data in `run`."""
    folder = tmp_path_factory.mktemp("cased")
    (folder / "words.txt").write_text(open(vocab_file).read() + "[unused0]\n")
    write_records(folder / "data", corpus_file, folder / "words.txt", do_lower_case=False)
    pretrain(runs, folder, folder / "run")
    return folder


def pretrain(runs, cased, output_dir, *more: str) -> None:
    one_step = ("--do_train", "--num_train_steps=1", "--num_warmup_steps=0")
    files = f"{runs}/config.json", f"{cased}/data", output_dir
    run_pretraining(pretraining_runs.settings(*files, *one_step, *more))


def classification(folder, start, *more: str):
    for split in ("train", "dev"):
        write(folder / f"{split}.tsv", "text\tlabel\n" + "The man\ta\nthe word\tb\n" * 4)
    return settings(
        "run_classifier", f"--data_dir={folder}", "--task_name=own", f"--output_dir={folder}/out",
        f"--init_checkpoint={start}", "--max_seq_length=8", "--do_train", "--train_batch_size=8",
        "--num_train_epochs=1", *more,
    )  # fmt: skip


def train(*arguments):
    return main(classification(*arguments))


@pytest.mark.slow
def test_pretraining_run_suffices_for_fine_tuning(cased, tmp_path, caplog):
    run = cased / "run"
    train(tmp_path, run)
    for name in ("vocab.txt", "bert_config.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (run / name).read_bytes()
    assert (run / "vocab.txt").read_bytes() == (cased / "words.txt").read_bytes()
    assert f"--do_lower_case=false, as {run}/tokenizer_config.json says" in caplog.text
    # a fine-tuned checkpoint does so too, for its own evaluation and for later fine-tuning
    scores = train(tmp_path, "", "--nodo_train", "--do_eval")
    assert scores["accuracy"] >= 0
    again = checkpoint_tokenizer.stated_rules(checkpoints.open_checkpoint(str(tmp_path / "out")))
    assert again.do_lower_case is False and again.vocab_file == f"{tmp_path}/out/vocab.txt"


def vocabulary_like(cased, path, change) -> str:
    tokens = (cased / "words.txt").read_text().splitlines()
    path.write_text("".join(f"{token}\n" for token in change(tokens)))
    return f"--vocab_file={path}"


@pytest.mark.slow
def test_another_vocabulary_or_casing_is_refused(cased, tmp_path):
    start = cased / "run"
    permuted = vocabulary_like(cased, tmp_path / "permuted.txt", lambda tokens: [*tokens[:5], *tokens[5:][::-1]])
    cut = vocabulary_like(cased, tmp_path / "cut.txt", lambda tokens: tokens[:-3])
    for flag, message in {
        permuted: r"permuted.txt: not the vocabulary that .*ckpt-1 was trained with, .* \(token 5 is .*give the",
        "--do_lower_case": r"--do_lower_case=true: .*tokenizer_config.json says .* --do_lower_case=false",
        cut: r"cut.txt: not the vocabulary .* \(token \d+ is missing: '",
    }.items():
        refused(message, train, tmp_path, start, flag)
    assert not (tmp_path / "out").exists()
    train(tmp_path, start, permuted, "--do_lower_case", "--ignore_checkpoint_tokenizer")
    assert (tmp_path / "out/vocab.txt").read_text() == (tmp_path / "permuted.txt").read_text()
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["do_lower_case"] is True


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tokens: [*tokens, "zebra"], "0 tokens replace"),
        (lambda tokens: tokens[:-1], "0 tokens replace"),
        (lambda tokens: [*tokens[:-1], "zebra"], "1 tokens replace"),
        (lambda tokens: [f"{token}\r" for token in tokens], ""),
    ],
)
def test_a_vocabulary_that_keeps_the_ids_is_taken(cased, tmp_path, caplog, change, said):
    flag = vocabulary_like(cased, tmp_path / "other.txt", change)
    checkpoint_tokenizer.of_run(classification(tmp_path, cased / "run", flag), flag.partition("=")[2])
    assert ("tokens replace [unusedN]" in caplog.text) == bool(said) and said in caplog.text


@pytest.mark.slow
def test_further_pretraining_needs_the_vocabulary(cased, runs, tmp_path):
    start = f"--init_checkpoint={cased}/run"
    pretrain(runs, cased, tmp_path / "again", start)
    lower = [f"--input_file={runs}/32.tfrecord", start]
    message = "32.tfrecord, made with --do_lower_case=true: .*run/tokenizer_config.json"
    refused(message, pretrain, runs, cased, tmp_path / "out", *lower)
    assert not (tmp_path / "out").exists()
    pretrain(runs, cased, tmp_path / "out", *lower, "--ignore_checkpoint_tokenizer")


@pytest.mark.slow
def test_others_data_takes_the_checkpoints_rules(cased, runs, tmp_path):
    shutil.copy(cased / "data", tmp_path / "data")  # without a manifest
    shutil.copy(cased / "words.txt", tmp_path)
    command = f"--init_checkpoint={cased}/run", f"--vocab_file={tmp_path}/words.txt"
    for _ in ("a new run", "the same run again"):
        pretrain(runs, tmp_path, tmp_path / "out", *command)
        assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["do_lower_case"] is False


def test_missing_data_vocabulary_is_compared_by_hash(cased, tmp_path):
    contents, check = checkpoints.open_checkpoint(str(cased / "run")), checkpoint_tokenizer.check_data
    same = DataVocabulary("d", "gone.txt", {"vocab_sha256": storage.sha256(str(cased / "words.txt"))})
    check(contents, same, None)
    check(contents, None, None)
    other = dataclasses.replace(same, facts={"vocab_sha256": "0" * 64})
    refused(
        r"d: made with another vocabulary \(gone.txt, SHA-256 0{12}\) than .*vocab.txt", check, contents, other, None
    )
    path = vocabulary_like(cased, tmp_path / "other.txt", lambda tokens: tokens[::-1]).partition("=")[2]
    rules = tokenizer_files.read(path, do_lower_case=False)
    refused("d, made with .*other.txt: not the vocabulary that .*make the data with the", check, contents, same, rules)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A checkpoint in the original's format."""
    folder = tmp_path_factory.mktemp("published")
    save_original(folder, original_values(random_values()))
    return folder


def words(folder, *tokens: str):
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "the", "man", "word", *tokens]))


@pytest.mark.parametrize(("tokens", "lower"), [(["a"], True), (["The"], False), (["[URL]", "[unused1]"], True)])
def test_the_vocabulary_decides_what_no_file_states(published, tmp_path, caplog, tokens, lower):
    folder = shutil.copytree(published, tmp_path / "model")
    words(folder, *tokens)
    settings = classification(tmp_path, folder)
    rules = checkpoint_tokenizer.of_run(settings, f"{folder}/vocab.txt")
    assert (rules.do_lower_case, rules.strip_accents) == (lower, lower)
    found = "no tokens" if lower else "tokens"
    said = f"--do_lower_case={str(lower).lower()}, because {folder}/vocab.txt has {found} with capital letters"
    assert said in caplog.messages
    against = dataclasses.replace(settings, do_lower_case=not lower)
    assert checkpoint_tokenizer.of_run(against, f"{folder}/vocab.txt").do_lower_case is not lower
    assert f"vocab.txt has {found} with capital letters; leave the flag out to" in caplog.text


@pytest.mark.parametrize(
    ("rules", "flags", "message"),
    [
        ({"do_lower_case": False}, ["--do_lower_case"], "--do_lower_case=true: .*tokenizer_config.json says that"),
        ({"do_lower_case": True, "strip_accents": False}, ["--strip_accents"], "says .* needs --strip_accents=false"),
        ({"tokenize_chinese_chars": False}, [], "tokenizer_config.json: tokenize_chinese_chars is false, which is not"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, [], "tokenizer_class is BertJapaneseTokenizer, which is not"),
    ],
)
def test_contradicting_tokenizer_is_refused(published, tmp_path, rules, flags, message):
    folder = shutil.copytree(published, tmp_path / "model")
    words(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(rules))
    given = classification(tmp_path, folder / "bert_model.ckpt", *flags)
    refused(message, main, given)
    assert not os.path.exists(given.output_dir)
    given = dataclasses.replace(given, ignore_checkpoint_tokenizer=True)
    lower = rules.get("do_lower_case", True) if given.do_lower_case is None else given.do_lower_case
    assert checkpoint_tokenizer.of_run(given, f"{folder}/vocab.txt").do_lower_case is lower
