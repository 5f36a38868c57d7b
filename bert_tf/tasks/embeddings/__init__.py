"""Vectors of texts for search and similarity: training, evaluation and mining of negatives."""
