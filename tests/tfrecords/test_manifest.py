import os
import pathlib
import re

import pytest

from bert_tf.core.errors import InputError
from tests.kit import refused
from tfrecords import manifest, reader, writer


@pytest.mark.parametrize(
    "output, path",
    [
        ("out/train.tfrecord", "out/train.tfrecord.manifest.json"),
        ("out/train.tfrecord-00000-of-00012", "out/train.tfrecord.manifest.json"),
        ("train-0-of-2", "train-0-of-2.manifest.json"),
        ("x-00000-of-00002/train", "x-00000-of-00002/train.manifest.json"),
    ],
)
def test_the_manifest_is_beside_the_first_shard(output, path):
    assert manifest.manifest_path(output) == path


WITHOUT_NAME = b'{"settings": {}, "shards": [{"examples": 1, "bytes": 2, "sha256": ""}]}'
ELSEWHERE = b'{"settings": {}, "shards": [{"name": "../b", "examples": 1, "bytes": 2, "sha256": ""}]}'


@pytest.mark.parametrize(
    "content",
    [b"", b'{"settings": {', b"[]", b"{}", b'{"settings": [1], "shards": []}', WITHOUT_NAME, ELSEWHERE],
)
def test_a_damaged_manifest_is_refused_by_name(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    refused(re.escape(f"{path}: not a manifest"), manifest.read_manifest, str(path))


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def a_set(tmp_path, request):
    """Two shards, and the path of their manifest."""
    names = [f"train-0000{index}-of-00002" for index in range(2)]
    shards = []
    for name in names:
        part = str(tmp_path / "part")
        writer.write_records(part, [name.encode(), b"second", b"third"])
        framed = pathlib.Path(part).read_bytes()
        size, digest = writer.write_framed(str(tmp_path / name), [framed], request.param)
        os.remove(part)
        shards.append(manifest.Shard(name, 3, size, digest))
    path = manifest.manifest_path(str(tmp_path / names[0]))
    manifest.write(path, {}, shards)
    return tmp_path / names[0], tmp_path / names[1], path


def test_a_whole_set_has_no_faults(a_set):
    assert list(reader.find_faults(a_set[2])) == []


@pytest.mark.slow
def test_truncated_shard_is_named_for_any_cut(a_set):
    whole = a_set[0].read_bytes()
    entries = manifest.read_manifest(a_set[2])
    for cut in range(len(whole)):
        a_set[0].write_bytes(whole[:cut])
        (fault,) = reader.find_faults(a_set[2])
        assert fault.startswith(f"{a_set[0]}: ") and "3 examples" in fault, cut
        with pytest.raises(InputError, match=f"{a_set[0].name}: has {cut} bytes, but its manifest says {len(whole)}"):
            manifest.check_size(str(a_set[0]), entries)
    a_set[0].write_bytes(whole + b"x")
    with pytest.raises(InputError, match=f"has {len(whole) + 1} bytes, but its manifest says {len(whole)}"):
        manifest.check_size(str(a_set[0]), entries)


def test_swapped_shards_are_both_named(a_set):
    one, two = (path.read_bytes() for path in a_set[:2])
    a_set[0].write_bytes(two)
    a_set[1].write_bytes(one)
    faults = list(reader.find_faults(a_set[2]))
    assert [fault.split(": ")[0] for fault in faults] == [str(path) for path in a_set[:2]]
    assert all("differs from what was written" in fault for fault in faults)


def test_any_shard_leads_to_the_manifest(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    shards = [manifest.Shard(name, 1, 1, "") for name in "ab"]
    manifest.write(str(tmp_path / "a.manifest.json"), {"seed": 1}, shards)
    (tmp_path / "0.manifest.json").write_text("damaged, of another set")
    for name in "ab":
        assert manifest.find_manifest(str(tmp_path / name))["settings"] == {"seed": 1}
    assert manifest.find_manifest(str(tmp_path / "c")) is None
