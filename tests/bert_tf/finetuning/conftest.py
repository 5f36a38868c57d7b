"""Data of the task of `word_task.py`."""

import pytest

from tests.small_configs import small_config


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with `train.txt`, `dev.txt`, `test.txt` of 12 lines, and a configuration."""
    folder = tmp_path_factory.mktemp("toy")
    lines = [" ".join(("the" if (i + j) % 3 == 0 else "man") for j in range(4 + 2 * (i % 3))) for i in range(12)]
    for split in ("train", "dev", "test"):
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    config = small_config(max_position_embeddings=16)
    (folder / "config.json").write_text(config.to_json_string())
    return folder
