"""Frozen lower layers, and lower layers with lower learning rates."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.core.command_line import parse
from bert_tf.finetuning import lower_layers
from bert_tf.settings import FineTuningSettings
from bert_tf.training import gradients
from bert_tf.training.optimization import CLIP_NORM, AdamWeightDecay, clipped_update, decays
from tests.bert_tf.classification import make_objective
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.kit import refused
from tests.small_configs import small_config

CONFIG = small_config(60, 8, 3, dropout=0.0, max_position_embeddings=8, initializer_range=0.05)
BATCH = {
    "input_ids": tf.constant([[2, 7, 9, 3], [2, 8, 3, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "segment_ids": tf.zeros([2, 4], tf.int32),
    "label_ids": tf.constant([0.0, 1.0]),
    "row_weights": tf.ones([2]),
}
LAYERS = [f"layer {i}" for i in range(3)]


def weights_by_layer(model):
    layers = [model.encoder.embeddings, *model.encoder.blocks, model.encoder.pooler, model.head]
    return {name: each.weights for name, each in zip(["embeddings", *LAYERS, "pooler", "head"], layers, strict=True)}


def accumulate(objective):
    terms = objective.denominators(BATCH)["loss"]
    return gradients.accumulate(
        objective, ("loss", "accuracy"), objective.model.trainable_variables, BATCH, tf.constant([0, 0]), terms,
    )[0]  # fmt: skip


@pytest.mark.parametrize(
    ("frozen", "trained"),
    [(0, ["embeddings", *LAYERS, "pooler", "head"]), (2, [LAYERS[2], "pooler", "head"]), (-1, ["head"])],
)
def test_frozen_layers_are_not_trained(frozen, trained):
    model = make_objective(CONFIG, 2).model
    lower_layers.freeze(model.encoder, frozen)
    expected = [weight for name in trained for weight in weights_by_layer(model)[name]]
    assert {id(w) for w in model.trainable_variables} == {id(w) for w in expected}


@pytest.mark.parametrize(
    ("layers", "taken"),
    [
        (0, ["embeddings"]),
        (2, ["embeddings", *LAYERS[:2]]),
        (3, ["embeddings", *LAYERS, "pooler"]),
        (None, ["embeddings", *LAYERS, "pooler"]),
    ],
)
def test_only_the_lowest_layers_are_transferred(tmp_path, vocab_file, layers, taken):
    theirs = write_pretrained(tmp_path, vocab_file)
    model = make_objective(theirs.config, 2).model
    before = {name: [w.numpy() for w in weights] for name, weights in weights_by_layer(model).items()}
    checkpoints.initialize(model, str(tmp_path), transfer_layers=layers)
    encoder = theirs.encoder
    named = zip(["embeddings", *LAYERS, "pooler"], [encoder.embeddings, *encoder.blocks, encoder.pooler], strict=True)
    expected = before | {name: [w.numpy() for w in part.weights] for name, part in named if name in taken}
    for name, weights in weights_by_layer(model).items():
        for weight, value in zip(weights, expected[name], strict=True):
            np.testing.assert_array_equal(weight, value, err_msg=name)


@pytest.mark.slow
def test_no_gradient_is_computed_below_frozen_layers():
    objective = make_objective(CONFIG, 2)
    everything = dict(zip(map(id, objective.model.trainable_variables), accumulate(objective), strict=True))

    def matrix_products():
        graph = tf.function(lambda: accumulate(objective)).get_concrete_function().graph
        functions = [graph, *(f.graph for f in graph._functions.values() if hasattr(f, "graph"))]
        return sum("MatMul" in operation.type for each in functions for operation in each.get_operations())

    of_all = matrix_products()
    lower_layers.freeze(objective.model.encoder, 2)
    of_one_layer = matrix_products()
    for weight, gradient in zip(objective.model.trainable_variables, accumulate(objective), strict=True):
        np.testing.assert_allclose(gradient, everything[id(weight)], rtol=1e-5, atol=1e-8)
    lower_layers.freeze(objective.model.encoder, -1)
    of_the_head = matrix_products()
    assert of_the_head < of_one_layer < of_all
    assert of_all - of_one_layer > 2 * 6, "no gradients of the weights or of the inputs of two layers"


@pytest.mark.core
def test_lower_layers_have_lower_rates_by_formula():
    objective, decay, rate = make_objective(CONFIG, 2), 0.5, 1e-2
    model = objective.model
    optimizer = AdamWeightDecay(rate, rate_factor=lower_layers.rate_factor(model.encoder, decay))
    before = {id(w): w.numpy().astype(np.float64) for w in model.trainable_variables}
    derived = [tf.convert_to_tensor(gradient) for gradient in accumulate(objective)]
    clipped_update(optimizer, derived, model.trainable_variables)
    scale = CLIP_NORM / max(CLIP_NORM, np.sqrt(sum(np.sum(np.square(g.numpy().astype(np.float64))) for g in derived)))
    gradient_of = {id(w): g.numpy() * scale for w, g in zip(model.trainable_variables, derived, strict=True)}
    factors = dict(zip(["embeddings", *LAYERS], [decay**4, decay**3, decay**2, decay], strict=True))
    for name, weights in weights_by_layer(model).items():
        for weight in weights:
            w, g = before[id(weight)], gradient_of[id(weight)]
            update = 0.1 * g / (np.sqrt(0.001 * g * g) + 1e-6) + (0.01 * w if decays(weight) else 0.0)
            expected = w - rate * factors.get(name, 1.0) * update
            np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5, atol=5e-7, err_msg=f"{name} {weight.name}")


@pytest.mark.parametrize(
    ("flag", "remedy"), [("--transfer_layers", "give at most this number"), ("--frozen_layers", ".*, or -1")]
)
def test_more_layers_than_there_are_are_refused(flag, remedy):
    def check(number):
        flags = ["--output_dir=out", "--do_train", "--max_seq_length=8", "--init_checkpoint=x", f"{flag}={number}"]
        lower_layers.check(CONFIG, parse(FineTuningSettings, flags))

    check(3)
    refused(f"{flag}=4: the model has 3 layers; {remedy}", check, 4)
