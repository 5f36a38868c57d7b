import json
import re

import pytest

from tfrecords import manifest
from tfrecords.errors import InputError


@pytest.mark.parametrize(
    "output, path",
    [
        ("out/train.tfrecord", "out/train.tfrecord.manifest.json"),
        ("out/train.tfrecord-00000-of-00012", "out/train.tfrecord.manifest.json"),
        ("train-0-of-2", "train-0-of-2.manifest.json"),
        ("x-00000-of-00002/train", "x-00000-of-00002/train.manifest.json"),
    ],
)
def test_the_manifest_stands_beside_the_first_shard_without_its_number(output, path):
    assert manifest.manifest_path(output) == path


def test_the_text_holds_settings_facts_and_shards():
    shards = [manifest.Shard("a", 3, "12ab"), manifest.Shard("b", 2, "34cd")]
    assert json.loads(manifest.to_json({"seed": 5}, shards, vocab_size=7)) == {
        "vocab_size": 7,
        "settings": {"seed": 5},
        "shards": [{"name": "a", "examples": 3, "sha256": "12ab"}, {"name": "b", "examples": 2, "sha256": "34cd"}],
    }


def test_a_written_manifest_is_read_and_a_missing_one_is_none(tmp_path):
    path = tmp_path / "m.json"
    assert manifest.read_manifest(str(path)) is None
    path.write_text(manifest.to_json({"seed": 5}, []))
    assert manifest.read_manifest(str(path)) == {"settings": {"seed": 5}, "shards": []}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"settings": {',
        pytest.param(
            b"\xff\xfe{}",
        ),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}: not a manifest")):
        manifest.read_manifest(str(path))
