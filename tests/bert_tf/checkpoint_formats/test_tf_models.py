import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from official.core import config_definitions as base_config
from official.core import train_utils
from official.legacy.bert import bert_models, configs
from official.nlp.configs import encoders
from official.nlp.configs.bert import PretrainerConfig
from official.nlp.modeling import layers, models, networks
from official.nlp.tasks import masked_lm
from official.nlp.tools import tf1_bert_checkpoint_converter_lib as converter

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import tf_models
from bert_tf.checkpoint_formats.contents import with_trained_pooler
from bert_tf.classifier import TextClassifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.errors import InputError
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.settings import ConversionSettings
from tests.bert_tf.checkpoint_formats.models import (
    CONFIG,
    assert_same,
    original_values,
    random_values,
    save_original,
    values_of,
)
from tests.bert_tf.reference import random_batch, relative_error
from tests.kit import refused

OUTPUTS = ["sequence_output", "pooled_output"]
ENCODERS = [networks.BertEncoder, networks.BertEncoderV2]


@pytest.fixture(scope="module")
def values():
    return random_values()


def their_encoder(kind, config=CONFIG, **more):
    encoder = kind(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size, num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads, inner_dim=config.intermediate_size, output_dropout=0.0,
        max_sequence_length=config.max_position_embeddings, type_vocab_size=config.type_vocab_size,
        attention_dropout=0.0, initializer=keras.initializers.RandomNormal(stddev=0.3), **more,
    )  # fmt: skip
    encoder(encoder.inputs)
    return encoder


def their_pretrainer(encoder, num_classes=2):
    head = layers.ClassificationHead(inner_dim=CONFIG.hidden_size, num_classes=num_classes, name="next_sentence")
    activation = lambda x: tf.nn.gelu(x, approximate=True)  # noqa: E731
    model = models.BertPretrainerV2(encoder, mlm_activation=activation, classification_heads=[head])
    model(their_batch())
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    return model


def their_first_pretrainer(encoder, num_classes=2):
    activation = lambda x: tf.nn.gelu(x, approximate=True)  # noqa: E731
    model = models.BertPretrainer(encoder, num_classes=num_classes, num_token_predictions=4, activation=activation)
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    return model


def our_batch():
    return random_batch(CONFIG, batch=3, length=10, predictions=4)


def their_batch():
    batch = our_batch()
    keys = {"input_ids": "input_word_ids", "input_mask": "input_mask", "segment_ids": "input_type_ids"}
    return {their: batch[our] for our, their in keys.items()} | {
        "masked_lm_positions": batch["masked_lm_positions"]
    }  # fmt: skip


def saved(folder, **items) -> str:
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    tf.train.Checkpoint(**items).write(str(folder / "bert_model.ckpt-1"))
    return str(folder)


@pytest.mark.quick_cases("BertEncoderV2-model")
@pytest.mark.parametrize(("kind", "name"), zip(ENCODERS, ["encoder", "model"], strict=True))
@pytest.mark.core
def test_an_encoder_of_theirs_gives_their_outputs(tmp_path, kind, name):
    theirs = their_encoder(kind)
    ours = checkpoints.load_encoder(saved(tmp_path, **{name: theirs}))
    batch = their_batch()
    del batch["masked_lm_positions"]
    expected = theirs(batch)
    expected = expected if isinstance(expected, dict) else dict(zip(OUTPUTS, expected, strict=True))
    outputs = ours(our_batch())
    for key in OUTPUTS:
        assert relative_error(outputs[key], expected[key]) < 1e-5


def test_their_pretrainers_outputs_are_kept(tmp_path, caplog):
    theirs = their_pretrainer(their_encoder(networks.BertEncoder))
    optimizer = keras.optimizers.Adam()
    optimizer.build(theirs.trainable_variables)
    path = saved(tmp_path, model=theirs, optimizer=optimizer, **theirs.checkpoint_items)
    ours = BertPretrainer(CONFIG)
    checkpoints.initialize(ours, path)
    expected, outputs = theirs(their_batch()), ours(our_batch())
    assert relative_error(outputs["masked_lm_logits"], expected["mlm_logits"]) < 1e-5
    assert relative_error(outputs["next_sentence_logits"], expected["next_sentence"]) < 1e-5
    assert "unused tensors of the checkpoint: encoder/layer_with_weights-6/bias" in caplog.text
    assert re.search(r"kernel, \d+ optimizer tensors$", caplog.text, re.M), caplog.text
    # a separate encoder keeps its own pooler
    pooled = checkpoints.load_encoder(path)(our_batch())["pooled_output"]
    assert relative_error(pooled, theirs.encoder_network.pooler_layer(expected["sequence_output"][:, 0])) < 1e-5


@pytest.mark.slow
def test_outputs_equal_first_tf_models_pretrainer(tmp_path):
    theirs = their_first_pretrainer(their_encoder(networks.BertEncoder))
    path = saved(tmp_path, model=theirs)
    ours = BertPretrainer(CONFIG)
    checkpoints.initialize(ours, path)
    assert checkpoints.open_checkpoint(path).left_over == ()
    expected, outputs = theirs(list(their_batch().values())), ours(our_batch())
    assert relative_error(outputs["masked_lm_logits"], expected["masked_lm"]) < 1e-5
    assert relative_error(outputs["next_sentence_logits"], expected["classification"]) < 1e-5


@pytest.mark.slow
def test_reads_legacy_pretraining_model_with_heads(values, tmp_path):
    config = configs.BertConfig.from_dict(json.loads(CONFIG.to_json_string()) | {"embedding_size": None})
    theirs, _ = bert_models.pretrain_model(config, seq_length=10, max_predictions_per_seq=4)
    contents = checkpoints.open_checkpoint(saved(tmp_path, model=theirs))
    assert contents.tensors.keys() == values.keys() and contents.left_over == ()


@pytest.mark.slow
def test_pretrainer_head_of_other_task_is_left_over(tmp_path):
    theirs = their_pretrainer(their_encoder(networks.BertEncoderV2), num_classes=5)
    contents = checkpoints.open_checkpoint(saved(tmp_path, model=theirs))
    assert not any(path.startswith("next_sentence") for path in contents.tensors)
    assert "model/classification_heads/0/out_proj/kernel" in contents.left_over
    theirs = their_first_pretrainer(their_encoder(networks.BertEncoder), num_classes=3)
    contents = checkpoints.open_checkpoint(saved(tmp_path, model=theirs))
    assert not any(path.startswith("next_sentence") for path in contents.tensors)


@pytest.mark.quick_cases("BertTokenClassifier")
@pytest.mark.parametrize("kind", [models.BertClassifier, models.BertTokenClassifier])
def test_their_classifiers_are_heads(tmp_path, kind):
    theirs = kind(their_encoder(networks.BertEncoder), num_classes=3)
    tensors = checkpoints.open_checkpoint(saved(tmp_path, model=theirs)).tensors
    head = "head" if kind is models.BertClassifier else "token_head"
    kernel = next(v for v in theirs.trainable_variables if v.shape == [16, 3])
    np.testing.assert_array_equal(tensors[f"{head}/dense/kernel"].read(), kernel)


@pytest.mark.slow
def test_the_map_is_that_of_their_converter(values, tmp_path):
    """Through their converter, their encoder and our reader, the weights are equal to the original's."""
    source = tmp_path / "tf1"
    source.mkdir()
    prefix = save_original(source, original_values(values))
    converter.convert(
        prefix, str(tmp_path / "by_name/ckpt"), CONFIG.num_attention_heads, converter.BERT_V2_NAME_REPLACEMENTS,
        converter.BERT_V2_PERMUTATIONS, ["adam", "Adam"],
    )  # fmt: skip
    theirs = models.BertPretrainerV2(their_encoder(networks.BertEncoder))
    theirs(theirs.inputs)
    (tmp_path / "out").mkdir()
    converter.create_v2_checkpoint(theirs, str(tmp_path / "by_name/ckpt"), str(tmp_path / "out/ckpt"), "model")
    (tmp_path / "out/bert_config.json").write_text(CONFIG.to_json_string())
    contents = checkpoints.open_checkpoint(str(tmp_path / "out"))
    assert contents.format == "tf_models"
    assert_same(values_of(contents), {p: v for p, v in values.items() if not p.startswith("next_sentence")})


@pytest.mark.quick_cases("BertEncoderV2")
@pytest.mark.parametrize("kind", ENCODERS)
def test_tf_models_loads_written_checkpoints(values, tmp_path, kind):
    prefix = tf_models.write(str(tmp_path), values, CONFIG)
    encoder = their_encoder(kind)
    tf.train.Checkpoint(encoder=encoder).read(prefix).assert_existing_objects_matched().expect_partial()
    theirs = their_pretrainer(their_encoder(kind))
    tf.train.Checkpoint(model=theirs).read(prefix).assert_existing_objects_matched().expect_partial()
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    ours = BertPretrainer(CONFIG)
    checkpoints.initialize(ours, str(tmp_path))
    expected, outputs = theirs(their_batch()), ours(our_batch())
    assert relative_error(expected["mlm_logits"], outputs["masked_lm_logits"]) < 1e-5
    assert relative_error(expected["next_sentence"], outputs["next_sentence_logits"]) < 1e-5
    assert relative_error(encoder.pooler_layer(expected["sequence_output"][:, 0]), outputs["pooled_output"]) < 1e-5
    head = layers.ClassificationHead(inner_dim=CONFIG.hidden_size, num_classes=4, name="next_sentence")
    head(tf.zeros([1, 2, CONFIG.hidden_size]))
    items = {"next_sentence.pooler_dense": head.checkpoint_items["pooler_dense"]}
    tf.train.Checkpoint(**items).read(prefix).assert_existing_objects_matched().expect_partial()
    np.testing.assert_array_equal(head.dense.kernel, values["encoder/pooler/kernel"])


@pytest.mark.quick_cases("gelu_erf")
@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu"])
def test_their_loader_computes_our_activation(values, tmp_path, act):
    config = dataclasses.replace(CONFIG, hidden_act=act, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (tmp_path / "run").mkdir()
    save_original(tmp_path / "run", original_values(values), config)
    folder = tmp_path / "tf_models"
    convert_checkpoint(ConversionSettings(input=str(tmp_path / "run"), output=str(folder), format="tf_models"))
    theirs = bert_models.get_transformer_encoder(configs.BertConfig.from_json_file(str(folder / "bert_config.json")))
    status = tf.train.Checkpoint(encoder=theirs).read(str(folder / "bert_model.ckpt"))
    status.assert_existing_objects_matched().expect_partial()
    ours = checkpoints.load_encoder(str(folder))
    assert ours.config == config
    batch = their_batch()
    del batch["masked_lm_positions"]
    expected = dict(zip(OUTPUTS, theirs(batch), strict=True))
    assert relative_error(ours(our_batch())["sequence_output"], expected["sequence_output"]) < 1e-5


@pytest.mark.quick_cases("BertEncoderV2-True")
@pytest.mark.parametrize("with_heads", [True, False])
@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.core
def test_their_encoders_load_our_files(values, tmp_path, kind, with_heads):
    values = {path: value for path, value in values.items() if with_heads or path.startswith("encoder/")}
    prefix = tf_models.write(str(tmp_path), values, CONFIG)
    word_embeddings = values["encoder/embeddings/word_embeddings"]
    encoder = their_encoder(kind)
    others = [weight + 1.0 for weight in encoder.get_weights()]
    for names in (["encoder"], ["model"], ["model", "encoder"]):
        for load in ("read", "restore"):
            encoder.set_weights(others)
            checkpoint = tf.train.Checkpoint(**dict.fromkeys(names, encoder))
            getattr(checkpoint, load)(prefix).assert_existing_objects_matched().expect_partial()
            np.testing.assert_array_equal(encoder.get_embedding_table(), word_embeddings)
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    assert with_trained_pooler(checkpoints.open_checkpoint(str(tmp_path))).tensors.keys() == values.keys()


@pytest.mark.slow
def test_their_first_pretrainer_loads_what_we_write(values, tmp_path):
    prefix = tf_models.write(str(tmp_path), values, CONFIG)
    theirs = their_first_pretrainer(their_encoder(networks.BertEncoder))
    tf.train.Checkpoint(model=theirs).restore(prefix).assert_existing_objects_matched().expect_partial()
    np.testing.assert_array_equal(theirs.classification.get_weights()[0], values["next_sentence/dense/kernel"])
    # but not the output of a head whose pooling differs from the encoder's
    pooler = {f"next_sentence/pooler/{name}": values[f"encoder/pooler/{name}"] + 1 for name in ("kernel", "bias")}
    status = tf.train.Checkpoint(model=theirs).read(tf_models.write(str(tmp_path), values | pooler, CONFIG))
    with pytest.raises(AssertionError, match="logits"):
        status.assert_existing_objects_matched()


@pytest.mark.slow
def test_their_task_models_load_what_we_write(values, tmp_path):
    encoder = {path: value for path, value in values.items() if path.startswith("encoder/")}
    rng = np.random.default_rng(0)
    for head, kind, outputs in [
        ("head", models.BertClassifier, 3), ("token_head", models.BertTokenClassifier, 5),
        ("span_head", models.BertSpanLabeler, 2),
    ]:  # fmt: skip
        weights = {f"{head}/dense/kernel": rng.random([16, outputs], np.float32),
                   f"{head}/dense/bias": rng.random(outputs, np.float32)}  # fmt: skip
        folder = tmp_path / head
        folder.mkdir()
        prefix = tf_models.write(str(folder), encoder | weights, CONFIG)
        theirs = kind(their_encoder(networks.BertEncoder), **({} if head == "span_head" else {"num_classes": outputs}))
        tf.train.Checkpoint(model=theirs).read(prefix).assert_existing_objects_matched().expect_partial()
        kernel = theirs.trainable_variables[-2]
        np.testing.assert_array_equal(kernel, weights[f"{head}/dense/kernel"])
        (folder / "bert_config.json").write_text(CONFIG.to_json_string())
        assert_same(values_of(checkpoints.open_checkpoint(str(folder))), encoder | weights)


def test_their_runs_are_loaded_from_their_folders(tmp_path, vocab_file):
    """A folder as their trainer leaves it, with the file `checkpoint`, is not taken for a run of ours."""
    theirs = models.BertClassifier(their_encoder(networks.BertEncoder), num_classes=3)
    tf.train.CheckpointManager(tf.train.Checkpoint(model=theirs), str(tmp_path), 1).save(7)
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    vocabulary = open(vocab_file).read().split()[: CONFIG.vocab_size]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    ours = TextClassifier.load(str(tmp_path), has_pairs=False)
    ids = ours._trained.tokenizer.encode(["the of and"]).numpy()[0].tolist()
    cls_id, sep_id = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    row = tf.constant([[cls_id, *ids, sep_id]])
    logits = theirs([row, tf.ones_like(row), tf.zeros_like(row)])
    np.testing.assert_allclose(ours.probabilities(["the of and"]), tf.nn.softmax(logits), atol=1e-6)


def test_another_number_of_heads_is_refused_by_tensor(tmp_path):
    path = saved(tmp_path, encoder=their_encoder(networks.BertEncoderV2))
    config = CONFIG.to_json_string().replace('"num_attention_heads": 2', '"num_attention_heads": 4')
    (tmp_path / "bert_config.json").write_text(config)
    with pytest.raises(InputError, match=r"num_attention_heads=4, but the tensor encoder/.*query_dense/kernel of .* 2"):
        checkpoints.load_encoder(path)
    (tmp_path / "bert_config.json").unlink()
    refused(r"bert_config.json: no such file; put the configuration", checkpoints.load_encoder, path)
    with pytest.raises(InputError, match="has num_attention_heads=2, but the model has 4"):
        checkpoints.initialize(BertPretrainer(dataclasses.replace(CONFIG, num_attention_heads=4)), path)


@pytest.mark.parametrize("kind", ["bert", "bert_v2"])
def test_reads_configuration_from_params_yaml(kind, tmp_path):
    bert = {"vocab_size": 40, "hidden_size": 16, "num_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "max_position_embeddings": 12, "type_vocab_size": 2}  # fmt: skip
    config = encoders.EncoderConfig(type=kind, **{kind: encoders.BertEncoderConfig(**bert)})
    theirs = encoders.build_encoder(config)
    theirs(theirs.inputs)
    path = saved(tmp_path, encoder=theirs)
    (tmp_path / "bert_config.json").unlink()
    params = base_config.ExperimentConfig(task=masked_lm.MaskedLMConfig(model=PretrainerConfig(encoder=config)))
    train_utils.serialize_config(params, path)
    assert checkpoints.load_encoder(path).config == CONFIG
    params.task.model.encoder.get().norm_first = True
    train_utils.serialize_config(params, path)
    refused("params.yaml: describes an encoder other than BERT .norm_first.; give a", checkpoints.load_encoder, path)
    params.task.model.encoder = encoders.EncoderConfig(type="albert")
    train_utils.serialize_config(params, path)
    refused("params.yaml: describes an encoder other than BERT .albert.; give a", checkpoints.load_encoder, path)
    (tmp_path / "params.yaml").write_text("task: {}\n")
    refused("params.yaml: does not describe a BERT encoder", checkpoints.load_encoder, path)


def test_a_factorized_encoder_is_refused_by_tensor(tmp_path):
    path = saved(tmp_path, encoder=their_encoder(networks.BertEncoderV2, embedding_width=8))
    refused("_embedding_projection/.* has no place in the model", checkpoints.load_encoder, path)
