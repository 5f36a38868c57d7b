"""The lowest layer: errors, flags, files, locks and progress.

Its modules import no other package of this project, and import TensorFlow only inside functions.
"""
