"""BERT in TensorFlow 2 and Keras: the model and its training (sections 3 and 4 of the paper)."""

__version__ = "0.1.0"
