"""Downloads models from the Hugging Face Hub by name."""

import functools
import os

from absl import logging

from bert_tf.core.errors import InputError

SCHEME = "hf://"
NO_PICKLES = "save the model as safetensors (save_pretrained of transformers does), and give the new folder"
# The weights of transformers' TensorFlow classes.
H5_NAME = "tf_model.h5"
# Patterns of the files to download. No pattern matches pickles. Without safetensors, the .h5 file of the TensorFlow
# classes is downloaded too.
_FILES = [
    "*config.json", "modules.json", "config_sentence_transformers.json", "*.safetensors", "*.safetensors.index.json",
    "vocab.txt", "tokenizer.json", "sentencepiece.bpe.model", "added_tokens.json", "special_tokens_map.json",
]  # fmt: skip


@functools.cache
def download(name: str) -> str:
    """Downloads a model, and returns the folder of its files. Files in the cache are not downloaded again.
    `name`: `hf://owner/model`, or `hf://owner/model@revision`."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InputError(f"{name}: the Hugging Face Hub needs: pip install huggingface-hub safetensors") from error
    repository, _, revision = name.removeprefix(SCHEME).partition("@")
    try:
        folder = snapshot_download(repository, revision=revision or None, allow_patterns=_FILES)
        if not any(file.endswith(".safetensors") for file in os.listdir(folder)):
            folder = snapshot_download(repository, revision=revision or None, allow_patterns=[*_FILES, H5_NAME])
    except Exception as error:  # huggingface_hub, its HTTP client and the file system raise different error classes
        raise InputError(f"{name}: {_reason(error)}") from error
    if not any(file.endswith((".safetensors", ".h5")) for file in os.listdir(folder)):
        raise InputError(
            f"{name}: has neither safetensors nor {H5_NAME}, and pickles are not downloaded, because "
            f"they can run any code; {NO_PICKLES}"
        )
    logging.info("%s is in %s", name, folder)
    return folder


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "is gated; ask for access on the model's page, then log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hub has no such model, or the model is private; check the name, or log in with `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the model has no such revision; check the part after @"
    if isinstance(error, errors.HFValidationError):
        return "is not a model name; write hf://owner/model"
    first_line = (str(error).strip() or repr(error)).split("\n")[0]
    return f"the Hub cannot be reached ({first_line}); check the network, or give a folder"
