"""Models by their names on Hugging Face's hub."""

import functools
import os

from absl import logging

from bert_tf.checkpoint_formats.location import pickle_command, pickled_weights
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
      InputError: the package is not installed, there is no such model, it cannot be reached, or it has pickles only.
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
    if not any(file.endswith(".safetensors") for file in os.listdir(folder)):
        _refuse_pickles(name, repository, revision)
    logging.info("%s is in %s", name, folder)
    return folder


def _refuse_pickles(name: str, repository: str, revision: str) -> None:
    """Tells that a model has pickles only, and how to make them safetensors."""
    import huggingface_hub

    try:
        pickle = pickled_weights(huggingface_hub.list_repo_files(repository, revision=revision or None))
    except Exception:  # without a network there is only what was downloaded before, and no pickle was
        return
    if pickle is None:
        return
    folder = repository.rsplit("/", 1)[-1]
    of_revision = f" --revision {revision}" if revision else ""
    raise InputError(
        f"{name}: has only pickles ({pickle}), which can run any code and are not downloaded; make them safetensors, "
        f"without running any, and give {folder}: hf download {repository}{of_revision} --local-dir {folder} && "
        f"{pickle_command(os.path.join(folder, pickle))}"
    )


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
