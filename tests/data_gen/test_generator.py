"""Whole runs: contents of the records, equal bytes for every way of making them, and refusals."""

import gzip
import hashlib
import json
import os
import pathlib
import random
import re
import shutil

import numpy as np
import pytest
from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig, BertPretrainDataLoader
from official.nlp.tools.tokenization import FullTokenizer

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import LocalRunner
from data_gen import generator as generator_module
from data_gen import shards, work_units
from tests.kit import refused

S, P = 32, 5  # the fixture's vocabulary


@pytest.fixture
def small_units(monkeypatch, cut_text):
    """Settings for many blocks, units and buckets of a small corpus."""
    cut_text(2000)
    monkeypatch.setattr(shards, "BUCKET_BYTES", 5000)


class Disorderly(LocalRunner):
    """A runner that executes every task twice and returns results in a random order."""

    def __init__(self, seed):
        super().__init__(1)
        self._random = random.Random(seed)

    def map(self, function, tasks):
        tasks = list(tasks) * 2
        self._random.shuffle(tasks)
        answers = {}
        for task in tasks:
            answers[id(task)] = function(task)
        answers = list(answers.values())
        self._random.shuffle(answers)
        yield from answers


def records(generator, prefix):
    return {n.removeprefix(prefix): b for n, b in generator.files().items() if n.startswith(prefix + "-")}


@pytest.mark.slow
def test_any_runner_gives_the_same_bytes(generator, small_units):
    generator.run("a@3")
    expected = records(generator, "a")
    assert len(expected) == 3 and len(set(expected.values())) == 3
    for seed in range(3):
        generator.run(f"disorderly{seed}@3", runner=Disorderly(seed))
        assert records(generator, f"disorderly{seed}") == expected
    for workers in (2, 3):
        with LocalRunner(workers, preload=["data_gen.token_blocks", "data_gen.examples"]) as runner:
            generator.run(f"{workers}@3", runner=runner, num_workers=workers)
        assert records(generator, str(workers)) == expected
    generator.run("other@3", random_seed=1)
    assert not set(records(generator, "other").values()) & set(expected.values())


@pytest.mark.core
def test_a_lost_shard_is_made_again(generator, small_units):
    made = generator.run("a@3")
    before = generator.files()
    times = {path.name: path.stat().st_mtime_ns for path in generator.folder.iterdir()}
    assert generator.run("a@3", num_workers=5) == made
    assert {path.name: path.stat().st_mtime_ns for path in generator.folder.iterdir()} == times
    (generator.folder / "a-00001-of-00003").unlink()
    generator.run("a@3")
    assert generator.files() == before
    os.truncate(generator.folder / "a-00002-of-00003", 5)
    generator.run("a@3")
    assert generator.files() == before


@pytest.mark.core
def test_another_corpus_or_setting_is_refused(generator, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.write_text("the of\nand to\n\nin is\n")
    generator.run(input_file=corpus)
    before = generator.files()
    message = r"made with other settings \(--max_seq_length was 32, is 40\)"
    refused(message, generator.run, input_file=corpus, max_seq_length=40)
    corpus.write_text("the of\nand to\n\nin as\n")
    refused("corpus number 1 was '21 bytes, ", generator.run, input_file=corpus)
    assert generator.files() == before


def test_language_is_that_of_the_dump_else_english(generator, tmp_path, caplog):
    page = "<page><title>A</title><ns>0</ns><revision><text>the of and to. {0} in is.</text></revision></page>"
    for name in ("de", "tr"):
        text = f'<mediawiki xml:lang="{name}">{page.format("he")}{page.format("it")}</mediawiki>'
        (tmp_path / f"{name}.xml").write_text(text)
    (tmp_path / "a.jsonl").write_text('{"text": "the of and to."}\n{"text": "the of"}\n')

    def used(name, files, **changes):
        caplog.clear()
        generator.run(name, input_file=",".join(str(tmp_path / file) for file in files.split(",")), **changes)
        said = [line for line in caplog.messages if line.startswith("sentences are split by the rules for ")]
        made = json.loads((generator.folder / f"{name}.manifest.json").read_text())
        return made["settings"]["language"], [line.split(";")[0].split(" for ")[1] for line in said]

    with caplog.at_level("INFO"):
        assert used("a", "de.xml") == ("de", ["de"])
        assert used("a", "de.xml", language="de") == ("de", [])  # the same set
        assert used("b", "de.xml,tr.xml") == ("", ["de, tr"])
        assert used("c", "a.jsonl") == ("en", ["en"])
        assert used("d", "a.jsonl", language="fi") == ("fi", [])
        assert used("e", generator.corpus_file) == ("", [])
    refused(r"made with other settings \(--language was 'de', is 'tr'\)", used, "a", "de.xml", language="tr")


def test_two_runs_in_one_process_do_not_mix(generator, tmp_path, read_rows, unmask):
    corpus, vocabulary = tmp_path / "corpus", pathlib.Path(generator.vocab_file).read_text().split()
    for text in ("the of\nand to\n\nin is\n", "he his\nat by\n\nnot be\n"):
        corpus.write_text(text)
        generator.run(input_file=corpus)
        found = {vocabulary[token] for row in read_rows(generator.folder / "out") for token in unmask(row)}
        assert found == {"[CLS]", "[SEP]", *text.split()}
        (generator.folder / "out").unlink()
        (generator.folder / "out.manifest.json").unlink()


@pytest.mark.core
def test_unmasked_rows_are_text_of_the_corpus(generator, read_rows, unmask):
    generator.run("a,b", short_seq_prob=0.3)
    theirs = FullTokenizer(generator.vocab_file)
    text = pathlib.Path(generator.corpus_file).read_text()
    corpus = [f" {' '.join(theirs.tokenize(part))} " for part in text.split("\n\n")]
    seen, rows = set(), read_rows(generator.folder / "a", generator.folder / "b")
    assert len(rows) > 200
    for row in rows:
        used = sum(row["input_mask"])
        assert row["input_mask"] == [1] * used + [0] * (S - used) and not any(row["input_ids"][used:])
        tokens = theirs.convert_ids_to_tokens(unmask(row))
        middle = tokens.index("[SEP]")
        assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
        assert row["segment_ids"] == [0] * (middle + 1) + [1] * (used - middle - 1) + [0] * (S - used)
        count = int(sum(row["masked_lm_weights"]))
        assert count == min(P, max(1, round(used * 0.15)))
        assert row["masked_lm_weights"] == [1.0] * count + [0.0] * (P - count)
        assert not any(row["masked_lm_positions"][count:] + row["masked_lm_ids"][count:])
        assert not {0, middle, used - 1} & set(row["masked_lm_positions"][:count])
        a, b = (f" {' '.join(segment)} " for segment in (tokens[1:middle], tokens[middle + 1 : -1]))
        of_a, of_b = ({i for i, document in enumerate(corpus) if part in document} for part in (a, b))
        assert of_a and of_b
        if row["next_sentence_labels"] == [0]:
            assert of_a & of_b
        seen |= of_a
    assert seen == set(range(len(corpus)))


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "lm"])
@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_objective_and_masking_decide_features(generator, read_rows, objective, masking):
    if (objective, masking) == ("lm", "dynamic"):
        return
    generator.run(objective=objective, masking=masking)
    names = {"input_ids", "input_mask", "segment_ids"}
    if masking == "static" and objective != "lm":
        names |= {"masked_lm_positions", "masked_lm_ids", "masked_lm_weights"}
    if objective == "mlm_nsp":
        names |= {"next_sentence_labels"}
    vocabulary = pathlib.Path(generator.vocab_file).read_text().split()
    rows = read_rows(generator.folder / "out")
    assert rows
    for row in rows:
        assert set(row) == names
        if objective != "mlm_nsp":
            assert not any(row["segment_ids"])
        if "masked_lm_ids" not in names:
            assert vocabulary.index("[MASK]") not in row["input_ids"]
            assert row["input_ids"].count(vocabulary.index("[SEP]")) == (2 if objective == "mlm_nsp" else 1)


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.core
def test_tf_models_reader_reads_equal_values(generator, read_rows, objective, packed):
    if packed and objective == "mlm":
        return
    generator.run(objective=objective, gzip_compress=packed)
    path = generator.folder / "out"
    rows = read_rows(path, gzip=packed)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == packed
    if packed:  # their reader cannot read these
        path.with_name("plain").mkdir()
        generator.run("plain/out")
        assert rows == read_rows(generator.folder / "plain" / "out")
        path = generator.folder / "plain" / "out"
    loader = BertPretrainDataLoader(
        BertPretrainDataConfig(
            input_path=str(path), seq_length=S, max_predictions_per_seq=P, global_batch_size=7, is_training=False,
            drop_remainder=False, use_next_sentence_label=objective == "mlm_nsp",
        )
    )  # fmt: skip
    batches = list(loader.load().as_numpy_iterator())
    theirs = {name: np.concatenate([batch[name] for batch in batches]).tolist() for name in batches[0]}
    ours = {name: [row[name] for row in rows] for name in rows[0]}
    ours["input_word_ids"], ours["input_type_ids"] = ours.pop("input_ids"), ours.pop("segment_ids")
    assert theirs == ours


@pytest.mark.parametrize("max_ngram_size", [None, 3])
def test_whole_word_masking_reaches_the_records(generator, tmp_path, read_rows, unmask, max_ngram_size):
    corpus = tmp_path / "corpus"  # "zqx" is z ##q ##x
    corpus.write_text("the zqx of kjw and vzk\nin zzq to qqj\n\nis wvx it xyz\nhe kkq\n" * 20)
    masks = {"do_whole_word_mask": True, "max_ngram_size": max_ngram_size, "masked_lm_prob": 0.3}
    generator.run(input_file=corpus, **masks)
    continues = [token.startswith("##") for token in pathlib.Path(generator.vocab_file).read_text().split()]
    partial = words = 0
    for row in read_rows(generator.folder / "out"):
        ids, weights = unmask(row), row["masked_lm_weights"]
        chosen = {p for p, w in zip(row["masked_lm_positions"], weights, strict=True) if w}
        inside = [i for i in range(2, len(ids)) if continues[ids[i]] and ids[i - 1] != 3]
        words += sum(i in chosen for i in inside)
        partial += sum((i in chosen) != (i - 1 in chosen) for i in inside)
    assert partial == 0 and words > 50


def test_manifest_statistics_equal_records(generator, small_units, read_rows):
    made = generator.run("a@3", short_seq_prob=0.5)
    entries = json.loads((generator.folder / "a.manifest.json").read_text())
    names = [f"a-0000{i}-of-00003" for i in range(3)]
    files = {name: (generator.folder / name).read_bytes() for name in names}
    per_shard = [read_rows(generator.folder / name) for name in names]
    assert entries["shards"] == [
        {"name": n, "examples": len(r), "bytes": len(files[n]), "sha256": hashlib.sha256(files[n]).hexdigest()}
        for n, r in zip(names, per_shard, strict=True)
    ]
    assert [shard.name for shard in made] == names
    rows = sum(per_shard, [])
    filled = sum(sum(row["input_mask"]) for row in rows)
    assert entries["examples"] == len(rows)
    assert entries["padding_share"] == pytest.approx(1 - filled / (len(rows) * S), abs=1e-6)
    assert entries["masked_share"] == pytest.approx(sum(sum(r["masked_lm_weights"]) for r in rows) / filled, abs=1e-6)
    assert entries["random_next_share"] == pytest.approx(np.mean([r["next_sentence_labels"] for r in rows]))
    text = pathlib.Path(generator.corpus_file).read_text()
    tokens = FullTokenizer(generator.vocab_file).tokenize(text)
    assert entries["documents"] == 40
    assert entries["sentences"] == len([line for line in text.split("\n") if line])
    assert entries["tokens"] == len(tokens)
    assert entries["unknown_share"] == pytest.approx(tokens.count("[UNK]") / len(tokens), abs=1e-6)
    middles = [row["input_ids"].index(3) for row in rows]  # [SEP]
    own = [
        middle - 1 + (0 if row["next_sentence_labels"][0] else sum(row["input_mask"]) - middle - 2)
        for row, middle in zip(rows, middles, strict=True)
    ]
    assert entries["used_share"] == pytest.approx(sum(own) / (2 * len(tokens)), abs=1e-6)
    vocabulary = pathlib.Path(generator.vocab_file).read_bytes()
    assert entries["vocab_sha256"] == hashlib.sha256(vocabulary).hexdigest()
    assert entries["vocab_size"] == len(vocabulary.split())
    assert entries["settings"]["max_seq_length"] == S and entries["settings"]["short_seq_prob"] == 0.5
    assert [(e["name"], e["bytes"]) for e in entries["corpus"]] == [("corpus.txt", len(text.encode()))]


def test_at_most_as_many_shards_as_examples(generator, tmp_path, read_rows):
    corpus = tmp_path / "corpus"
    corpus.write_text("the of\nand to\n\nin is\nit at\n")
    count = len(read_rows(*[generator.folder / s.name for s in generator.run("a", input_file=corpus, dupe_factor=3)]))
    shards = generator.run(f"c@{count}", input_file=corpus, dupe_factor=3)
    assert [shard.examples for shard in shards] == [1] * count
    assert all(read_rows(generator.folder / shard.name) for shard in shards)
    with pytest.raises(InputError, match=rf"{count + 1} shards, but .* {count} example.*at most {count} shards"):
        generator.run(f"b@{count + 1}", input_file=corpus, dupe_factor=3)
    assert not [name for name in generator.files() if name.startswith("b")]


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_document_per_line_warns_of_lost_text(generator, tmp_path, caplog):
    text = pathlib.Path(generator.corpus_file).read_text()
    documents = [" ".join(document.split("\n")) for document in text.split("\n\n")]
    (tmp_path / "blank.txt").write_text("\n\n".join(documents))
    (tmp_path / "corpus.txt").write_text("\n".join(documents))
    longer = {"max_seq_length": 64, "max_predictions_per_seq": 10}
    generator.run("sentences", **longer)
    assert not warnings_of(caplog)
    generator.run("blank", input_file=tmp_path / "blank.txt")
    used, random_next = warnings_of(caplog)
    assert used.startswith("only ") and "give --input_format=documents if each line is a document" in used
    assert random_next.startswith("100.0% of the next") and "--input_format=documents" in random_next
    caplog.clear()
    with pytest.raises(InputError, match="contains 1 document, .* give --input_format=documents if each line is"):
        generator.run("lines", input_file=tmp_path / "corpus.txt")
    generator.run("documents", input_file=tmp_path / "corpus.txt", input_format="documents", **longer)
    assert not warnings_of(caplog)
    sentences, found = (json.loads(generator.files()[f"{n}.manifest.json"]) for n in ("sentences", "documents"))
    assert (found["documents"], found["tokens"]) == (sentences["documents"], sentences["tokens"])
    assert found["sentences"] == pytest.approx(sentences["sentences"], rel=0.05)
    assert found["used_share"] > 0.9 and f"{found['used_share']:.1%} of them used" in caplog.messages[-1]


def test_warns_of_few_masked_tokens(generator, caplog):
    generator.run("few", max_seq_length=64, max_predictions_per_seq=1)
    assert [line for line in warnings_of(caplog) if "of 15.0%" in line and "--max_predictions_per_seq=1 is" in line]


def test_warns_of_cased_vocabulary_on_lower_case_text(generator, tmp_path, caplog):
    cased = tmp_path / "cased.txt"
    words = pathlib.Path(generator.vocab_file).read_text()
    cased.write_text(words + "".join(f"{word.title()}\n" for word in words.split() if word.isalpha()))
    generator.run("a", vocab_file=cased, do_lower_case=True)
    assert [line for line in warnings_of(caplog) if "has tokens with capital letters; leave the flag out" in line]


def test_warns_of_unknown_tokens_by_file_or_in_total(generator, tmp_path, caplog):
    (tmp_path / "odd.txt").write_text("\u0436\u0437 \u0438\nthe \u0436\n\n\u0437\n")
    generator.run("a", input_file=f"{generator.corpus_file},{tmp_path}/odd.txt")
    assert [line for line in warnings_of(caplog) if f"tokens in a part of {tmp_path}/odd.txt are [UNK]" in line]
    caplog.clear()
    generator.run("b", input_file=tmp_path / "odd.txt")
    assert [line for line in warnings_of(caplog) if line.startswith("80.0% of the tokens are [UNK]; check that")]
    (tmp_path / "odd.txt").write_text("\u0436\u0437 \u0438\n\n\u0437\n")
    with pytest.raises(InputError, match=r"odd.txt: 100.0% of the tokens are \[UNK\]; check that .*vocab.txt is for"):
        generator.run("c", input_file=tmp_path / "odd.txt")


def test_each_block_and_pass_gives_other_rows(generator, tmp_path, read_rows, monkeypatch, cut_text):
    cut_text(10**6)  # a block per file
    monkeypatch.setattr(work_units, "TOKENS_PER_UNIT", 1)  # and a unit per pass
    copy = shutil.copy(generator.corpus_file, tmp_path / "copy")
    generator.run(input_file=f"{generator.corpus_file},{copy}", dupe_factor=5, objective="mlm")
    texts = [str(row["input_ids"]) for row in read_rows(generator.folder / "out")]
    assert len(set(texts)) > 0.95 * len(texts)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": "{0}/none.txt"}, "--input_file: {0}/none.txt: no such file"),
        ({"input_file": "{0}/one.txt"}, "--input_file={0}/one.txt: contains 1 document, but"),
        ({"input_file": "{0}/empty.txt"}, "--input_file={0}/empty.txt: contains no text"),
        ({"input_file": "{0}/blank.txt"}, "--input_file={0}/blank.txt: contains no text"),
        ({"input_file": "{0}/bad.jsonl", "input_format": "jsonl"}, "{0}/bad.jsonl, line 3: is not JSON"),
        ({"input_file": "{0}/cut.txt.gz"}, "{0}/cut.txt.gz: is truncated or damaged"),
        ({"input_file": "{0}/one.txt", "input_format": "wikipedia"}, "{0}/one.txt: at byte 0: expected a MediaWiki"),
        ({"vocab_file": "{0}/none.txt"}, "{0}/none.txt: no such file"),
        ({"vocab_file": "{0}/no-mask.txt"}, "{0}/no-mask.txt: the special token [MASK] is missing"),
        ({"output_file": "{0}/out,{0}/two.txt"}, "--output_file: {0}/two.txt is also an input"),
        ({"output_file": "{0}/out,{0}/one.txt"}, "--output_file: {0}/one.txt exists and has no manifest"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_unusable_input_is_named(generator, tmp_path, two, changes, message, workers):
    (tmp_path / "two.txt").write_text("the of\n\nand to\n")
    (tmp_path / "one.txt").write_text("the of\nand to\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n\u3000\n\r\n\x00\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n\n{"text": "b"\n')
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"the of\n\nand to\n" * 99)[:-9])
    (tmp_path / "no-mask.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    arguments = {"input_file": "{0}/two.txt", "output_file": "{0}/out", **changes}
    arguments = {name: value.format(tmp_path) for name, value in arguments.items()}
    runner = two if workers == 2 else LocalRunner(1)
    with pytest.raises(InputError, match=re.escape(message.format(tmp_path))):
        generator_module.create_pretraining_data(generator.settings(**arguments), runner)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


@pytest.fixture(scope="module")
def two():
    with LocalRunner(2, preload=["data_gen.token_blocks", "data_gen.examples"]) as runner:
        yield runner


def test_one_document_suffices_for_mlm_objective(generator, tmp_path, read_rows):
    corpus = tmp_path / "corpus"
    corpus.write_text("the of\nand to")
    generator.run(input_file=corpus, objective="mlm", dupe_factor=1)
    assert len(read_rows(generator.folder / "out")) >= 1


def test_verify_names_what_is_not_as_it_was_written(generator):
    generator.run("a@3")
    settings = generator.settings("a@3", verify=True, input_file="", vocab_file="")
    generator_module.verify(settings)
    path = generator.folder / "a-00001-of-00003"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(f"{re.escape(str(path))}: record .* is damaged", generator_module.verify, settings)
    path.unlink()
    refused(f"{re.escape(str(path))}: missing", generator_module.verify, settings)
    (generator.folder / "a.manifest.json").unlink()
    refused("no such manifest", generator_module.verify, settings)
