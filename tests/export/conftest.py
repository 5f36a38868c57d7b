"""Exports that several test files share."""

import pytest

from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.classification import make_task
from tests.export.exports import put_together
from tests.export.serving.models import write_model


@pytest.fixture(scope="session")
def exported(tmp_path_factory, vocab_file):
    """The folders of the only versions of a classifier and a regression, by name; tests must not change them."""
    folder, found = tmp_path_factory.mktemp("exported"), {}
    for name, labels in (("classes", 3), ("scores", 0)):
        run = folder / f"{name}-run"
        put_together(run, vocab_file, make_task(labels, has_pairs=False))
        if name == "classes":  # the regression was never evaluated
            (run / "eval_results.txt").write_text("eval_accuracy = 0.75\nglobal_step = 1\n")
        found[name] = export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=f"{folder}/{name}"))
    return found


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """The folder of a small model with signatures of every kind; tests must not change it."""
    folder = tmp_path_factory.mktemp("m")
    write_model(folder, 1)
    return folder
