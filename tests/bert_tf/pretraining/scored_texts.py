"""Texts, and their scores by `score_text`."""

import json
import shutil

import tensorflow as tf

from bert_tf.core.command_line import parse
from bert_tf.score_text import main as score_text
from bert_tf.settings import ScoringSettings
from tests.small_configs import small_config

CONFIG = small_config(300, 16, 2, max_position_embeddings=24, initializer_range=0.3)
TEXTS = ["The man said so.", "walked", "", "One of the men was there and they walked back to it, all of them"]


def write_checkpoint(folder, model, config, vocab_file):
    folder.mkdir()
    (folder / "bert_config.json").write_text(config.to_json_string())
    shutil.copy(vocab_file, folder / "vocab.txt")
    tf.train.Checkpoint(model=model).write(f"{folder}/ckpt")
    return folder


def given(checkpoint, folder, *flags) -> list[str]:
    return [
        f"--init_checkpoint={checkpoint}", f"--input_file={folder}/in.txt", f"--output_file={folder}/out.jsonl",
        "--num_workers=1", *flags,
    ]  # fmt: skip


def scored(checkpoint, folder, lines, *flags) -> list[dict]:
    for path in folder.glob("out.jsonl*"):
        path.unlink()
    (folder / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    score_text(parse(ScoringSettings, given(checkpoint, folder, *flags)))
    return [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]
