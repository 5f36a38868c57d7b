"""Whole runs of extract_features: every format, any number of workers, resume, refusals."""

import dataclasses
import io
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from bert_tf.features import extract
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.jobs.run_local import LocalRunner
from bert_tf.jobs.runner import use_gpu
from bert_tf.settings import FeaturesSettings
from bert_tf.settings.features import VectorSettings
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.conftest import WORDS
from tests.kit import as_flags, refused, run, write
from tfrecords import manifest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINES = 150
FORMATS = ["jsonl", "parquet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocab_file):
    """A folder with a checkpoint in `model`, and the same texts as `input.txt` and `input.jsonl`."""
    folder = tmp_path_factory.mktemp("features")
    write_pretrained(folder / "model", vocab_file)
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(LINES)]
    lines[3], lines[4] = "the men ||| all of it", "caf\u00e9, \U0001f600 now"
    (folder / "input.txt").write_text("".join(f"{line}\n" for line in lines))
    records = [{"name": f"n{number}\u00e9", "text": line} for number, line in enumerate(lines)]
    (folder / "input.jsonl").write_text("".join(json.dumps(record) + "\n\n" for record in records))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _shared_extractors():
    """Runs that compute the same vectors share an extractor: to trace its function takes longer than to extract."""
    made, make, names = {}, FeatureExtractor.of_settings, [field.name for field in dataclasses.fields(VectorSettings)]

    def extractor(settings):
        key = (bool(tf.config.get_visible_devices("GPU")), *(getattr(settings, name) for name in names))
        if key not in made:
            made[key] = make(settings)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureExtractor, "of_settings", extractor)
        yield


def extracted(folder, output, runner=None, **changes):
    """Runs the extraction in this process; returns the bytes of the shards."""
    files = {"input_file": f"{folder}/input.txt", "init_checkpoint": f"{folder}/model"}
    given = {**files, "layers": "-1", "max_seq_length": 24, **changes}
    settings = FeaturesSettings(output_file=str(output), **given)
    with runner or LocalRunner(1) as runner:
        shards = extract.extract_features(settings, runner)
    paths = [pathlib.Path(os.path.dirname(output)) / shard.name for shard in shards]
    return [path.read_bytes() for path in paths]


def texts_of(folder):
    return (folder / "input.txt").read_text().split("\n")[:LINES]


@pytest.fixture(scope="module")
def expected(folder):
    """Returns the library's features of the same texts for the layers -1 and 1."""
    texts = [tuple(line.split(" ||| ")) for line in texts_of(folder)]
    return FeatureExtractor(folder / "model", layers="-1,1", max_seq_length=24).tokens(texts)


@pytest.mark.core
def test_json_lines_are_those_of_the_original(folder, tmp_path, expected):
    (data,) = extracted(folder, tmp_path / "out.jsonl", layers="-1,1")
    lines = data.decode().splitlines()
    assert len(lines) == LINES
    for number, (line, features) in enumerate(zip(lines, expected, strict=True)):
        # The loop of google-research/bert's script.
        tokens = [
            {
                "token": token,
                "layers": [
                    {"index": index, "values": [round(float(value), 6) for value in values]}
                    for index, values in zip((-1, 1), layers, strict=True)
                ],
            }
            for token, layers in zip(features.tokens, features.values, strict=True)
        ]
        found = json.loads(line)
        assert list(found) == ["linex_index", "features"] and found["linex_index"] == number
        assert [list(each) for each in found["features"]] == [["token", "layers"]] * len(tokens)
        for ours, theirs in zip(found["features"], tokens, strict=True):
            assert ours["token"] == theirs["token"]
            for a, b in zip(ours["layers"], theirs["layers"], strict=True):
                assert a["index"] == b["index"]
                # with other packing, a value may be rounded in the other direction
                np.testing.assert_allclose(a["values"], b["values"], atol=3e-6)
                assert all(value == round(value, 6) for value in a["values"])


def read_parquet(paths):
    rows = [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]
    return [{**row, "values": np.stack([np.array(row["layer_-1"]), np.array(row["layer_1"])], axis=1)} for row in rows]


def test_parquet_holds_the_same(folder, tmp_path, expected):
    flags = {"output_format": "parquet", "dtype": "float16", "layers": "-1,1"}
    flags |= {"input_format": "jsonl", "id_field": "name"}
    extracted(folder, f"{tmp_path}/out@3", input_file=f"{folder}/input.jsonl", **flags)
    found = read_parquet(sorted(tmp_path.glob("out-*-of-00003")))
    singles = [number for number in range(LINES) if number != 3]  # in JSON Lines, " ||| " has no meaning
    assert [entry["id"] for entry in found] == [f"n{number}\u00e9" for number in range(LINES)]
    assert [entry["linex_index"] for entry in found] == [2 * number for number in range(LINES)]
    for number in singles:
        entry, features = found[number], expected[number]
        for name in ("words", "starts", "ends"):
            np.testing.assert_array_equal(entry[name], getattr(features, name))
        assert len(entry["input_ids"]) == len(features.tokens)
        np.testing.assert_allclose(entry["values"], features.values.astype(np.float16), atol=4e-3)


def test_fields_of_a_collection_are_joined(folder, tmp_path):
    rows = [{"title": "He", "text": "had it"}, {"title": "", "text": "she"}, {"title": None, "text": "was"},
            {"text": "all"}]  # fmt: skip
    documents = write(tmp_path / "documents.jsonl", rows)
    lines = write(tmp_path / "lines.txt", "He had it\nshe\nwas\nall\n")
    joined = extracted(folder, tmp_path / "joined", input_file=str(documents), text_field="title,text")
    assert joined == extracted(folder, tmp_path / "lines", input_file=str(lines))


def test_alignment_and_ids_in_json_lines(folder, tmp_path, expected):
    flags = {"input_file": f"{folder}/input.jsonl", "id_field": "name", "alignment": True}
    (data,) = extracted(folder, tmp_path / "out", layers="0", **flags)
    entry, features = json.loads(data.splitlines()[4]), expected[4]
    assert entry["id"] == "n4\u00e9"
    where = [(each["word"], each["start"], each["end"], each["segment"]) for each in entry["features"]]
    columns = (features.words, features.starts, features.ends, features.segment_ids)
    expected_where = [
        tuple(None if value == -1 else value for value in values)
        for values in zip(*(column.tolist() for column in columns), strict=True)
    ]
    assert where == expected_where


@pytest.fixture(scope="module")
def pooled(folder):
    """What the library gives for the same texts, pooled."""
    texts = [tuple(line.split(" ||| ")) for line in texts_of(folder)]
    return FeatureExtractor(folder / "model", pooling="mean", normalize=True, max_seq_length=24).sentences(texts)


@pytest.mark.parametrize("form", FORMATS)
def test_pooled_vectors(folder, tmp_path, pooled, form):
    flags = {"output_format": form, "pooling": "mean", "normalize": True}
    (data,) = extracted(folder, tmp_path / "out", **flags)
    if form == "jsonl":
        entries = [json.loads(line) for line in data.splitlines()]
        assert all([each["index"] for each in entry["layers"]] == [-1] for entry in entries)
        found = [entry["layers"][0]["values"] for entry in entries]
    else:
        table = pyarrow.parquet.read_table(tmp_path / "out")
        assert table.column_names == ["linex_index", "layer_-1"]
        found = table["layer_-1"].to_pylist()
    np.testing.assert_allclose(found, pooled, atol=3e-6)


class Stops(LocalRunner):
    """A runner that fails after some tasks, like a machine."""

    def __init__(self, tasks):
        super().__init__(1)
        self._left = tasks

    def map(self, function, tasks):
        for result in super().map(function, tasks):
            yield result
            self._left -= 1
            if not self._left:
                raise ChildProcessError("gone")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.core
def test_same_bytes_after_a_stop(folder, tmp_path, form):
    flags = {"output_format": form, "layers": "-1"}
    whole = extracted(folder, f"{tmp_path}/whole@4", **flags)
    kept = {}
    for tasks in (3, 2):  # one hash, then two shards or one
        with pytest.raises(ChildProcessError):
            extracted(folder, f"{tmp_path}/out@4", Stops(tasks), **flags)
        now = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out-*")}
        assert {path: now[path] for path in kept} == kept and not list(tmp_path.glob("out.manifest.json"))
        kept = now
    assert len(kept) == 3
    assert extracted(folder, f"{tmp_path}/out@4", **flags) == whole
    assert len(list(tmp_path.glob("out*"))) == 5, "the shards and the manifest"
    # a finished set does not change; a deleted shard is made again
    (tmp_path / "out-00001-of-00004").unlink()
    before = (tmp_path / "out-00000-of-00004").stat().st_mtime_ns
    assert extracted(folder, f"{tmp_path}/out@4", **flags) == whole
    assert (tmp_path / "out-00000-of-00004").stat().st_mtime_ns == before


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(folder, tmp_path):
    flags = {"output_format": "parquet", "layers": "-1"}
    # This process has two devices, and its threads differ from a command's threads.
    words = command(folder, f"{tmp_path}/one@3", **flags, num_workers=1, max_seq_length=24)
    run_command(words)
    one = [path.read_bytes() for path in sorted(tmp_path.glob("one-*"))]
    runner = LocalRunner(2, preload=["bert_tf.features.extract"])
    assert extracted(folder, f"{tmp_path}/two@3", runner, **flags) == one


def test_other_settings_weights_or_text_are_refused(folder, tmp_path, vocab_file):
    out = tmp_path / "out"
    data = extracted(folder, out, layers="-1")
    refused(r"other settings \(--layers was '-1', is '-2'\)", extracted, folder, out, layers="-2")
    other = tmp_path / "text"
    other.write_text("the men\n" * LINES)
    refused("corpus number 1 was", extracted, folder, out, layers="-1", input_file=str(other))
    write_pretrained(tmp_path / "model", vocab_file, initializer_range=0.5)
    refused("weights_sha256 was", extracted, folder, out, layers="-1", init_checkpoint=str(tmp_path / "model"))
    assert out.read_bytes() == data[0]
    (tmp_path / "mine").write_text("mine")
    refused("exists and has no manifest", extracted, folder, tmp_path / "mine", layers="-1")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    "name, data, flags, message",
    [
        ("empty", b"", {}, "contains no text"),
        ("blank", b"\n\n", {"input_format": "jsonl"}, "blank: contains no text"),
        ("gz", b"\x1f\x8b\x08text", {}, "is compressed with gzip"),
        ("few", b"a\nb\n", {"output_file": "OUT@3"}, "3 shards, but the input has 2 lines"),
        ("bad", b'{"text": "a"}\n{"text"\n', {"input_format": "jsonl"}, "bad, line 2: is not JSON"),
        ("list", b"[1]\n", {"input_format": "jsonl"}, "line 1: is a list, not an object"),
        ("field", b'{"body": "a"}\n', {"input_format": "jsonl"}, "no field 'text'; give one of its fields as --text"),
        ("type", b'{"text": 3}\n', {"input_format": "jsonl"}, "line 1: the field 'text' must be a string"),
        ("id", b'{"text": "a"}\n', {"input_format": "jsonl", "id_field": "id"}, "as --id_field: 'text'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, tmp_path, name, data, flags, message):
    path = tmp_path / name
    path.write_bytes(data)
    output = flags.get("output_file", "OUT").replace("OUT", f"{tmp_path}/out")
    flags = {key: value for key, value in flags.items() if key != "output_file"}
    refused(message, extracted, folder, output, input_file=str(path), **flags)
    assert list(tmp_path.iterdir()) == [path]  # so the command runs after the file is fixed


def test_cut_off_and_damaged_texts_are_counted(folder, tmp_path, caplog):
    path = tmp_path / "input"
    path.write_bytes(b"the men\n" + b"said " * 50 + b"\nall \xff\xfe of\r\nit")
    (data,) = extracted(folder, tmp_path / "out", input_file=str(path), layers="-1")
    entries = [json.loads(line) for line in data.splitlines()]
    assert [len(entry["features"]) for entry in entries] == [5, 24, 4, 3]
    assert "1 of 4 texts are longer than --max_seq_length=24 and were truncated" in caplog.text
    assert "bytes that are not UTF-8 were dropped in 1 of 4 lines" in caplog.text
    facts = json.loads((tmp_path / "out.manifest.json").read_text())
    assert (facts["lines"], facts["truncated"], facts["damaged"], facts["tokens"]) == (4, 1, 1, 36)


def test_a_missing_pyarrow_is_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    refused(r"needs PyArrow: pip install pyarrow", extracted, folder, tmp_path / "out", output_format="parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.core
def test_full_disk_leaves_no_shard_and_run_resumes(folder, tmp_path, form):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        with pytest.raises((OSError, tf.errors.OpError), match=f"{tmp_path}/out"):
            extracted(folder, tmp_path / "out", output_format=form, layers="-1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.rglob("*") if ".tmp-" in path.name]
    extracted(folder, tmp_path / "out", output_format=form, layers="-1")


def command(folder, output, **flags):
    given = {"input_file": folder / "input.txt", "init_checkpoint": folder / "model", "output_file": output, **flags}
    return [sys.executable, "-m", "bert_tf.extract_features", *as_flags(**given)]


def run_command(words, **environment) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=4000, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spark
def test_spark_writes_the_bytes_of_this_machine(folder, tmp_path):
    flags = {"output_format": "parquet", "layers": "-1,0", "max_seq_length": 24}
    runners = {"local": {"num_workers": 2}, "spark": {"runner": "spark", "spark_master": "local[2]"}}
    for name, how in runners.items():
        words = command(folder, tmp_path / f"{name}/out@3", **flags, **how)
        run_command(words, SPARK_LOCAL_IP="127.0.0.1")
    local, spark = ({p.name: p.read_bytes() for p in (tmp_path / name).glob("out-*")} for name in runners)
    assert len(local) == 3 and spark == local


_MEMORY = """
import resource, sys
from bert_tf import extract_features
sys.argv = ["extract_features", *sys.argv[1:]]
try:
    extract_features.run()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(folder, tmp_path):
    peaks = []
    for times in (20, 200):
        big = tmp_path / f"{times}.txt"
        big.write_text((folder / "input.txt").read_text() * times)
        flags = {"layers": -1, "num_workers": 1, "input_file": big, "output_format": "parquet", "max_seq_length": 24}
        words = command(folder, tmp_path / f"out{times}", **flags)[3:]
        peaks.append(int(run_command([sys.executable, "-c", _MEMORY, *words]).split()[-1]) / 1024)
    size = (tmp_path / "out200").stat().st_size / 2**20
    entries = manifest.read_manifest(str(tmp_path / "out200.manifest.json"))
    assert entries["texts"] == 200 * LINES and size > 25
    assert peaks[1] - peaks[0] < 20, (peaks, size)


def test_a_missing_gpu_is_one_line(folder, tmp_path):
    flags = {"input_file": folder / "input.txt", "init_checkpoint": folder / "model", "output_file": tmp_path / "out"}
    refused("--num_gpus=1: TensorFlow finds no GPU; remove the flag", run, "extract_features", **flags, num_gpus=1)


@pytest.mark.slow
def test_a_gpus_batches_give_the_cpus_values(folder, tmp_path, monkeypatch):
    """Extraction on a GPU, without a GPU: TensorFlow is made to report a GPU, and the CPU computes."""
    config, chosen = tf.config, []
    gpu = config.list_physical_devices("CPU")[:1]
    monkeypatch.setattr(config, "list_physical_devices", lambda kind=None: gpu * (kind == "GPU"))
    monkeypatch.setattr(config, "get_visible_devices", lambda kind=None: gpu * (kind == "GPU"))
    monkeypatch.setattr(config, "set_visible_devices", lambda *devices: chosen.append(devices))
    monkeypatch.setattr(config.experimental, "set_memory_growth", lambda *arguments: chosen.append(arguments))
    flags = {"output_format": "parquet", "layers": "-1,0", "batch_size": 64}
    use_gpu()
    runner = LocalRunner(1, own_devices=True)
    on_gpu = extracted(folder, tmp_path / "gpu", runner, num_gpus=1, **flags)
    assert chosen == [(gpu, "GPU"), (gpu[0], True)]
    monkeypatch.undo()
    on_cpu = extracted(folder, tmp_path / "cpu", **flags)
    for ours, theirs in zip(map(_values, on_gpu), map(_values, on_cpu), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def _values(data: bytes) -> np.ndarray:
    """Returns all values of a Parquet shard."""
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    return np.concatenate([table[name].combine_chunks().flatten().flatten() for name in ("layer_-1", "layer_0")])


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"id_field": "id"}, "--id_field needs --input_format=jsonl"),
        ({"num_gpus": 1, "num_workers": 4}, "--num_gpus=1 computes in one local process"),
        ({"output_file": "x.csv"}, "=x.csv: .csv is not a supported format; use .jsonl, .parquet"),
    ],
)
def test_contradicting_flags_are_one_line(flags, message):
    refused(message, FeaturesSettings, **{"input_file": "a", "output_file": "b", "init_checkpoint": "c", **flags})


@pytest.mark.parametrize(
    "name, form",
    [("x.parquet", "parquet"), ("x.parquet@3", "parquet"), ("x.parquet, y.parquet", "parquet"), ("x.json", "jsonl"),
     ("x.txt", "jsonl"), ("x", "jsonl"), ("v1.2@2", "jsonl"), ("parquet", "jsonl")],
)  # fmt: skip
def test_output_name_suffix_decides_format(name, form):
    for given in ({"output_file": name}, {"output_file": "x", "output_format": form}):
        assert FeaturesSettings(input_file="a", init_checkpoint="c", **given).output_format == form
