"""Models by their names on Hugging Face's hub."""

import functools

from absl import logging

from tfrecords.errors import InputError

SCHEME = "hf://"
# no pickles, and nothing of other frameworks
_FILES = ["*config.json", "*.safetensors", "*.safetensors.index.json", "vocab.txt"]


@functools.cache
def download(name: str) -> str:
    """The folder with a model's files; what was downloaded before is not downloaded again.

    Args:
      name: `hf://owner/model`, or `hf://owner/model@revision`.

    Raises:
      InputError: the package is not installed, there is no such model, or it cannot be reached.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InputError(f"{name}: models of the hub need: pip install 'bert_tf[hf]'") from error
    repository, _, revision = name.removeprefix(SCHEME).partition("@")
    try:
        folder = snapshot_download(repository, revision=revision or None, allow_patterns=_FILES)
    except Exception as error:  # the package's own, its transport's, and the operating system's
        raise InputError(f"{name}: {_reason(error)}") from error
    logging.info("%s is in %s", name, folder)
    return folder


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "is open only to those who asked for it; ask on its page, then log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no such model, or a private one; check the name, or log in with `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the model has no such revision; check what stands after @"
    if isinstance(error, errors.HFValidationError):
        return "is no name of a model; write hf://owner/model"
    first_line = (str(error).strip() or repr(error)).split("\n")[0]
    return f"the hub cannot be reached ({first_line}); check the network, or give a folder"
