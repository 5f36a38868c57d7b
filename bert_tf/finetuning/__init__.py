"""Fine-tunes models for any kind of task: the engine, its data, evaluations, sweeps and ensembles."""
