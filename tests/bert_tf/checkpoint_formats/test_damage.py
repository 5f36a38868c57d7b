"""A randomly damaged checkpoint of any format is refused in one line, or intact if the damage is in unread bytes."""

import json
import random
import shutil

import h5py
import pytest

from bert_tf import checkpoints
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.errors import InputError
from bert_tf.settings import ConversionSettings
from tests.bert_tf.checkpoint_formats.models import CONFIG, original_values, random_values, save_original, values_of
from tests.kit import refused


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Changes, cuts off or removes bytes, mostly near the beginning, where the formats have headers."""
    data = bytearray(data)
    reach = len(data) if rng.random() < 0.3 else min(len(data), 400)
    kind = rng.choice(["change", "cut", "take out"])
    if kind == "change":
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(reach)] = rng.randrange(256)
    elif kind == "cut":
        data = data[: rng.randrange(len(data))]
    else:
        start = rng.randrange(reach)
        del data[start : start + rng.randrange(1, 50)]
    return bytes(data)


@pytest.mark.quick_cases("tf1", "hugging_face")
@pytest.mark.parametrize("format", ["bert_tf", "tf1", "tf_models", "hugging_face"])
def test_damage_ends_in_a_line(tmp_path, format):
    source, whole, copy = tmp_path / "source", tmp_path / "whole", tmp_path / "copy"
    source.mkdir()
    save_original(source, original_values(random_values()))
    convert_checkpoint(ConversionSettings(input=str(source), output=str(whole), format=format))
    files = [path.name for path in sorted(whole.iterdir()) if path.name != "conversion.json"]
    rng, refused = random.Random(0), 0
    for _ in range(80):
        shutil.copytree(whole, copy)
        file = copy / rng.choice(files)
        file.write_bytes(damaged(file.read_bytes(), rng))
        try:
            contents = checkpoints.open_checkpoint(str(copy))
            contents.check_pretrained(contents.require_config())
            values_of(contents)
        except InputError as error:
            assert "\n" not in str(error).strip()
            refused += 1
        shutil.rmtree(copy)
    assert refused > 40


def test_a_table_of_the_wrong_size_is_never_read(tmp_path):
    """The decoder of a masked-LM head is compared with the word embeddings, which here would need terabytes."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **CONFIG.to_dict(), "hidden_act": "gelu"}))
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file.create_dataset("m/tf_m/bert/embeddings/LayerNorm/gamma:0", (CONFIG.hidden_size,), "f4")
        for name in ("bert/embeddings/word_embeddings/weight:0", "cls/predictions/decoder/weight:0"):
            file.create_dataset(f"m/tf_m/{name}", (1 << 40, CONFIG.hidden_size), "f4", chunks=(1 << 10, 16))
    contents = checkpoints.open_checkpoint(str(tmp_path))
    refused("tf_model.h5: the tensor .* is missing", contents.check_pretrained, contents.require_config())
