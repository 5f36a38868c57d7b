"""Writes small models with transformers, and their outputs.

  python write_files.py FOLDER

This script runs in an environment of its own (`make test-migration`), because the library needs other versions.
"""

import os
import sys

import numpy as np

IDS = np.array([[2, 5, 6, 3, 0, 0], [2, 9, 3, 17, 20, 3]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEGMENTS = np.array([[0] * 6, [0, 0, 0, 1, 1, 1]], np.int32)


def randomize(variables) -> None:
    """Sets all weights to random values that have an effect."""
    rng = np.random.default_rng(0)
    for variable in variables:
        variable.assign(rng.normal(size=variable.shape) * 0.2 + (1.0 if "gamma" in variable.name else 0.0))


def write(folder: str) -> None:
    """Writes the models with a head for the next sentence, and a SavedModel of an encoder with its own name."""
    import transformers

    heads = {
        "ForPreTraining": ("prediction_logits", "seq_relationship_logits"),
        "ForNextSentencePrediction": ("logits",),
    }
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=32,
        max_position_embeddings=20,
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}
    for name, outputs in heads.items():
        model = getattr(transformers, f"TFBert{name}")(config)
        model(**inputs)
        randomize(model.variables)
        found = model(**inputs)
        for form in (False, True):
            model.save_pretrained(f"{folder}/{name}/{'safetensors' if form else 'h5'}", safe_serialization=form)
        np.savez(f"{folder}/{name}/expected.npz", **{output: found[output].numpy() for output in outputs})
    model = transformers.TFBertModel(config, name="my_model")
    model(**inputs)
    randomize(model.variables)
    np.savez(f"{folder}/named.npz", sequence=model(**inputs)["last_hidden_state"].numpy())
    model.save_pretrained(f"{folder}/named", saved_model=True)


if __name__ == "__main__":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    write(sys.argv[1])
