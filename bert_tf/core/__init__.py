"""The lowest layer: errors, flags, files, locks and progress. It imports neither other packages nor TensorFlow."""
