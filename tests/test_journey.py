"""From GLUE's files to answers for raw strings, on real data."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf


def command(name: str, *flags: str) -> None:
    program = pathlib.Path(sys.executable).parent / name
    done = subprocess.run([program, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_sentiment_is_learned_exported_and_answered_as_the_trainer_predicts(data_dir, minilm, tmp_path):
    lines = {name: (data_dir / f"glue/SST-2/{name}.tsv").read_text().splitlines() for name in ("train", "dev")}
    texts, labels = zip(*(line.split("\t") for line in lines["dev"][1:151]), strict=True)
    (tmp_path / "train.tsv").write_text("\n".join([*lines["train"][:601], ""]))
    (tmp_path / "dev.tsv").write_text("\n".join([*lines["dev"][:151], ""]))
    rows = "".join(f"{index}\t{text}\n" for index, text in enumerate(texts))
    (tmp_path / "test.tsv").write_text(f"index\tsentence\n{rows}")  # predicts dev
    command(
        "run_classifier", "--task_name=SST-2", f"--data_dir={tmp_path}", f"--init_checkpoint={minilm}",
        f"--output_dir={tmp_path}/run", "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=1",
        "--train_batch_size=16", "--learning_rate=2e-4", "--adam_bias_correction",
    )  # fmt: skip
    command("export_saved_model", f"--checkpoint_dir={tmp_path}/run", f"--export_dir={tmp_path}/model/1")

    serve = tf.saved_model.load(f"{tmp_path}/model/1").signatures["serving_default"]
    answers = serve(text_a=tf.constant(texts))
    predictions = np.loadtxt(tmp_path / "run/test_results.tsv")
    assert len(predictions) == 150
    assert np.abs(answers["probabilities"] - predictions).max() <= 1e-5
    results = dict(line.split(" = ") for line in (tmp_path / "run/eval_results.txt").read_text().splitlines())
    right = [answer.decode() == label for answer, label in zip(answers["label"].numpy(), labels, strict=True)]
    np.testing.assert_allclose(np.mean(right), float(results["eval_accuracy"]), rtol=1e-6)
    assert float(results["eval_accuracy"]) > 0.65, "chance is 0.5"
