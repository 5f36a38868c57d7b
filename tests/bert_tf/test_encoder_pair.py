"""A left-to-right and a right-to-left encoder that are read as one, as in ELMo."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.config import BertConfig
from bert_tf.encoder_pair import make_encoder
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.modeling.heads import FeatureTaggingHead
from bert_tf.tasks.trained import load
from bert_tf.text import tokenizer_files
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.reference import random_batch
from tests.bert_tf.tagging import sentences, write
from tests.export.exports import ask, export
from tests.kit import refused, run

SIZES = {"vocab_size": 400, "max_position_embeddings": 40}


@pytest.fixture(scope="module")
def halves(tmp_path_factory, vocab_file):
    """The folders of two pre-trained models."""
    folder = tmp_path_factory.mktemp("halves")
    for direction in ("ltr", "rtl"):
        write_pretrained(folder / direction, vocab_file, directionality=direction, **SIZES)
    return folder


def test_the_outputs_of_both_encoders_are_joined(halves):
    paths = [str(halves / direction) for direction in ("ltr", "rtl")]
    pair, alone = checkpoints.load_encoder(",".join(paths)), [checkpoints.load_encoder(path) for path in paths]
    assert pair.config.hidden_size == 2 * alone[0].config.hidden_size
    batch = random_batch(alone[0].config, batch=3, length=24, predictions=2)
    outputs, expected = pair(batch), [encoder(batch) for encoder in alone]
    for name in ("sequence_output", "pooled_output", "embedding_output"):
        np.testing.assert_allclose(outputs[name], np.concatenate([each[name] for each in expected], -1), atol=1e-6)
    for layer, output in enumerate(outputs["encoder_outputs"]):
        joined = np.concatenate([each["encoder_outputs"][layer] for each in expected], -1)
        np.testing.assert_allclose(output, joined, atol=1e-6)


def test_each_half_sees_only_its_direction_when_packed():
    config = BertConfig(24, 16, 2, 2, 32, max_position_embeddings=24, type_vocab_size=2, directionality="ltr")
    tf.random.set_seed(0)
    pair = make_encoder(BertConfig.joined(config))
    # Two examples of ten tokens share the row. Each position has its own word embedding.
    ids = np.repeat([1, 2, 0], [10, 10, 4])[np.newaxis].astype(np.int32)
    inputs = {
        "input_ids": tf.range(24)[tf.newaxis], "input_mask": tf.constant((ids > 0).astype(np.int32)),
        "sequence_ids": tf.constant(ids), "position_ids": tf.constant([[*range(10), *range(10), *range(4)]]),
        "cls_positions": tf.constant([[0, 10]]),
    }  # fmt: skip
    tables = [encoder.embeddings.word_embeddings for encoder in pair.encoders]
    for place in (4, 13):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(pair(inputs)["sequence_output"][:, place] ** 3)
        column, same = np.arange(24), ids[0] == ids[0, place]
        for gradient, visible in zip(tape.gradient(total, tables), (column <= place, column >= place), strict=True):
            reached = np.abs(tf.convert_to_tensor(gradient)).max(axis=-1) > 0
            np.testing.assert_array_equal(reached, visible & same)


@pytest.mark.core
def test_elmos_sum_of_layers_equals_its_formula():
    config = BertConfig(24, 16, 3, 2, 32)
    head = FeatureTaggingHead(config, num_labels=2, features="elmo", lstm_size=4)
    assert head.layers == (0, 1, 2, 3)
    rng = np.random.default_rng(0)
    scores, layers = rng.normal(size=4).astype(np.float32), rng.normal(size=(2, 5, 4, 16)).astype(np.float32)
    head.layer_weights.assign(scores)
    head.scale.assign(0.7)
    softmax = np.exp(scores) / np.exp(scores).sum()
    summed = 0.7 * sum(weight * layers[:, :, j] for j, weight in enumerate(softmax))
    on_sum = FeatureTaggingHead(config, num_labels=2, features="last_hidden", lstm_size=4)
    for path, variable in checkpoints.variables_by_path(on_sum).items():
        variable.assign(checkpoints.variables_by_path(head)[path])
    mask = tf.ones([2, 5], tf.int32)
    expected = on_sum(tf.constant(summed[:, :, np.newaxis], tf.float32), mask)
    np.testing.assert_allclose(head(tf.constant(layers), mask), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"directionality": "ltr"}, "a pair needs one left-to-right and one right-to-left encoder"),
        ({"directionality": "bidi"}, r"directionality=bidi\): a pair needs one left-to-right"),
        ({"num_hidden_layers": 2}, "has num_hidden_layers=3, but .*other has 2; give two checkpoints of equal"),
    ],
)
def test_halves_that_do_not_fit_are_refused(halves, tmp_path, vocab_file, changes, message):
    write_pretrained(tmp_path / "other", vocab_file, **{**SIZES, "directionality": "rtl", **changes})
    refused(message, checkpoints.open_checkpoint, f"{halves}/ltr,{tmp_path}/other")


def test_refuses_halves_with_different_tokenizers(halves, tmp_path, vocab_file):
    write_pretrained(tmp_path / "other", vocab_file, directionality="rtl", **SIZES)
    path = f"{halves}/ltr,{tmp_path}/other"
    checkpoints.open_checkpoint(path)
    words = (tmp_path / "other/vocab.txt").read_text().splitlines()
    (tmp_path / "other/vocab.txt").write_text("\n".join([*words[:-1], "unlike"]) + "\n")
    refused("other has another tokenizer than .*ltr: another vocabulary", checkpoints.open_checkpoint, path)
    (tmp_path / "other/vocab.txt").write_text("\n".join(words) + "\n")
    for folder, lower in ((tmp_path / "cased", False), (tmp_path / "uncased", True)):
        direction = "rtl" if lower else "ltr"
        model = write_pretrained(folder, vocab_file, directionality=direction, **SIZES)
        checkpoint_tokenizer.write(str(folder), model.config, tokenizer_files.read(vocab_file, lower))
    path = f"{tmp_path}/cased,{tmp_path}/uncased"
    message = "uncased has another tokenizer .*: --do_lower_case=true instead of"
    refused(message, checkpoints.open_checkpoint, path)


def test_a_pair_is_converted_with_more_words(halves, tmp_path):
    words = (halves / "ltr/vocab.txt").read_text().splitlines()
    (tmp_path / "more.txt").write_text("\n".join([*words, "worda", "wordb"]) + "\n")
    pair = f"{halves}/ltr,{halves}/rtl"
    given = {"input": pair, "format": "bert_tf"}
    run("convert_checkpoint", **given, output=f"{tmp_path}/same")
    extended = f"{tmp_path}/more.txt"
    run("convert_checkpoint", **given, output=f"{tmp_path}/more", extended_vocab_file=extended)
    same, more, encoder = (checkpoints.load_encoder(path) for path in (f"{tmp_path}/same", f"{tmp_path}/more", pair))
    assert more.config.vocab_size == max(encoder.config.vocab_size, len(words) + 2)
    batch = random_batch(same.config, batch=2, length=24, predictions=2)
    for each in (same, more):
        np.testing.assert_array_equal(each(batch)["sequence_output"], encoder(batch)["sequence_output"])


def test_cls_of_a_left_to_right_model_is_no_vector(halves):
    message = "reads no other token in a left-to-right model; give mean or max"
    refused(message, FeatureExtractor, f"{halves}/ltr", pooling="cls")


def test_vectors_of_a_pair_are_the_joined_layers(halves):
    paths = [str(halves / direction) for direction in ("ltr", "rtl")]
    found = [FeatureExtractor(path, layers="-1,1") for path in (",".join(paths), *paths)]
    joined, *alone = (extractor.tokens(["the man said"])[0] for extractor in found)
    assert joined.values.shape[-1] == 2 * alone[0].values.shape[-1]
    expected = np.concatenate([each.values for each in alone], -1)
    np.testing.assert_allclose(joined.values, expected, atol=1e-5)


@pytest.fixture(scope="module")
def tagger(halves, tmp_path_factory):
    """The folder of an ELMo-style tagger, and its data."""
    folder = tmp_path_factory.mktemp("elmo")
    vocabulary = (halves / "ltr/vocab.txt").read_text().split()
    for seed, split in enumerate(("train", "dev")):
        write(folder / f"{split}.txt", sentences(vocabulary, 30, seed))
    train(folder, "--do_train", "--do_eval", f"--init_checkpoint={halves}/ltr,{halves}/rtl")
    return folder


def train(folder, *flags):
    data = {split: f"{folder}/{split}.txt" for split in ("train", "dev")}
    return run(
        "run_ner", f"--output_dir={folder}/run", f"--train_data_path={data['train']}",
        f"--eval_data_path={data['dev']}", "--feature_layers=elmo", "--lstm_size=8", "--max_seq_length=32",
        "--num_train_epochs=2", "--learning_rate=1e-2", *flags,
    )  # fmt: skip


@pytest.mark.slow
def test_a_tagger_on_a_pair_answers_strings(halves, tagger):
    config = json.loads((tagger / "run/bert_config.json").read_text())
    assert config["directionality"] == "ltr+rtl"
    expected = (tagger / "run/dev_predictions.txt").read_text()
    train(tagger, "--do_eval")  # without the two checkpoints
    train(tagger, "--do_train", "--do_eval", f"--init_checkpoint={halves}/ltr,{halves}/rtl")  # nothing is left
    assert (tagger / "run/dev_predictions.txt").read_text() == expected
    lines = [block.splitlines() for block in expected.strip().split("\n\n")]
    texts = [" ".join(line.split()[0] for line in block) for block in lines]
    answers = ask(export(tagger / "run"), "words", words=texts)
    found = [[tag.decode() for tag in row if tag] for row in answers["tags"]]
    assert found == [[line.split()[-1] for line in block] for block in lines]


@pytest.mark.slow
def test_a_pairs_checkpoint_is_like_any_other(tagger):
    trained = load(str(tagger / "run"), "last").model.encoder
    loaded = checkpoints.load_encoder(str(tagger / "run"))
    batch = random_batch(dataclasses.replace(loaded.ltr.config), batch=2, length=16, predictions=2)
    np.testing.assert_array_equal(loaded(batch)["sequence_output"], trained(batch)["sequence_output"])
