"""A new kind of task is a folder, a file of `export.kinds`, a script of ten lines, and a line of the registry.

`fifth_kind` has the folder `similarity`, the file in `served`, and the script.
"""

import importlib
import pathlib

import numpy as np
import pytest

import bert_tf.tasks
import export.kinds
from bert_tf import run_swag
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.settings import ConversionSettings
from bert_tf.tasks import registry, trained
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import ask
from tests.export.exports import export as export_run

HERE = pathlib.Path(__file__).parent / "fifth_kind"
PAIRS = [("the man", "the man", 1.0), ("the man said", "all of you", 0.0), ("who said so", "said who", 0.5)]


@pytest.fixture
def similarity(monkeypatch):
    """The script of a fifth kind of task, whose files are beside the other kinds' and which is in the registry."""
    monkeypatch.setattr(bert_tf.tasks, "__path__", [*bert_tf.tasks.__path__, str(HERE)])
    monkeypatch.setattr(export.kinds, "__path__", [*export.kinds.__path__, str(HERE / "served")])
    monkeypatch.setattr(registry, "FOLDERS", [*registry.FOLDERS, "similarity"])
    return importlib.import_module("tests.bert_tf.tasks.fifth_kind.run_similarity")


@pytest.mark.slow
def test_a_fifth_kind_changes_no_other_file(similarity, vocab_file, tmp_path, caplog):
    data, out = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    for split in ("train", "dev", "test"):
        (data / f"{split}.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in PAIRS * 4))
    write_pretrained(tmp_path / "pretrained", vocab_file, num_hidden_layers=1)
    flags = [f"--data_dir={data}", f"--output_dir={out}", "--do_eval", "--do_predict"]
    train = [f"--init_checkpoint={tmp_path}/pretrained", "--do_train", "--max_seq_length=16", "--train_batch_size=6",
             "--num_train_epochs=5", "--learning_rate=1e-2"]  # fmt: skip
    scores = similarity.main(parse(similarity.SimilaritySettings, [*flags, *train]))
    assert scores["pearson"] > 0.9
    assert "could not be written" not in caplog.text and "<h2>Similarities</h2>" in (out / "report.html").read_text()
    assert similarity.main(parse(similarity.SimilaritySettings, flags)) == pytest.approx(scores), "without training"

    predicted = np.loadtxt(out / "test_predictions.tsv")
    answers = ask(export_run(out), text_a=[pair[0] for pair in PAIRS], text_b=[pair[1] for pair in PAIRS])
    np.testing.assert_allclose(answers["similarity"], predicted[:3], atol=1e-5)

    copy = tmp_path / "copy"
    convert_checkpoint(parse(ConversionSettings, [f"--input={out}", f"--output={copy}", "--format=bert_tf"]))
    assert trained.load(str(copy), "last").kind.name == "similarity"
    with pytest.raises(InputError, match=f"{out}: holds a run of run_similarity, not of run_swag"):
        run_swag.main(parse(run_swag.SwagSettings, [*flags]))
