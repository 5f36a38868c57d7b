"""Training any objective: the step, the loop, optimizers, throughput, progress and summaries."""
