"""Training on every kind of data that the generator makes, or its refusal."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.pretraining.record_files import inspect
from bert_tf.settings import PretrainingSettings
from tests.bert_tf import pretraining_runs
from tests.bert_tf.pretraining_runs import write_records
from tests.kit import refused
from tests.small_configs import small_config
from tfrecords import reader

KINDS = {
    "static": {},
    "dynamic": {"masking": "dynamic", "do_whole_word_mask": True, "max_ngram_size": 2},
    "dynamic2": {"masking": "dynamic", "masked_lm_prob": 0.2},
    "dynamic_wide": {"masking": "dynamic", "masked_lm_prob": 0.4, "max_predictions_per_seq": 12},
    "mlm": {"objective": "mlm", "gzip_compress": True},
    "dynamic_mlm": {"objective": "mlm", "masking": "dynamic"},
    "ltr": {"objective": "lm"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory, corpus_file, vocab_file):
    """A folder with one file of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, changes in KINDS.items():
        write_records(folder / name, corpus_file, vocab_file, **changes)
    shutil.copy(vocab_file, folder / "vocab.txt")
    config = small_config(max_position_embeddings=64)
    (folder / "config.json").write_text(config.to_json_string())
    return folder


def settings(data, output_dir, names, *more: str) -> PretrainingSettings:
    steps = ("--do_train", "--num_train_steps=2", "--num_warmup_steps=0", "--save_checkpoints_steps=1")
    files = ",".join(f"{data}/{name}" for name in names.split())
    return pretraining_runs.settings(f"{data}/config.json", files, output_dir, *steps, "--max_eval_steps=2", *more)


def look(data, names, *more: str, eval_names=""):
    """Inspects files whose names are given, or patterns of their names."""
    paths = [",".join(f"{data}/{name}" for name in these.split()) for these in (names, eval_names)]
    given = settings(data, "out", names, *more, "--do_eval", f"--eval_input_file={paths[1]}")
    files = reader.expand_files(paths[0])
    eval_files = reader.expand_files(paths[1]) if eval_names else files
    return inspect(given, BertConfig.from_json_file(given.bert_config_file), files, eval_files)[1]


def test_masking_rule_comes_from_data_manifest(data):
    rule = look(data, "dynamic", f"--vocab_file={data}/vocab.txt").dynamic_masking.rule
    tokens = (data / "vocab.txt").read_text().split()
    assert (rule.vocab_size, rule.mask_id) == (len(tokens), tokens.index("[MASK]"))
    assert (rule.masked_lm_prob, rule.max_predictions_per_seq, rule.max_ngram_size) == (0.15, 5, 2)
    assert rule.continues_word.tolist() == [token.startswith("##") for token in tokens]
    assert look(data, "dynamic2", f"--vocab_file={data}/vocab.txt").dynamic_masking.rule.continues_word is None
    assert look(data, "static").dynamic_masking is None


def of_the_manifest(data, output_dir, names, *more: str) -> PretrainingSettings:
    """Returns settings that take the number of predictions from the data."""
    given = settings(data, output_dir, names, f"--vocab_file={data}/vocab.txt", *more)
    return dataclasses.replace(given, max_predictions_per_seq=None)


def run_json(folder) -> dict:
    (phase,) = json.loads((folder / "run.json").read_text())["phases"]
    return phase


@pytest.mark.slow
def test_dynamic_data_is_masked_by_its_manifest(data, tmp_path):
    """Rows of 32 tokens for 12 predictions at 0.4; the defaults, 20 and 0.15, would give other numbers."""
    for file in ("dynamic_wide", "dynamic_wide.manifest.json", "vocab.txt", "config.json"):
        shutil.copy(data / file, tmp_path)
    out = tmp_path / "out"
    results = run_pretraining(of_the_manifest(tmp_path, out, "dynamic_wide", "--do_eval"))
    assert 4 < results["masked_lm_loss"] < 8
    np.testing.assert_allclose(results["loss"], results["masked_lm_loss"] + results["next_sentence_loss"], rtol=1e-6)
    given, files = of_the_manifest(tmp_path, out, "dynamic_wide"), [f"{tmp_path}/dynamic_wide"]
    rule = inspect(given, BertConfig.from_json_file(given.bert_config_file), files, files)[1].dynamic_masking.rule
    assert (rule.max_predictions_per_seq, rule.masked_lm_prob) == (12, 0.4)
    resolved = {"max_predictions_per_seq": 12, "masked_lm_prob": 0.4}
    recorded = run_json(out)
    for facts in (recorded["settings"], recorded["data"]):
        assert {name: facts[name] for name in resolved} == resolved

    same = ("--max_predictions_per_seq=12", "--masked_lm_prob=0.4", "--num_train_steps=2")
    run_pretraining(settings(tmp_path, out, "dynamic_wide", f"--vocab_file={data}/vocab.txt", *same))
    # the same records with another rule, which only the manifest contains
    path = tmp_path / "dynamic_wide.manifest.json"
    entries = json.loads(path.read_text())
    entries["settings"] |= {"masked_lm_prob": 0.3, "do_whole_word_mask": True}
    path.write_text(json.dumps(entries))
    message = "masked_lm_prob was 0.4, is 0.3; do_whole_word_mask was False, is True"
    with pytest.raises(InputError, match=f"other data .{message}"):
        run_pretraining(of_the_manifest(tmp_path, out, "dynamic_wide", "--num_train_steps=2"))


def test_flags_override_manifest_and_are_logged(data, tmp_path, caplog):
    other = ("--max_predictions_per_seq=7", "--masked_lm_prob=0.3")
    rule = look(data, "dynamic_wide dynamic2", f"--vocab_file={data}/vocab.txt", *other).dynamic_masking.rule
    assert (rule.max_predictions_per_seq, rule.masked_lm_prob) == (7, 0.3)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "masking with --max_predictions_per_seq=7, although the data's manifest says 5, 12",
        "masking with --masked_lm_prob=0.3, although the data's manifest says 0.2, 0.4",
    ]
    caplog.clear()
    look(data, "dynamic2", f"--vocab_file={data}/vocab.txt", "--masked_lm_prob=0.2")
    assert not caplog.records


@pytest.mark.parametrize("names, eval_names", [("dynamic_wide dynamic2", ""), ("dynamic_wide", "dynamic2")])
def test_manifests_that_do_not_agree_need_the_flag(data, names, eval_names):
    given = of_the_manifest(data, "out", names)
    files, eval_files = ([f"{data}/{name}" for name in those.split()] for those in (names, eval_names))
    refused(
        "/dynamic2: made with --max_predictions_per_seq=5, but .*wide with 12; .* give",
        inspect,
        given,
        BertConfig.from_json_file(given.bert_config_file),
        files,
        eval_files,
    )


@pytest.mark.parametrize("name, masked", [("static", True), ("ltr", False)])
def test_other_data_has_20_predictions_by_default(data, tmp_path, name, masked):
    given = of_the_manifest(data, "out", name, *([] if masked else [one_way(data, tmp_path)]))
    config, files = BertConfig.from_json_file(given.bert_config_file), [f"{data}/{name}"]
    if masked:
        message = "has 5 values but --max_predictions_per_seq=20; give --max_pred.*=5"
        refused(message, inspect, given, config, files, files)
    else:
        resolved, _ = inspect(given, config, files, files)
        assert (resolved.max_predictions_per_seq, resolved.masked_lm_prob) == (20, None)


@pytest.mark.parametrize(
    "names, eval_names, message",
    [
        ("ltr", "", "/ltr: its rows are not masked, and its manifest does not say --masking=dynamic"),
        ("dynamic_mlm ltr", "", "/ltr: its rows are not masked, and its manifest does not say"),
        ("dynamic_mlm mlm", "", "/mlm: its rows are masked already, unlike rows of .*/dynamic_mlm"),
        ("dynamic", "static", "/static: its rows are masked already"),
        ("static", "dynamic", "/dynamic: has no feature 'masked_lm_positions'"),
        ("dynamic dynamic2", "", r"/dynamic2: made with --masked_lm_prob=0.2, but .*/dynamic with 0.15"),
        ("mlm static", "", None),
    ],
)
def test_refuses_incompatible_kinds_of_data(data, names, eval_names, message):
    if message is None:  # labels in only one file are ignored
        assert not look(data, names).has_pairs
        return
    refused(message, look, data, names, f"--vocab_file={data}/vocab.txt", eval_names=eval_names)


def one_way(data, tmp_path, directionality="ltr") -> str:
    entries = json.loads((data / "config.json").read_text()) | {"directionality": directionality}
    (tmp_path / "config.json").write_text(json.dumps(entries))
    return f"--bert_config_file={tmp_path}/config.json"


@pytest.mark.slow
@pytest.mark.parametrize("name, directionality", [("dynamic_mlm", "rtl"), ("dynamic", "ltr")])
def test_unmasked_data_trains_a_one_directional_model(data, tmp_path, name, directionality):
    flag = one_way(data, tmp_path, directionality)
    results = run_pretraining(settings(data, tmp_path / "out", name, flag, "--do_eval"))
    assert np.isfinite(results["masked_lm_loss"])
    assert ("next_sentence_loss" in results) == (name == "dynamic")
    assert results["word_perplexity"] == pytest.approx(results["masked_lm_perplexity"])  # each word is one token
    assert json.loads((tmp_path / "out/bert_config.json").read_text())["directionality"] == directionality


def test_data_made_for_one_direction_is_taken(data, tmp_path):
    found = look(data, "ltr", one_way(data, tmp_path))
    assert not found.has_pairs and found.dynamic_masking is None
    masked = "/mlm: its rows are masked, but .*config.json says directionality=ltr.*objective=lm"
    refused(masked, look, data, "mlm", one_way(data, tmp_path))
    with pytest.raises(InputError, match=r"directionality=ltr\+rtl names two encoders; pre-train them apart"):
        look(data, "ltr", one_way(data, tmp_path, "ltr+rtl"))


@pytest.mark.slow
def test_packed_run_resumes_with_equal_evaluation(data, tmp_path):
    flags = ["--pack_sequences", f"--vocab_file={data}/vocab.txt"]
    whole = run_pretraining(settings(data, tmp_path / "whole", "dynamic", *flags, "--do_eval"))
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    for path in [*(tmp_path / "parts").glob("ckpt-2*"), tmp_path / "parts/checkpoint"]:  # killed before it wrote these
        path.unlink()
    run_pretraining(settings(data, tmp_path / "parts", "dynamic", *flags))
    unpacked = settings(data, tmp_path / "parts", "dynamic", *flags[1:], "--nodo_train", "--do_eval")
    assert run_pretraining(unpacked) == whole
    other = settings(data, tmp_path / "whole", "dynamic", *flags[1:], "--do_eval")
    refused("other data .*packed_rows was .*'sequences': .*, is None", run_pretraining, other)


@pytest.mark.slow
@pytest.mark.parametrize("name, more", [("static", ["--nouse_next_sentence_label"]), ("mlm", [])])
def test_an_untrained_pair_head_is_not_evaluated(data, tmp_path, name, more):
    run_pretraining(settings(data, tmp_path, name, *more))
    before, after = (
        tf.train.load_variable(f"{tmp_path}/ckpt-{step}", "model/next_sentence/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        for step in (0, 2)
    )
    np.testing.assert_array_equal(before, after)
    evaluate = ["--nodo_train", "--do_eval"]
    message = "random weights; evaluate with --nouse_next_sentence_label"
    refused(message, run_pretraining, settings(data, tmp_path, "static", *evaluate))
    results = run_pretraining(settings(data, tmp_path, "static", *evaluate, "--nouse_next_sentence_label"))
    assert not any(name.startswith("next_sentence") for name in results)


def test_held_out_single_texts_fit_pairs_by_flag(data):
    refused("mlm: has no feature .*; give --nouse_next_sentence_label", look, data, "static", eval_names="mlm")
    assert not look(data, "static", "--nouse_next_sentence_label", eval_names="mlm").has_next_sentence_labels


def test_a_vocabulary_beyond_the_embeddings_is_refused(data, tmp_path):
    shutil.copy(data / "static", tmp_path)  # without the manifest, the vocabulary of the data is unknown
    shutil.copy(data / "config.json", tmp_path)
    long = tmp_path / "long.txt"
    long.write_text((data / "vocab.txt").read_text() + "".join(f"x{i}\n" for i in range(300)))
    given = settings(tmp_path, tmp_path / "out", "static", f"--vocab_file={long}", "--do_eval")
    refused("vocab_size=300 is smaller than .*long.txt, which has .* tokens", run_pretraining, given)
    assert not (tmp_path / "out").exists()


def test_dynamic_data_needs_its_own_vocabulary(data, tmp_path):
    with_manifest(data, tmp_path, "dynamic", vocab_file="gone.txt")
    refused("--vocab_file is missing: .*/dynamic was made .* gone.txt was not found", look, tmp_path, "dynamic")
    refused("the folder has no vocabulary", look, tmp_path, "dynamic", f"--vocab_file={tmp_path}")
    (tmp_path / "vocab.txt").write_text("[PAD]\n")  # another one
    refused("--vocab_file is missing", look, tmp_path, "dynamic")
    other = tmp_path / "other.txt"
    other.write_text((data / "vocab.txt").read_text() + "zebra\n")
    message = r"other.txt: not the vocabulary that .*dynamic was made with \(gone.txt, SHA"
    refused(message, look, tmp_path, "dynamic", f"--vocab_file={other}")


def with_manifest(data, folder, name, copy="", sha256="", **changes):
    """Copies a file of records; changes the settings and the vocabulary's hash in its manifest."""
    copy = copy or name
    shutil.copy(data / name, folder / copy)
    shutil.copy(data / "config.json", folder)
    entries = json.loads((data / f"{name}.manifest.json").read_text())
    entries["settings"] |= changes
    entries |= {name: changes[name] for name in changes.keys() & entries.keys()}
    entries["shards"][0]["name"] = copy
    entries["vocab_sha256"] = sha256 or entries["vocab_sha256"]
    (folder / f"{copy}.manifest.json").write_text(json.dumps(entries))


@pytest.fixture
def three_shards(data, tmp_path):
    """Makes a set of three equal shards."""
    with_manifest(data, tmp_path, "static", copy="set")
    entries = json.loads((tmp_path / "set.manifest.json").read_text())
    names = [f"set-{shard:05d}-of-00003" for shard in range(3)]
    entries["shards"] = [{**entries["shards"][0], "name": name} for name in names]
    for name in names:
        shutil.copy(data / "static", tmp_path / name)
    (tmp_path / "set").unlink()
    (tmp_path / "set.manifest.json").write_text(json.dumps(entries))
    return names


def test_shards_may_be_left_out_only_on_purpose(three_shards, tmp_path, caplog):
    first, second, third = three_shards
    assert len(look(tmp_path, "set*").files) == 3
    assert look(tmp_path, f"{first} {second}", eval_names=third).eval_files == [f"{tmp_path}/{third}"]
    os.remove(tmp_path / second)
    refused("--input_file: .*/set-00001-of-00003 is missing, but its manifest lists it", look, tmp_path, "set-*")
    refused("--eval_input_file: .*/set-00001-of-00003 is missing", look, tmp_path, first, eval_names="set-*")
    caplog.clear()
    assert len(look(tmp_path, f"{first} {third}").files) == 2
    assert [m for m in caplog.messages if "without" in m and "set-00001-of-00003, which the manifest lists" in m]
    assert look(tmp_path, "set-0000[02]*").files == [f"{tmp_path}/{first}", f"{tmp_path}/{third}"]


def test_refuses_shards_of_unfinished_set(three_shards, tmp_path):
    os.remove(tmp_path / "set.manifest.json")
    assert len(look(tmp_path, "set-*").files) == 3
    (tmp_path / "set.work").mkdir()
    (tmp_path / "set.work" / "plan.json").touch()
    refused("--input_file: .*/set is an unfinished set; finish the command", look, tmp_path, "set-*")


@pytest.mark.parametrize("place", ["named", "same_name", "beside", "run", "flag"])
def test_finds_vocabulary_by_hash_in_any_place(data, tmp_path, caplog, place):
    named = {"named": f"{data}/vocab.txt", "same_name": "/gone/old.txt"}.get(place, "/gone/vocab.txt")
    with_manifest(data, tmp_path, "dynamic", vocab_file=named)
    out = tmp_path / "out"
    out.mkdir()
    file = {"named": data / "vocab.txt", "same_name": tmp_path / "old.txt", "beside": tmp_path / "vocab.txt"}.get(
        place, out / "vocab.txt"
    )
    if place != "named":
        shutil.copy(data / "vocab.txt", file)
    given = settings(tmp_path, out, "dynamic", *([f"--vocab_file={file}"] if place == "flag" else []))
    files = [f"{tmp_path}/dynamic"]
    _, found = inspect(given, BertConfig.from_json_file(given.bert_config_file), files, files)
    assert found.rules.vocab_file == str(file) and found.dynamic_masking
    lines = [line for line in caplog.messages if line.startswith(f"--vocab_file={file}, the vocabulary of the data")]
    assert len(lines) == (place != "flag")


@pytest.mark.parametrize("eval_names", ["", "other"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "f" * 64, "vocab_file": "b.txt"},
         r"/other: made with another tokenizer than .*/static: another vocabulary \(SHA-256 ffffffffffff instead of"),
        ({"do_lower_case": False},
         "/other: made with another tokenizer than .*/static: --do_lower_case=false instead of --do_lower_case=true"),
    ],
)  # fmt: skip
def test_refuses_data_of_two_vocabularies_or_casings(data, tmp_path, changes, message, eval_names):
    with_manifest(data, tmp_path, "static")
    with_manifest(data, tmp_path, "static", "other", **changes)
    refused(message, look, tmp_path, "static" if eval_names else "static other", eval_names=eval_names)
    (tmp_path / "other.manifest.json").unlink()  # the vocabulary is then unknown, as for records of other tools
    assert look(tmp_path, "static" if eval_names else "static other", eval_names=eval_names).vocabulary


@pytest.mark.slow
def test_later_phases_need_the_runs_vocabulary(data, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    run_pretraining(settings(data, out, "static", "--num_train_steps=2"))
    assert (out / "vocab.txt").read_bytes() == (data / "vocab.txt").read_bytes()
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is True
    other.mkdir()
    with_manifest(data, other, "static", sha256="f" * 64, vocab_file="b.txt")
    message = rf"{other}/static: made with another tokenizer than {data}/static"
    for more in (["--num_train_steps=2"], ["--nodo_train", "--do_eval"], ["--num_train_steps=8"]):
        refused(message, run_pretraining, settings(other, out, "static", *more))


@pytest.mark.slow
def test_other_tools_records_take_a_vocabulary_flag(data, tmp_path, caplog):
    for name in ("static", "config.json"):
        shutil.copy(data / name, tmp_path)
    out = tmp_path / "out"
    run_pretraining(settings(tmp_path, out, "static", "--num_train_steps=1"))
    assert "the data's vocabulary was not found; give --vocab_file to show filled-in masks" in caplog.text
    assert not (out / "vocab.txt").exists() and not (out / "tokenizer_config.json").exists()
    run_pretraining(settings(tmp_path, out, "static", "--num_train_steps=1", f"--vocab_file={data}/vocab.txt"))
    assert (out / "vocab.txt").read_bytes() == (data / "vocab.txt").read_bytes()
    other = tmp_path / "other.txt"
    other.write_text((data / "vocab.txt").read_text() + "zebra\n")
    given = settings(tmp_path, out, "static", "--num_train_steps=3", f"--vocab_file={other}")
    refused("static: made with another tokenizer than .*static: another vocabulary", run_pretraining, given)


@pytest.mark.parametrize("name", ["static", "mlm"])
def test_refuses_shard_smaller_than_in_manifest(data, tmp_path, name):
    for file in (name, f"{name}.manifest.json", "config.json"):
        shutil.copy(data / file, tmp_path)
    size = os.path.getsize(tmp_path / name)
    os.truncate(tmp_path / name, size - 9)
    refused(f"/{name}: has {size - 9} bytes, but its manifest says {size}", look, tmp_path, name)
