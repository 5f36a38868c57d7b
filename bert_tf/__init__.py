"""BERT in TensorFlow 2 and Keras: the model and its training (sections 3 and 4 of the paper)."""

import importlib
import sys

__version__ = "0.1.0"

# A program that has imported Keras may load a saved model, which needs the classes and operations of these modules.
# The scripts import this package before TensorFlow, so `--help` stays fast.
if "tf_keras" in sys.modules:
    importlib.import_module("bert_tf.encoder")
    importlib.import_module("bert_tf.preprocessing")
