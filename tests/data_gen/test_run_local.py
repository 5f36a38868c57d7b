import hashlib
import json
import os
import pathlib
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.data import create_pretraining_data as original
from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig, BertPretrainDataLoader
from official.nlp.tools.tokenization import FullTokenizer
from scipy import stats

from bert_tf.tokenization import BertTokenizer
from data_gen import run_local
from data_gen.settings import GeneratorSettings
from tfrecords.errors import InputError

LEVEL = 1e-3  # of every statistical test here; seeds are fixed, so a pass stays a pass
S, P = 64, 10


def generate(folder, vocab_file, input_file, output="train.tfrecord", **changes):
    outputs = ",".join(str(folder / name) for name in output.split(","))
    settings = GeneratorSettings(
        **{
            "input_file": str(input_file),
            "output_file": outputs,
            "vocab_file": str(vocab_file),
            "max_seq_length": S,
            "max_predictions_per_seq": P,
            "dupe_factor": 2,
            **changes,
        }
    )
    return run_local.create_pretraining_data(settings)


def read(*paths):
    """Every record as a dict of lists."""
    rows = []
    for record in tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator():
        found = tf.train.Example.FromString(record).features.feature
        rows.append({k: list(v.float_list.value if "weights" in k else v.int64_list.value) for k, v in found.items()})
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory, vocab_file, corpus_file):
    folder = tmp_path_factory.mktemp("made")
    shards = generate(folder, vocab_file, corpus_file, "a,b,c")
    return folder, shards


@pytest.fixture(scope="module")
def rows(made):
    return read(*(made[0] / name for name in "abc"))


def test_tf_models_officials_reader_reads_the_same_values(made):
    path = made[0] / "a"
    loader = BertPretrainDataLoader(
        BertPretrainDataConfig(
            input_path=str(path), seq_length=S, max_predictions_per_seq=P, global_batch_size=7, is_training=False,
            drop_remainder=False,
        )
    )  # fmt: skip
    batches = list(loader.load().as_numpy_iterator())
    theirs = {name: np.concatenate([batch[name] for batch in batches]).tolist() for name in batches[0]}
    ours = {name: [row[name] for row in read(path)] for name in read(path)[0]}
    ours["input_word_ids"], ours["input_type_ids"] = ours.pop("input_ids"), ours.pop("segment_ids")
    assert theirs == ours


def test_rows_are_cls_a_sep_b_sep_with_masks_segments_and_padding_to_match(rows, vocab_file):
    tokenizer = BertTokenizer(vocab_file)
    for row in rows:
        used = sum(row["input_mask"])
        assert row["input_mask"] == [1] * used + [0] * (S - used)
        assert row["input_ids"][used:] == [0] * (S - used)
        # a random replacement may put [SEP] or [CLS] anywhere, so look at the text before masking
        ids = unmasked(row)
        assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        (middle,) = [i for i, piece in enumerate(ids[:-1]) if piece == tokenizer.sep_id]
        assert row["segment_ids"] == [0] * (middle + 1) + [1] * (used - middle - 1) + [0] * (S - used)
        count = int(sum(row["masked_lm_weights"]))
        assert count == min(P, max(1, round(used * 0.15)))
        assert row["masked_lm_weights"] == [1.0] * count + [0.0] * (P - count)
        assert row["masked_lm_positions"][count:] == row["masked_lm_ids"][count:] == [0] * (P - count)
        assert not {0, middle, used - 1} & set(row["masked_lm_positions"][:count])
        assert row["next_sentence_labels"] in ([0], [1])


def unmasked(row):
    """The ids before masking: labels put back where they stood, padding cut off."""
    ids = row["input_ids"][: sum(row["input_mask"])]
    for position, label, weight in zip(
        row["masked_lm_positions"], row["masked_lm_ids"], row["masked_lm_weights"], strict=True
    ):
        if weight:
            ids[position] = label
    return ids


def test_rows_unmasked_are_text_of_the_corpus_and_a_true_b_is_of_as_document(rows, vocab_file, corpus_file):
    theirs = FullTokenizer(vocab_file)
    with open(corpus_file, encoding="utf-8") as file:
        documents = [f" {' '.join(theirs.tokenize(text))} " for text in file.read().split("\n\n")]
    seen = set()
    for row in rows:
        tokens = theirs.convert_ids_to_tokens(unmasked(row))
        middle = tokens.index("[SEP]")
        a, b = (f" {' '.join(segment)} " for segment in (tokens[1:middle], tokens[middle + 1 : -1]))
        of_a, of_b = ({i for i, document in enumerate(documents) if text in document} for text in (a, b))
        assert of_a and of_b
        if row["next_sentence_labels"] == [0]:
            assert of_a & of_b
        seen |= of_a
    assert seen == set(range(len(documents)))


def test_whole_word_masking_reaches_the_records(tmp_path, vocab_file):
    # words of the letters' own pieces: "zqx" is z ##q ##x
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the zqx of kjw and vzk\nin zzq to qqj\n\nis wvx it xyz\nhe kkq\n" * 20)
    generate(tmp_path, vocab_file, corpus, do_whole_word_mask=True, masked_lm_prob=0.3)
    continues = [piece.startswith("##") for piece in BertTokenizer(vocab_file).vocabulary]
    partial = 0
    for row in read(tmp_path / "train.tfrecord"):
        ids = unmasked(row)
        chosen = {p for p, w in zip(row["masked_lm_positions"], row["masked_lm_weights"], strict=True) if w}
        partial += sum(
            (i in chosen) != (i - 1 in chosen) for i in range(2, len(ids)) if continues[ids[i]] and ids[i - 1] != 3
        )
    assert partial == 0


def test_outputs_are_filled_in_turn_and_the_manifest_tells_what_is_in_them(made, vocab_file, corpus_file):
    folder, shards = made
    assert sorted(os.listdir(folder)) == ["a", "a.manifest.json", "b", "c"]
    counts = [len(read(folder / name)) for name in "abc"]
    assert max(counts) - min(counts) <= 1 and min(counts) > 0
    with open(folder / "a.manifest.json") as file:
        manifest = json.load(file)

    def sha(path):
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()

    assert manifest["shards"] == [
        {"name": name, "examples": count, "sha256": sha(folder / name)}
        for name, count in zip("abc", counts, strict=True)
    ]
    assert [shard.examples for shard in shards] == counts
    assert (manifest["vocab_size"], manifest["vocab_sha256"]) == (
        len(pathlib.Path(vocab_file).read_text().split()),
        sha(vocab_file),
    )
    assert manifest["settings"]["input_file"] == corpus_file
    assert manifest["settings"]["max_seq_length"] == S


def test_one_output_or_several_hold_the_same_examples_in_the_same_order(tmp_path, made, vocab_file, corpus_file):
    generate(tmp_path, vocab_file, corpus_file)
    parts = [read(made[0] / name) for name in "abc"]
    whole = read(tmp_path / "train.tfrecord")
    assert whole == [parts[i % 3][i // 3] for i in range(len(whole))]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path, made, vocab_file, corpus_file):
    generate(tmp_path, vocab_file, corpus_file, "a,b,c")
    for name in "abc":
        assert (tmp_path / name).read_bytes() == (made[0] / name).read_bytes()
    generate(tmp_path, vocab_file, corpus_file, "other", random_seed=12346)
    other = read(tmp_path / "other")
    assert [row["input_ids"] for row in other] != [row["input_ids"] for row in read(*(tmp_path / n for n in "abc"))]


def test_each_pass_over_the_corpus_is_cut_and_masked_anew(tmp_path, vocab_file, corpus_file):
    generate(tmp_path, vocab_file, corpus_file, dupe_factor=5)
    texts = [str(row["input_ids"]) for row in read(tmp_path / "train.tfrecord")]
    assert len(set(texts)) > 0.95 * len(texts)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": "{0}/none.txt"}, "--input_file: {0}/none.txt: no such file"),
        ({"input_file": "{0}/*.text"}, "--input_file: {0}/*.text: the glob matches no file"),
        ({"input_file": "{0}/one.txt"}, "--input_file={0}/one.txt: holds 1 document(s)"),
        ({"input_file": "{0}/empty.txt"}, "--input_file={0}/empty.txt: holds 0 document(s)"),
        ({"vocab_file": "{0}/none.txt"}, "{0}/none.txt: no such file"),
        ({"vocab_file": "{0}/no-mask.txt"}, "{0}/no-mask.txt: the special token [MASK] is missing"),
        ({"output_file": " , "}, "--output_file is empty"),
        ({"output_file": "{0}/out,{0}/two.txt"}, "--output_file: {0}/two.txt is read too"),
        pytest.param(
            {"output_file": "{0}/../{1}/two.txt"},
            "is read too",
        ),
        pytest.param(
            {"output_file": "{0}/out,{0}/out"},
            "--output_file",
        ),
    ],
)
def test_input_that_cannot_be_used_is_named_and_nothing_is_written(tmp_path, vocab_file, changes, message):
    (tmp_path / "two.txt").write_text("the of\n\nand to\n")
    (tmp_path / "one.txt").write_text("the of\nand to\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "no-mask.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {"input_file": "{0}/two.txt", "output_file": "{0}/out", "vocab_file": vocab_file, **changes}
    arguments = {name: value.format(tmp_path, tmp_path.name) for name, value in arguments.items()}
    with pytest.raises(InputError, match=re.escape(message.format(tmp_path))):
        run_local.create_pretraining_data(GeneratorSettings(**arguments))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_failure_midway_leaves_existing_records_and_manifest_untouched(
    tmp_path, vocab_file, corpus_file, monkeypatch
):
    generate(tmp_path, vocab_file, corpus_file, "a,b")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    calls, pad = [], run_local.pad

    def fail_at_last(*arguments):
        calls.append(1)
        if len(calls) == 20:
            raise RuntimeError("midway")
        return pad(*arguments)

    monkeypatch.setattr(run_local, "pad", fail_at_last)
    with pytest.raises(RuntimeError, match="midway"):
        generate(tmp_path, vocab_file, corpus_file, "a,b", random_seed=1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def original_lengths_predictions_and_labels(vocab_file, input_file, dupe_factor):
    instances = original.create_training_instances(
        [input_file],
        FullTokenizer(vocab_file),
        original.get_processor_text_fn(False, True),
        S,
        dupe_factor,
        0.0,
        0.15,
        P,
        random.Random(1),
    )
    return np.array([(len(i.tokens), len(i.masked_lm_positions), i.is_random_next) for i in instances])


def test_examples_are_distributed_as_the_originals(tmp_path, vocab_file, corpus_file):
    # full rows only: how short ones are drawn is compared in test_sentence_pairs
    # long documents, as corpora have them: four of the fixture's joined to one
    text = pathlib.Path(corpus_file).read_text().split("\n\n")
    long = tmp_path / "long.txt"
    long.write_text("\n\n".join("\n".join(text[i : i + 4]) for i in range(0, 40, 4)))
    dupes = 60
    theirs = original_lengths_predictions_and_labels(vocab_file, str(long), dupes)
    generate(tmp_path, vocab_file, long, short_seq_prob=0.0, dupe_factor=dupes)
    ours = np.array(
        [
            (sum(row["input_mask"]), sum(row["masked_lm_weights"]), row["next_sentence_labels"][0])
            for row in read(tmp_path / "train.tfrecord")
        ]
    )
    assert len(ours) == pytest.approx(len(theirs), rel=0.03)
    shares = [rows[:, 1].sum() / rows[:, 0].sum() for rows in (ours, theirs)]
    assert shares[0] == pytest.approx(shares[1], rel=0.01)
    labels = [np.bincount(rows[:, 2].astype(int), minlength=2) for rows in (ours, theirs)]
    assert stats.chi2_contingency(labels).pvalue > LEVEL
    # quarters of the row length; 64 is full
    lengths = [np.histogram(rows[:, 0], [0, 32, 48, 60, 64, 65])[0] for rows in (ours, theirs)]
    filled = np.sum(lengths, 0) > 20
    assert stats.chi2_contingency(np.array(lengths)[:, filled]).pvalue > LEVEL
