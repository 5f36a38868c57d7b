"""BERT in TensorFlow 2 and Keras: the model and its training (sections 3 and 4 of the paper).

Letters in the shapes of all packages, unless a module says otherwise:

- data: N texts, examples or rows of a split; B rows or texts of a batch; S sequence length; C classes or labels;
  P predictions of a row; R packed rows of a batch, of the length W, with up to K rows each;
- model: H hidden size, or size of a vector; L layers; A attention heads; D = H / A size of a head; I intermediate size;
  V vocabulary size.
"""

import importlib
import sys

__version__ = "0.1.0"

# The classes and functions that `from bert_tf import NAME` loads on first use, and their modules.
_PUBLIC = {
    "BertConfig": "config", "BertEncoder": "encoder", "BertPreprocessor": "preprocessing",
    "BertTokenizer": "tokenization", "FeatureExtractor": "features.extractor", "TextClassifier": "classifier",
    "TextEmbedder": "embedder", "load_encoder": "checkpoints",
}  # fmt: skip
# Classes with long work, which a program and a notebook see as in the scripts.
_TRAINABLE = ("TextClassifier", "TextEmbedder")


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    if name in _TRAINABLE:  # before TensorFlow is imported
        importlib.import_module("bert_tf.core.log_lines").set_up_in_program()
    return getattr(importlib.import_module(f"bert_tf.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]


# A program that has imported Keras may load a saved model, which needs the classes and operations of these modules.
# The scripts import this package before TensorFlow, so `--help` stays fast.
if "tf_keras" in sys.modules:
    importlib.import_module("bert_tf.encoder")
    importlib.import_module("bert_tf.preprocessing")
