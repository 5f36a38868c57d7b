"""The lowest layer: errors, flags, files, locks and progress. It imports no other package and no TensorFlow."""
