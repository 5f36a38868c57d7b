import dataclasses
import json
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import hugging_face
from bert_tf.checkpoint_formats.contents import with_trained_pooler
from bert_tf.config import BertConfig
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.runs import evaluations, run_record
from bert_tf.tasks.questions import squad_results
from bert_tf.text import tokenizer_files
from bert_tf.tokenization import BertTokenizer
from export import sources
from export.settings import ExportSettings
from tests.bert_tf import tagging
from tests.bert_tf.checkpoint_formats.models import (
    CONFIG,
    assert_same,
    original_values,
    random_values,
    save_original,
    values_of,
)
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import put_together
from tests.kit import refused, run, write

FORMATS = ["bert_tf", "tf1", "tf_models", "hugging_face"]


@pytest.fixture(scope="module")
def values():
    return random_values()


@pytest.fixture
def source(values, tmp_path):
    """A small model in the original's format, with heads and configuration."""
    folder = tmp_path / "source"
    folder.mkdir()
    save_original(folder, original_values(values))
    return folder


def convert(source, output, format, *more):
    run("convert_checkpoint", f"--input={source}", f"--output={output}", f"--format={format}", *more)
    return checkpoints.open_checkpoint(str(output))


@pytest.mark.parametrize("heads", [("", "cls/squad/"), ("cls/tokens/",)], ids=["texts and spans", "tokens"])
@pytest.mark.parametrize("first", FORMATS)
def test_conversion_between_all_formats_is_exact(values, source, tmp_path, first, heads):
    named = original_values(values)
    for number, head in enumerate(heads):
        named[f"{head}output_weights"] = np.random.rand(3 - number, 16).astype(np.float32)
        named[f"{head}output_bias"] = np.random.rand(3 - number).astype(np.float32)
    save_original(source, named)
    expected = values_of(checkpoints.open_checkpoint(str(source)))
    assert len(expected) == len(named)
    convert(source, tmp_path / first, first)
    for second in FORMATS:
        contents = convert(tmp_path / first, tmp_path / f"{first}-{second}", second)
        assert contents.format == second and contents.config == CONFIG and contents.left_over == ()
        assert_same(values_of(with_trained_pooler(contents)), expected)


def test_float64_weights_are_rounded_and_logged(values, source, tmp_path, caplog):
    wide = {name: value * np.float64(1 + 1e-12) for name, value in original_values(values).items()}
    prefix = save_original(source, wide)
    hugging_face.write(str(tmp_path), {path: value.astype(np.float64) for path, value in values.items()}, CONFIG)
    for path, file in ((source, prefix), (tmp_path, tmp_path / "model.safetensors")):
        caplog.clear()
        read = values_of(checkpoints.open_checkpoint(str(path)))
        assert {value.dtype for value in read.values()} == {np.dtype(np.float32)}
        assert_same(read, values)
        assert caplog.messages == [f"{file}: {len(values)} tensors are float64 and were rounded to float32"]
    caplog.clear()
    save_original(source, original_values(values))
    checkpoints.load_encoder(str(source))
    assert "float64" not in caplog.text


def test_what_has_no_pooler_keeps_none(values, source, tmp_path, caplog):
    save_original(source, {name: v for name, v in original_values(values).items() if "pooler" not in name})
    for format in FORMATS:
        contents = convert(source, tmp_path / format, format)
        assert "encoder/pooler/kernel" not in contents.tensors and len(contents.tensors) == len(values) - 2
    assert "has no pooler, so" in caplog.text


def write_vocabulary(path, tokens) -> str:
    return str(write(path, "".join(f"{token}\n" for token in tokens)))


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OLD = [*SPECIAL, "[unused0]", "[unused1]", "un", "##believ", "##able", "able", "##s", "a", "##b"]
GROWN = {
    "unbelievable": ["un", "##believ", "##able"],
    "##ables": ["##able", "##s"],
    "ables": ["able", "##s"],
    "café": ["[UNK]"],
    "##bs": ["##b", "##s"],
}


def check_rows(contents, values, new, size):
    words, bias = (contents.tensors[p].read() for p in ("encoder/embeddings/word_embeddings", "masked_lm/bias"))
    assert len(words) == len(bias) == contents.config.vocab_size == size
    for number, token in enumerate(new):
        ids = [OLD.index(old) for old in GROWN.get(token, [token])]
        np.testing.assert_allclose(words[number], values["encoder/embeddings/word_embeddings"][ids].mean(0), rtol=1e-6)
        np.testing.assert_allclose(bias[number], values["masked_lm/bias"][ids].mean(), rtol=1e-5)


@pytest.mark.quick_cases("hugging_face")
@pytest.mark.parametrize("format", FORMATS)
def test_vocabulary_with_appended_tokens_grows_model(source, tmp_path, format):
    config = dataclasses.replace(CONFIG, vocab_size=len(OLD))
    values = random_values(config)
    save_original(source, original_values(values), config)
    write_vocabulary(source / "vocab.txt", OLD)
    new = [*OLD, *GROWN]
    extended = write_vocabulary(tmp_path / "new.txt", new)
    contents = convert(source, tmp_path / "out", format, f"--extended_vocab_file={extended}")
    check_rows(contents, values, new, len(new))
    assert (tmp_path / "out/vocab.txt").read_text() == (tmp_path / "new.txt").read_text()
    model = BertPretrainer(contents.config)
    checkpoints.initialize(model, str(tmp_path / "out"))
    np.testing.assert_array_equal(model.encoder.pooler.kernel, values["encoder/pooler/kernel"])


def test_an_extension_keeps_added_tokens(source, tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=len(OLD) + 1)
    save_original(source, original_values(random_values(config)), config)
    write_vocabulary(source / "vocab.txt", OLD)
    (source / "added_tokens.json").write_text(json.dumps({"[URL]": len(OLD)}))
    extended = write_vocabulary(tmp_path / "new.txt", [*OLD, "[URL]", "unbelievable"])
    convert(source, tmp_path / "out", "hugging_face", f"--extended_vocab_file={extended}")
    assert [token.content for token in tokenizer_files.read(str(tmp_path / "out")).added_tokens] == ["[URL]"]


def test_unused_slots_change_only_their_rows(values, source, tmp_path):
    old = write_vocabulary(tmp_path / "old.txt", OLD)
    new = [*OLD[:5], "unbelievable", "café", *OLD[7:]]
    extended = write_vocabulary(tmp_path / "new.txt", new)
    more = (f"--vocab_file={old}", f"--extended_vocab_file={extended}")
    contents = convert(source, tmp_path / "out", "bert_tf", *more)
    check_rows(contents, values, new, CONFIG.vocab_size)
    words = contents.tensors["encoder/embeddings/word_embeddings"].read()
    np.testing.assert_array_equal(words[len(new) :], values["encoder/embeddings/word_embeddings"][len(new) :])
    exact = [number for number, token in enumerate(new) if token in OLD]
    np.testing.assert_array_equal(words[exact], values["encoder/embeddings/word_embeddings"][exact])


def test_a_cut_vocabulary_keeps_the_outputs_of_texts(source, tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=len(OLD) + 3)
    save_original(source, original_values(random_values(config)), config)
    write_vocabulary(source / "vocab.txt", OLD)
    texts = ["a able", "ableable a", "missing a"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    cut = convert(source, tmp_path / "out", "bert_tf", f"--keep_vocabulary_of={tmp_path}/texts.txt")
    tokenizers = [BertTokenizer(str(folder)) for folder in (source, tmp_path / "out")]
    before, after = (tokenizer.encode(texts) for tokenizer in tokenizers)
    assert len(tokenizers[1].vocabulary) == cut.config.vocab_size < len(OLD)
    assert set(SPECIAL) <= set(tokenizers[1].vocabulary)
    assert tokenizers[0].to_tokens(before.values.numpy()) == tokenizers[1].to_tokens(after.values.numpy())
    models = [BertPretrainer(contents.config) for contents in (checkpoints.open_checkpoint(str(source)), cut)]
    outputs = []
    for model, folder, rows in zip(models, (source, tmp_path / "out"), (before, after), strict=True):
        checkpoints.initialize(model, str(folder))
        outputs.append(model.encoder({"input_ids": rows.to_tensor()})["sequence_output"].numpy())
    mask = tf.sequence_mask(before.row_lengths()).numpy()[..., None]
    np.testing.assert_array_equal(outputs[0] * mask, outputs[1] * mask)


def lines(tokens):
    return "".join(f"{token}\n" for token in tokens)


CASED = {"source/vocab.txt": lines(OLD), "source/tokenizer_config.json": '{"do_lower_case": false}'}
SHORTER = {"old.txt": lines(OLD), "new.txt": lines([*(token for token in OLD if token not in ("a", "able")), "x"])}
PERMUTED = {"other.txt": lines([*OLD[:-2], *reversed(OLD[-2:])])}


@pytest.mark.parametrize(
    ("files", "flags", "message"),
    [
        (SHORTER, ["--vocab_file={}/old.txt", "--extended_vocab_file={}/new.txt"],
         r"lacks 2 tokens of the checkpoint's vocabulary \(able, a\)"),
        (SHORTER, ["--extended_vocab_file={}/new.txt"], "the folder of .* has no vocab.txt; give .* --vocab_file"),
        ({"large.txt": lines([*SPECIAL, *range(36)])}, ["--vocab_file={}/large.txt"],
         "vocab_size=40 is smaller than .*large.txt, which has 41 tokens"),
        (CASED, ["--do_lower_case"],
         "--do_lower_case=true: .*tokenizer_config.json says .* give --do_lower_case=false, or"),
        (CASED | PERMUTED, ["--vocab_file={}/other.txt"],
         r"other.txt: not the vocab.*vocab.txt \(token 12 is '##b' instead of 'a'\)"),
    ],
)  # fmt: skip
def test_refuses_mismatched_vocabularies(source, tmp_path, files, flags, message):
    for name, content in files.items():
        write(tmp_path / name, content)
    flags = [flag.format(tmp_path) for flag in flags]
    refused(message, convert, source, tmp_path / "out", "bert_tf", *flags)
    assert not (tmp_path / "out").exists()


def test_another_vocabulary_is_taken_by_a_flag(source, tmp_path):
    for name, content in (CASED | PERMUTED).items():
        write(tmp_path / name, content)
    given = [f"--vocab_file={tmp_path}/other.txt", "--ignore_checkpoint_tokenizer"]
    convert(source, tmp_path / "out", "bert_tf", *given)
    assert (tmp_path / "out/vocab.txt").read_text() == PERMUTED["other.txt"]


def test_a_larger_model_names_the_extension(source):
    larger = BertConfig(**dataclasses.asdict(CONFIG) | {"vocab_size": 41})
    refused("extended_vocab_file=NEW extends the model", checkpoints.initialize, BertPretrainer(larger), str(source))


@pytest.mark.parametrize(("direction", "unable"), [("ltr", ["tf1", "tf_models"]), ("rtl", FORMATS[1:])])
def test_one_directional_models_need_a_fitting_format(source, tmp_path, direction, unable):
    config = dataclasses.replace(CONFIG, directionality=direction)
    (source / "bert_config.json").write_text(config.to_json_string())
    for format in FORMATS:
        if format in unable:
            message = f"directionality={direction}, but .*; give --format=bert_tf"
            refused(message, convert, source, tmp_path / format, format)
        else:
            assert convert(source, tmp_path / format, format).config == config


def test_exact_gelu_gets_its_own_name(source, tmp_path, caplog):
    config = dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    (source / "bert_config.json").write_text(config.to_json_string())
    for format in FORMATS:
        assert convert(source, tmp_path / format, format).config == config
    assert json.loads((tmp_path / "hugging_face/config.json").read_text())["hidden_act"] == "gelu"
    assert caplog.text.count("hidden_act=gelu_erf is written") == 1


def test_a_full_output_folder_is_refused(values, source, tmp_path, monkeypatch):
    refused("exists and is not an empty folder; give a new folder", convert, source, source, "tf1")
    monkeypatch.setattr("tensorflow.io.gfile.copy", lambda *_: 1 / 0)
    write_vocabulary(source / "vocab.txt", OLD)
    with pytest.raises(ZeroDivisionError):
        convert(source, tmp_path / "out", "tf1")
    assert sorted(os.listdir(tmp_path)) == ["source"]


def test_labels_reach_hugging_face_again(values, source, tmp_path):
    named = original_values(values) | {"output_weights": np.ones([2, 16]), "output_bias": np.ones(2)}
    save_original(source, {name: value.astype(np.float32) for name, value in named.items()})
    write_vocabulary(source / "vocab.txt", ["a", *SPECIAL])
    description.write(str(source), TaskDescription("classification", "own", ["no", "ja"], 7, {}))
    convert(source, tmp_path / "tf1", "tf1")
    convert(source, tmp_path / "ours", "bert_tf")
    assert description.read(str(tmp_path / "ours")) == description.read(str(source))
    for folder in (source, tmp_path / "tf1"):
        convert(folder, tmp_path / f"{folder.name}-hf", "hugging_face")
        entries = json.loads((tmp_path / f"{folder.name}-hf/config.json").read_text())
        assert entries["id2label"] == {"0": "no", "1": "ja"} and entries["label2id"] == {"no": 0, "ja": 1}
        assert (entries["problem_type"], entries["pad_token_id"]) == ("single_label_classification", 1)
        tokenizer = json.loads((tmp_path / f"{folder.name}-hf/tokenizer_config.json").read_text())
        assert tokenizer["model_max_length"] == 7


def test_score_ranges_and_label_sets_are_kept(values, source, tmp_path):
    named = original_values(values) | {"output_weights": np.ones([1, 16]), "output_bias": np.ones(1)}
    save_original(source, {name: value.astype(np.float32) for name, value in named.items()})
    write_vocabulary(source / "vocab.txt", ["a", *SPECIAL])
    scale = {"has_pairs": False, "mean": 500.0, "deviation": 20.0}
    description.write(str(source), TaskDescription("regression", "own", [], 7, scale))
    for format, expected in (("hugging_face", (20, 520)), ("tf1", (20, 520)), ("bert_tf", (1, 1))):
        found = convert(source, tmp_path / format, format)
        read = found.read(["head/dense/kernel", "head/dense/bias"])
        assert (read["head/dense/kernel"][0, 0], read["head/dense/bias"][0]) == expected, format
    description.write(str(source), TaskDescription("multi_label", "own", ["x"], 7, {}))
    (source / "thresholds.json").write_text('{"step": 7, "thresholds": {"x": 0.25}}')
    convert(source, tmp_path / "sets", "hugging_face")
    assert json.loads((tmp_path / "sets/config.json").read_text())["problem_type"] == "multi_label_classification"
    convert(source, tmp_path / "ours", "bert_tf")
    kept = json.loads((tmp_path / "ours/thresholds.json").read_text())
    assert (kept["step"], kept["thresholds"]) == (None, {"x": 0.25})


def test_labels_and_casing_survive_two_conversions(source, tmp_path):
    write_vocabulary(source / "vocab.txt", OLD)
    convert(source, tmp_path / "first", "hugging_face")
    config = tmp_path / "first/config.json"
    labels = {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": 0, "pos": 1}}
    config.write_text(json.dumps(json.loads(config.read_text()) | labels))
    rules = {"do_lower_case": False, "strip_accents": True, "model_max_length": 9}
    (tmp_path / "first/tokenizer_config.json").write_text(json.dumps(rules))
    convert(tmp_path / "first", tmp_path / "second", "hugging_face")
    assert labels.items() <= json.loads((tmp_path / "second/config.json").read_text()).items()
    kept = json.loads((tmp_path / "second/tokenizer_config.json").read_text())
    assert kept["do_lower_case"] is False and kept["strip_accents"] is True and kept["model_max_length"] == 9
    # transformers writes this if the length is unknown; the class needs a tokenizer.json.
    for number, length in enumerate((10**30, None)):
        rules = {"model_max_length": length, "tokenizer_class": "PreTrainedTokenizerFast"}
        (tmp_path / "first/tokenizer_config.json").write_text(json.dumps(rules))
        convert(tmp_path / "first", tmp_path / f"third{number}", "hugging_face")
        kept = json.loads((tmp_path / f"third{number}/tokenizer_config.json").read_text())
        assert (kept["model_max_length"], kept["tokenizer_class"]) == (12, "BertTokenizer")


def test_converting_unfinished_training_warns(source, tmp_path, caplog):
    convert(source, tmp_path / "run", "bert_tf")
    phase = run_record.TrainingRecord({}, {}, {}, {"num_train_steps": 10})
    (tmp_path / "run/run.json").write_text(json.dumps({"phases": [dataclasses.asdict(phase)]}))
    convert(tmp_path / "run", tmp_path / "out", "tf1")
    assert f"{tmp_path}/run/ckpt-0 has step 0 of 10: the training is not finished" in caplog.messages


def test_a_run_gives_its_best_checkpoint(source, tmp_path, caplog):
    trained = tmp_path / "run"
    convert(source, trained, "bert_tf")
    (trained / "checkpoint").unlink()
    for part in ("index", "data-00000-of-00001"):
        (trained / f"ckpt-0.{part}").rename(trained / f"ckpt-3.{part}")
    last = BertPretrainer(CONFIG)
    tf.train.Checkpoint(model=last, global_step=tf.Variable(7, dtype=tf.int64)).write(str(trained / "ckpt-7"))
    phase = run_record.TrainingRecord({}, {}, {}, {"num_train_steps": 7})
    (trained / "run.json").write_text(json.dumps({"phases": [dataclasses.asdict(phase)]}))
    evaluations.write(str(trained), evaluations.Evaluations("f1", scores={3: {"f1": 0.9}, 7: {"f1": 0.8}}))
    description.write(str(trained), TaskDescription("questions", "squad", (), 8, {}))
    squad_results.NULL_THRESHOLD.write(str(trained), 1.5, 3)

    path = "encoder/pooler/kernel"
    best, newest = checkpoints.open_checkpoint(f"{trained}/ckpt-3").read([path]), last.encoder.pooler.kernel.numpy()
    np.testing.assert_array_equal(convert(trained, tmp_path / "best", "bert_tf").read([path])[path], best[path])
    assert "not finished" not in caplog.text
    np.testing.assert_array_equal(
        convert(trained, tmp_path / "last", "tf1", "--use_checkpoint=last").read([path])[path], newest
    )
    given = (trained, tmp_path / "other", "bert_tf", "--use_checkpoint=last")
    refused("tuned on the checkpoint of step 3, not of step 7", convert, *given)
    assert not (tmp_path / "other").exists()


def test_configuration_flag_replaces_missing_file(source, tmp_path, caplog):
    os.rename(source / "bert_config.json", tmp_path / "c.json")
    refused("bert_config.json: no such file; put the configuration", convert, source, tmp_path / "out", "bert_tf")
    with caplog.at_level(logging.INFO, "absl"):
        contents = convert(source, tmp_path / "out", "bert_tf", f"--bert_config_file={tmp_path}/c.json")
    assert contents.config == CONFIG
    assert f"loaded 46 tensors from {source}/bert_model.ckpt (tf1)" in caplog.text


@pytest.mark.parametrize("options", [{"bilstm_head": True}, {"features": "last_hidden", "lstm_size": 4}], ids=str)
def test_bilstm_head_converts_only_to_bert_tf(vocab_file, tmp_path, options):
    has_bilstm = options.pop("bilstm_head", False)
    task = tagging.make_task(**options)
    trained = put_together(tmp_path / "run", vocab_file, task, bilstm_head=has_bilstm, spread=0.1)
    for format in FORMATS[1:]:
        message = f"--format={format}: .*, but the format has no BiLSTM; .*=bert_tf"
        refused(message, convert, tmp_path / "run", tmp_path / format, format)
    convert(tmp_path / "run", tmp_path / "copy", "bert_tf")
    with sources.load(ExportSettings(checkpoint_dir=str(tmp_path / "copy"), export_dir="unused")) as copy:
        for ours, theirs in zip(copy.model.variables, trained.variables, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert copy.description.bilstm_head == has_bilstm and len(trained.task_head.variables) > 2


@pytest.mark.parametrize(
    ("kind", "parameters", "warning"),
    [
        ("classification", {"has_pairs": False, "long_text": "window", "window_stride": 4},
         "its code truncates texts, but {} was trained with --long_text=window, so the answers to texts of more"),
        ("multi_label", {"long_text": "head_tail"}, "was trained with --long_text=head_tail"),
        ("tagging", {"document_context": True}, "each sentence alone, but {} was trained with --document_context"),
        ("tagging", {"document_context": False}, ""),
        ("regression", {"has_pairs": True}, ""),
    ],
)  # fmt: skip
def test_what_other_code_reads_otherwise_is_warned_of(source, tmp_path, caplog, kind, parameters, warning):
    write_vocabulary(source / "vocab.txt", OLD)
    description.write(str(source), TaskDescription(kind, "own", ["x"], 7, parameters))
    for format in FORMATS:
        caplog.clear()
        convert(source, tmp_path / format, format)
        lines = [line for line in caplog.messages if line.startswith(f"--format={format}: ")]
        assert len(lines) == bool(warning and format != "bert_tf")
        assert all(
            warning.format(f"{source}/bert_model.ckpt") in line and "--format=bert_tf keeps" in line for line in lines
        )
    description.write(str(source), TaskDescription("regression", "own", [], 7, {"pooling": "mean"}))
    message = "its classifier reads the pooled .CLS., but .* --pooling=mean; give"
    refused(message, convert, source, tmp_path / "refused", "tf1")


@pytest.mark.parametrize(("kind", "name"), [("multi_label", "thresholds.json"), ("questions", "null_threshold.json")])
def test_thresholds_a_format_cannot_store_are_logged(source, tmp_path, caplog, kind, name):
    write_vocabulary(source / "vocab.txt", OLD)
    description.write(str(source), TaskDescription(kind, "own", ["x"], 7, {}))
    values = {"thresholds": {"x": 0.25}} if name == "thresholds.json" else {"null_score_diff_threshold": 0.5}
    (source / name).write_text(json.dumps({"step": None} | values))
    for format in FORMATS:
        caplog.clear()
        convert(source, tmp_path / format, format)
        assert (f"cannot store {source}/{name}, so some answers will differ" in caplog.text) == (format != "bert_tf")
    assert (tmp_path / "bert_tf" / name).exists()


def write_sentence_transformer(folder, *kinds):
    """Writes the files of a model that pools the maximum of at most 9 tokens, and of the modules after the pooling."""
    modules = {"": "Transformer", "1_Pooling": "Pooling", **{f"{2 + i}_{kind}": kind for i, kind in enumerate(kinds)}}
    entries = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules.items()]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    files = {
        "modules.json": entries, "1_Pooling/config.json": {"pooling_mode_max_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 9}, "config_sentence_transformers.json": {"prompts": {}},
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return files


@pytest.mark.slow
def test_pooling_goes_through_every_format(vocab_file, tmp_path):
    write_pretrained(folder := tmp_path / "source", vocab_file)
    files = write_sentence_transformer(folder, "Normalize")
    texts = ["the men", "all of it and more of that for us"]
    expected = FeatureExtractor(folder, sentence_vectors=True).sentences(texts)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6)
    for number, format in enumerate([*FORMATS, "bert_tf"]):
        convert(folder, tmp_path / str(number), format)
        folder = tmp_path / str(number)
        extractor = FeatureExtractor(folder, sentence_vectors=True)
        assert (extractor.settings.max_seq_length, extractor.settings.pooling) == (9, "max")
        assert {name: json.loads((folder / name).read_text()) for name in files} == files
    np.testing.assert_allclose(extractor.sentences(texts), expected, atol=1e-6)


def test_unconverted_modules_are_named(source, tmp_path, caplog):
    write_sentence_transformer(source, "Dense")
    convert(source, tmp_path / "first", "bert_tf")
    assert "modules.json names Dense; neither this module nor the pooling is converted" in caplog.text
    assert not (tmp_path / "first/modules.json").exists()
    write_sentence_transformer(source)
    (tmp_path / "config.json").write_text("{}")
    (source / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": ".."}]))
    convert(source, tmp_path / "a/b", "bert_tf")
    assert not (tmp_path / "a/config.json").exists()
    (source / "modules.json").write_text("{")
    refused(r"modules.json: is damaged .*; copy it again, or delete it", convert, source, tmp_path / "c", "bert_tf")
