"""Pre-training: objective, data, phases, evaluation and fill-mask."""
