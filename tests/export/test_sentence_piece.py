"""Runs of all kinds with a SentencePiece tokenizer: their folders, exports, copies, and what they refuse."""

import dataclasses
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints import read_config
from bert_tf.classifier import TextClassifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.finetuning.task import encoded_split
from bert_tf.settings import ConversionSettings
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_file import Question
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.text import tokenizer_files
from bert_tf.tokenization import BertTokenizer
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings, VocabularySettings
from data_gen.vocabulary import learn_vocabulary
from export import loading
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.tagging import make_task
from tests.bert_tf.tasks import small_runs
from tests.bert_tf.text import sentence_pieces
from tests.export.exports import ask, export, put_together
from tests.small_configs import small_config

CONFIG = small_config(1600, initializer_range=0.2)
TEXTS = [*sentence_pieces.lines(12, 6), "☃ ﬁ x☃", "", "e\u0301 a", "<mask> a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sentence_pieces.folder_with_model(tmp_path_factory.mktemp("pieces"))


def run_of(run: pathlib.Path, folder: str, task, length: int):
    """Makes the folder of an untrained run; returns its model and its tokenizer."""
    run.mkdir()
    model = put_together(run, f"{folder}/sentencepiece.bpe.model", task, length, spread=0.5, config=CONFIG)
    (run / "vocab.txt").unlink()
    tokenizer = BertTokenizer(folder)
    tokenizer_files.write(str(run), tokenizer.rules, length)
    return model, tokenizer


@pytest.mark.slow
def test_served_answers_equal_the_trainers(tmp_path, folder):
    task = SquadTask(Decoding(exact_offsets=True), 8, 6)
    model, tokenizer = run_of(tmp_path / "run", folder, task, 24)
    pairs = [("az?", " ".join(sentence_pieces.lines(4, seed)) + " ☃ x☃  ﬁ") for seed in range(6)]
    questions = [Question(str(number), *pair, ()) for number, pair in enumerate(pairs)]
    split = encoded_split(task, questions, tokenizer, 24)
    inputs = task.model_inputs(split.columns, tokenizer, 24)
    logits = task.prediction(model(inputs)["logits"], inputs).numpy()
    found = task.by_example(split, logits)[1]
    answers = ask(export(tmp_path / "run"), question=[q for q, _ in pairs], context=[c for _, c in pairs])
    for number, (_, context) in enumerate(pairs):
        best = found[number].candidates[0]
        assert answers["answer"][number].decode() == best.text == context[slice(*best.offsets)]
        assert (answers["start"][number], answers["end"][number]) == best.offsets


@pytest.mark.slow
def test_served_tags_equal_the_trainers(tmp_path, folder):
    task = make_task()
    model, tokenizer = run_of(tmp_path / "run", folder, task, 24)
    sentences = [text.split() for text in TEXTS if text]
    split = encoded_split(task, [Sentence(tuple(words), None, 1) for words in sentences], tokenizer, 24)
    inputs = task.model_inputs(split.columns, tokenizer, 24)
    tags = task.predicted_tags(split, task.prediction(model(inputs)["logits"], inputs).numpy())
    answers = ask(export(tmp_path / "run"), "words", words=[" ".join(words) for words in sentences])
    for number, words in enumerate(sentences):
        assert [tag.decode() for tag in answers["tags"][number, : len(words)]] == tags[number]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "choice", "embeddings"])
def test_each_kind_is_trained_and_exported(tmp_path, folder, kind):
    small_runs.write_data(tmp_path)
    (tmp_path / "config.json").write_text(CONFIG.to_json_string())
    main, settings, flags = small_runs.KINDS[kind]
    run = str(tmp_path / "run")
    main(parse(settings, [
        *(flag.format(tmp_path) for flag in flags), f"--vocab_file={folder}/sentencepiece.bpe.model", "--do_train",
        f"--bert_config_file={tmp_path}/config.json", f"--output_dir={run}", "--max_seq_length=24",
        "--train_batch_size=8", "--num_train_epochs=1",
    ]))  # fmt: skip
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json"} < files and "vocab.txt" not in files
    assert tokenizer_files.read(run).facts == tokenizer_files.read(folder).facts
    version = export_saved_model(ExportSettings(
        checkpoint_dir=run, export_dir=str(tmp_path / "model/1"), task_name="embeddings" * (kind == "embeddings")
    ))  # fmt: skip
    assert loading.check(version)[1] >= 4
    assert tokenizer_files.read(version).facts == tokenizer_files.read(folder).facts
    assert not {"SentencepieceTokenizeWithOffsetsOp", "SentencepieceOp"} - {op for op, _ in loading._used(version)}


def checkpoint_of(folder: pathlib.Path, **options: str) -> str:
    """Writes a pre-trained checkpoint whose tokenizer is a model of SentencePiece."""
    (vocabulary := folder.with_suffix(".txt")).write_text("")
    write_pretrained(folder, str(vocabulary), vocab_size=1600)
    (folder / "vocab.txt").unlink()
    return sentence_pieces.folder_with_model(folder, **options)


@pytest.mark.slow
def test_a_classifier_is_trained_resumed_and_saved(tmp_path):
    texts, labels, run = ["az ab", "аё аж"] * 8, ["a", "b"] * 8, str(tmp_path / "run")
    model, options = checkpoint_of(tmp_path / "model"), {"max_seq_length": 16, "num_train_epochs": 1, "dev_share": 0}
    expected = TextClassifier.train(texts, labels, model, run, **options).probabilities(TEXTS)
    rules = tokenizer_files.read(model)
    other = dataclasses.replace(rules, unigram=rules.unigram._replace(charsmap=""))
    tokenizer_files.write(str(tmp_path), other, 16)
    with pytest.raises(InputError, match="has other added tokens, scores or rows; give the checkpoint's vocabulary"):
        new = {"output_dir": str(tmp_path / "new"), "vocab_file": str(tmp_path / "tokenizer.json")}
        TextClassifier.train(texts, labels, model, **new, **options)
    TextClassifier.load(run).save(str(tmp_path / "copy"))
    copy = TextClassifier.load(str(tmp_path / "copy"))
    np.testing.assert_allclose(copy.probabilities(TEXTS), expected, atol=1e-6)
    convert_checkpoint(parse(ConversionSettings, [
        f"--input={run}", f"--output={tmp_path}/theirs", "--format=hugging_face",
    ]))  # fmt: skip
    converted = TextClassifier.load(str(tmp_path / "theirs"))
    np.testing.assert_allclose(converted.probabilities(TEXTS), expected, atol=1e-6)


@pytest.mark.slow
def test_a_cut_vocabulary_keeps_the_vectors_of_texts(tmp_path):
    source, texts = checkpoint_of(tmp_path / "model"), sentence_pieces.lines(50, 9)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    convert_checkpoint(parse(ConversionSettings, [
        f"--input={source}", f"--output={tmp_path}/cut", "--format=hugging_face",
        f"--keep_vocabulary_of={tmp_path}/texts.txt",
    ]))  # fmt: skip
    vectors = [FeatureExtractor.of_texts(folder).sentences(texts) for folder in (source, str(tmp_path / "cut"))]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    sizes = [len(BertTokenizer(folder).vocabulary) for folder in (source, str(tmp_path / "cut"))]
    assert sizes[1] < sizes[0] and read_config(f"{tmp_path}/cut/config.json").vocab_size == sizes[1]


def test_pretraining_and_extension_are_refused(tmp_path, folder):
    (tmp_path / "text.txt").write_text("az ab.\n")
    own = {"input_file": str(tmp_path / "text.txt"), "output_file": str(tmp_path / "out")}
    with pytest.raises(InputError, match="is a Unigram model, but pre-training data needs WordPiece; give a vocab.txt"):
        create_pretraining_data(GeneratorSettings(vocab_file=folder, **own), None)
    with pytest.raises(InputError, match="is a Unigram model, but --extend_vocab needs WordPiece; give a vocab.txt"):
        learn_vocabulary(VocabularySettings(extend_vocab=folder, vocab_size=9000, **own))
