"""Writes small models with the library that the argument names, and their outputs: hugging_face or keras_hub.

  python write_files.py hugging_face FOLDER

This script runs in an environment of its own (`make test-migration`), because the library needs other versions.
"""

import os
import sys

import numpy as np

IDS = np.array([[2, 5, 6, 3, 0, 0], [2, 9, 3, 17, 20, 3]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEGMENTS = np.array([[0] * 6, [0, 0, 0, 1, 1, 1]], np.int32)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))]


def randomize(variables) -> None:
    """Sets all weights to random values that have an effect."""
    rng = np.random.default_rng(0)
    for variable in variables:
        variable.assign(rng.normal(size=variable.shape) * 0.2 + (1.0 if "gamma" in variable.name else 0.0))


def hugging_face(folder: str) -> None:
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


def keras_hub(folder: str) -> None:
    """Writes presets of a backbone, a classifier and a masked LM."""
    from keras_hub import models

    tokenizer = models.BertTokenizer(vocabulary=WORDS, lowercase=False)
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32, "max_sequence_length": 20}
    backbone = models.BertBackbone(vocabulary_size=len(WORDS), **sizes)
    inputs = {"token_ids": IDS, "segment_ids": SEGMENTS, "padding_mask": MASK}
    preprocessor = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=20)
    classifier = models.BertTextClassifier(backbone=backbone, num_classes=3, preprocessor=preprocessor)
    masked_preprocessor = models.BertMaskedLMPreprocessor(tokenizer, sequence_length=20)
    masked_lm = models.BertMaskedLM(backbone=backbone, preprocessor=masked_preprocessor)
    for model in (classifier, masked_lm):
        randomize(variable for variable in model.trainable_variables)
    for name, model in (("backbone", backbone), ("classifier", classifier), ("masked_lm", masked_lm)):
        model.save_to_preset(f"{folder}/{name}")
    classifier.save_weights(f"{folder}/whole.weights.h5")
    outputs = backbone(inputs)
    predicted = masked_lm({**inputs, "mask_positions": np.array([[1, 2], [1, 3]])})
    np.savez(
        f"{folder}/expected.npz", sequence=outputs["sequence_output"], pooled=outputs["pooled_output"],
        logits=classifier(inputs), masked_lm=predicted,
    )  # fmt: skip


if __name__ == "__main__":
    os.environ.update(
        {"TF_USE_LEGACY_KERAS": "1"} if sys.argv[1] == "hugging_face" else {"KERAS_BACKEND": "tensorflow"}
    )
    {"hugging_face": hugging_face, "keras_hub": keras_hub}[sys.argv[1]](sys.argv[2])
