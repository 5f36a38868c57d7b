"""The signatures of exports, read from their files and requested over real sockets."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras as keras
from tensorflow.core.protobuf import saved_model_pb2

from tests.bert_tf.classification import make_task
from tests.export.exports import PAIRS

TEXTS = [a for a, _ in PAIRS]


@pytest.fixture(scope="module")
def signatures(exported):
    models = {name: tf.saved_model.load(folder) for name, folder in exported.items()}
    yield {name: model.signatures for name, model in models.items()}
    del models


def examples(texts, name="text_a"):
    def feature(text):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))

    return [tf.train.Example(features=tf.train.Features(feature={name: feature(text)})) for text in texts]


def test_only_signature_methods_change_in_export_file(exported):
    expected = {"classes": "classify", "scores": "regress"}
    for name, folder in exported.items():
        with open(f"{folder}/saved_model.pb", "rb") as file:
            graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0]
        methods = {key: one.method_name.removeprefix("tensorflow/serving/") for key, one in graph.signature_def.items()}
        assert methods == {
            "serving_default": "predict", "tokens": "predict", "examples": expected[name], "__saved_model_init_op": ""
        }  # fmt: skip
        assert list(graph.signature_def["examples"].inputs) == ["inputs"]
        assert {"classes": {"classes", "scores"}, "scores": {"outputs"}}[name] == set(
            graph.signature_def["examples"].outputs
        )
        assert graph.object_graph_def.nodes and graph.asset_file_def, "the rest of the file is there"
        # The file contains the encoder only once, even if several signatures call it.
        softmaxes = [node.op for function in graph.graph_def.library.function for node in function.node_def]
        halves = 2
        assert softmaxes.count("Softmax") == halves + (name == "classes") * 2


def test_all_input_signatures_give_equal_answers(signatures, tokenizer):
    task = make_task(3, has_pairs=False)
    rows = task.model_inputs({"segment_a": tokenizer.encode(TEXTS)}, tokenizer, 24)
    serialized = tf.constant([example.SerializeToString() for example in examples(TEXTS)])
    for name, (answer, output) in {"classes": ("probabilities", "scores"), "scores": ("score", "outputs")}.items():
        expected = signatures[name]["serving_default"](text_a=tf.constant(TEXTS))[answer]
        assert np.ptp(expected.numpy(), axis=0).min() > 1e-3
        found = signatures[name]["examples"](inputs=serialized)
        np.testing.assert_allclose(found[output], expected, atol=1e-6)
        np.testing.assert_allclose(signatures[name]["tokens"](**rows)[answer], expected, atol=1e-6)
    assert found["outputs"].shape == [len(TEXTS)]
    classes = signatures["classes"]["examples"](inputs=serialized)["classes"].numpy()
    assert classes.tolist() == [[b"0", b"1", b"2"]] * len(TEXTS)


def test_an_export_is_a_layer_of_tensorflow_hub(exported, signatures):
    layer = hub.KerasLayer(exported["classes"])
    text = keras.Input([], dtype=tf.string)
    model = keras.Model(text, layer(text)["probabilities"])
    expected = signatures["classes"]["serving_default"](text_a=tf.constant(TEXTS))["probabilities"]
    np.testing.assert_allclose(model.predict(tf.constant(TEXTS), verbose=0), expected, atol=1e-6)
    trained = keras.Sequential([hub.KerasLayer(exported["classes"], trainable=True, output_key="probabilities")])
    trained.compile(loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="training=True"):
        trained.fit(tf.constant(TEXTS), tf.zeros(len(TEXTS)), verbose=0)
