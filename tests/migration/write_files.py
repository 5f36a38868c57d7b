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
    """Writes the models of all TensorFlow classes as .h5 and as safetensors, and one as a SavedModel."""
    import transformers

    heads = {
        "Model": ("last_hidden_state", "pooler_output"), "ForSequenceClassification": ("logits",),
        "ForTokenClassification": ("logits",), "ForQuestionAnswering": ("start_logits", "end_logits"),
        "ForMaskedLM": ("logits",), "ForPreTraining": ("prediction_logits", "seq_relationship_logits"),
        "ForNextSentencePrediction": ("logits",), "ForMultipleChoice": ("logits",),
    }  # fmt: skip
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=20, num_labels=3,
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}
    for name, outputs in heads.items():
        config.num_labels = 2 if name == "ForQuestionAnswering" else 3
        model = getattr(transformers, f"TFBert{name}")(config)
        given = {key: value[np.newaxis] for key, value in inputs.items()} if name == "ForMultipleChoice" else inputs
        model(**given)
        randomize(model.variables)
        found = model(**given)
        for form in (False, True):
            target = f"{folder}/{name}/{'safetensors' if form else 'h5'}"
            model.save_pretrained(target, safe_serialization=form, saved_model=name == "Model" and not form)
        np.savez(f"{folder}/{name}/expected.npz", **{output: found[output].numpy() for output in outputs})


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
