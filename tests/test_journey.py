"""From GLUE's files to answers for raw strings, on real data."""

import os
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
def test_mrpc_is_learned_exported_and_answered_as_the_trainer_predicts(data_dir, minilm, tmp_path):
    for split, source in (("train", "train"), ("dev", "dev"), ("test", "dev")):  # predicts dev
        os.symlink(data_dir / f"glue/MRPC/{source}.tsv", tmp_path / f"{split}.tsv")
    command(
        "run_classifier", "--task_name=MRPC", f"--data_dir={tmp_path}", f"--init_checkpoint={minilm}",
        f"--output_dir={tmp_path}/run", "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=2",
        "--train_batch_size=16", "--learning_rate=1e-4", "--adam_bias_correction",
    )  # fmt: skip
    command(
        "export_saved_model", "--task_name=MRPC", f"--checkpoint_dir={tmp_path}/run", f"--export_dir={tmp_path}/model/1"
    )

    lines = (tmp_path / "dev.tsv").read_text(encoding="utf-8-sig").splitlines()[1:]
    labels, _, _, first, second = zip(*(line.split("\t") for line in lines), strict=True)
    serve = tf.saved_model.load(f"{tmp_path}/model/1").signatures["serving_default"]
    answers = serve(text_a=tf.constant(first), text_b=tf.constant(second))
    predictions = np.loadtxt(tmp_path / "run/test_results.tsv")
    assert len(predictions) == 408
    assert np.abs(answers["probabilities"] - predictions).max() <= 1e-5
    assert np.ptp(predictions[:, 0]) > 0.05, "it tells sentences apart"

    results = dict(line.split(" = ") for line in (tmp_path / "run/eval_results.txt").read_text().splitlines())
    right = [answer.decode() == label for answer, label in zip(answers["label"].numpy(), labels, strict=True)]
    np.testing.assert_allclose(np.mean(right), float(results["eval_accuracy"]), rtol=1e-6)
    assert float(results["eval_accuracy"]) > 0.72, "the majority class has 0.684"
