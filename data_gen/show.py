r"""Prints records as text, with the masked positions and their original tokens.

show_tfrecords train.tfrecord --num_examples=3 --vocab_file=vocab.txt

In the output, {[MASK]<word} is a word that [MASK] replaces, {other<word} is a word that another word replaces, and
{=word} is a word that is predicted but unchanged.
"""

import itertools
import os
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import run_on_words
from tfrecords.schema import PREDICTIONS


def show(path: str, vocabulary: Sequence[str], first: int, count: int) -> None:
    """Prints some records of a file.
    `vocabulary`: tokens in the order of their ids.
    `first`: index of the first record, counted from 0.
    `count`: maximum number of records."""
    from tfrecords import reader

    records = 0
    # Stop after the requested records, because later records may be damaged.
    for index, record in enumerate(itertools.islice(reader.checked_records(path), first + count)):
        records += 1
        if index >= first:
            print("\n".join(describe(reader.parse_example(record, path, index), vocabulary, f"{path}, record {index}")))
            print()
    if records <= first:
        raise InputError(f"{path}: has {records} record(s), so there is no record at --first={first}")


def describe(example, vocabulary: Sequence[str], title: str) -> list[str]:
    values = {
        name: list(feature.int64_list.value or feature.float_list.value)
        for name, feature in example.features.feature.items()
    }
    if not values.get("input_ids"):
        raise InputError(
            f"{title}: has no input_ids (found: {', '.join(sorted(values)) or 'nothing'}); is it pre-training data?"
        )
    _check(values, len(vocabulary), title)
    length = sum(values.get("input_mask", [1] * len(values["input_ids"])))
    segments = values.get("segment_ids", [0] * length)
    predictions = zip(*(values.get(name, []) for name in PREDICTIONS), strict=True)
    labels = {position: vocabulary[label] for position, label, weight in predictions if weight}
    tokens = [_marked(vocabulary[values["input_ids"][i]], labels.get(i)) for i in range(length)]
    facts = [f"{length} of {len(values['input_ids'])} tokens"]
    facts.append(f"{len(labels)} predicted" if "masked_lm_weights" in values else "not masked")
    if "next_sentence_labels" in values:
        facts.append("B is random" if values["next_sentence_labels"][0] else "B follows A")
    lines = [f"{title}: {', '.join(facts)}"]
    for name, segment in (("A", 0), ("B", 1)):
        text = [tokens[i] for i in range(length) if segments[i] == segment]
        if text:
            lines.append(f"  {name}: " + " ".join(text).replace(" ##", ""))
    return lines


def _check(values: Mapping[str, list], vocab_size: int, title: str) -> None:
    """Raises InputError for ids outside the vocabulary."""
    ids = [*values["input_ids"], *values.get("masked_lm_ids", [])]
    wrong = [number for number in ids if not 0 <= number < vocab_size]
    if wrong:
        raise InputError(
            f"{title}: contains id {wrong[0]}, but the vocabulary has {vocab_size} tokens; give the --vocab_file with "
            "which the data was made"
        )


def _marked(token: str, label: str | None) -> str:
    if label is None:
        return token
    return f"{{={label}}}" if token == label else f"{{{token}<{label}}}"


def _vocabulary(path: str, vocab_file: str) -> Sequence[str]:
    """Reads the given vocabulary or, by default, the vocabulary that the manifest names."""
    import tensorflow as tf

    from bert_tf.core import vocabulary_file
    from bert_tf.text import tokenizer_files
    from tfrecords import manifest, reader

    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; check the path")
    reader.first_example(path)  # report an invalid file before a missing vocabulary
    entries = manifest.find_manifest(path) or {}
    named = entries.get("settings", {}).get("vocab_file", "")
    vocab_file = vocab_file or (named if named and tf.io.gfile.exists(named) else "")
    if not vocab_file:
        what = f"the vocabulary of its manifest, {named}, is missing" if named else "no manifest names its vocabulary"
        raise InputError(f"{path}: {what}; give --vocab_file")
    tokens = tokenizer_files.read(vocab_file).vocabulary
    made_with = entries.get("vocab_sha256")
    if made_with and made_with != vocabulary_file.tokens_sha256(tokens):
        raise InputError(
            f"{vocab_file}: is not the vocabulary that {path} was made with ({named}, SHA-256 {made_with[:12]}); give "
            "the same vocabulary as --vocab_file"
        )
    return tokens


def main(words: Sequence[str]) -> None:
    values = flags.FLAGS
    # A shell expands train.tfrecord* to the shards and their manifest.
    for path in [path for path in words if not path.endswith(".manifest.json")] or words:
        tokens = _vocabulary(path, os.path.expanduser(values.vocab_file))
        show(path, tokens, values.first, values.num_examples)


def run() -> None:
    """Runs the script with the process's flags."""
    own = {"flag_values": flags.FLAGS, "module_name": sys.argv[0]}
    flags.DEFINE_string("vocab_file", "", "vocabulary of the data; empty: the vocabulary named in the manifest", **own)
    flags.DEFINE_integer("first", 0, "index of the first record to show, counted from 0", lower_bound=0, **own)
    flags.DEFINE_integer("num_examples", 5, "maximum number of records to show", lower_bound=1, **own)
    run_on_words(main, __doc__, "name the file to show: show_tfrecords FILE")


if __name__ == "__main__":
    run()
