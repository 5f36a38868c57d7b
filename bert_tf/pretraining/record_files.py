"""Inspects and checks the contents of pre-training data before any training.

Paper: section 3.1 (the tasks that the records describe).
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats.contents import GROWTH_COMMAND
from bert_tf.config import BertConfig, require_segments
from bert_tf.core.errors import InputError, unreadable
from bert_tf.core.flag_parsing import items
from bert_tf.input.packed_rows import RowShape, shape_for
from bert_tf.input.pipeline import DynamicMasking, ReadingOptions, clear_errors, pretraining_batches
from bert_tf.runs import run_folder, run_record
from bert_tf.settings import PretrainingSettings
from bert_tf.text import data_vocabulary, tokenizer_files
from bert_tf.text.data_vocabulary import DataVocabulary
from bert_tf.text.masking import MaskingRule
from bert_tf.text.tokenizer_rules import CLS, SEP, TokenizerRules
from tfrecords import manifest, reader, schema

# The generator's settings for masking. The settings in `_BY_FLAG` are also flags of pre-training with dynamic masking.
_BY_FLAG = ("max_predictions_per_seq", "masked_lm_prob")
_RULE = ("do_whole_word_mask", "max_ngram_size", "mask_fraction", "random_fraction")
_DEFAULT_PREDICTIONS = 20

# This sample is large enough to estimate how many examples and predictions fit into a row.
_ROWS_SAMPLED = 4096


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """Record files and their contents."""

    files: Sequence[str]
    eval_files: Sequence[str]
    features: Sequence[schema.Feature]
    # rule for masking the rows; None if the rows are already masked, or if the model predicts every token
    dynamic_masking: DynamicMasking | None
    packing: RowShape | None = None  # shape of packed rows for training; None if each row has one example
    # the vocabulary with which the data was made, from the manifests or --vocab_file; None if unknown
    vocabulary: DataVocabulary | None = None
    # the rules of the data's tokenizer; None if the vocabulary's file was not found
    rules: TokenizerRules | None = None
    has_pairs: bool = False  # whether the rows for training are pairs of segments

    @property
    def has_next_sentence_labels(self) -> bool:
        """Whether the model learns the next-sentence task from the data."""
        return any(feature.name == "next_sentence_labels" for feature in self.features)

    @property
    def masking_facts(self) -> dict:
        """The flags of dynamic masking and their values; {} without dynamic masking. The number of predictions per row
        is recorded separately, since statically masked data also has this number."""
        if not self.dynamic_masking:
            return {}
        rule = self.dynamic_masking.rule
        return {
            "masked_lm_prob": rule.masked_lm_prob,
            "do_whole_word_mask": rule.continues_word is not None,
            "max_ngram_size": rule.max_ngram_size,
            "mask_fraction": rule.mask_fraction,
            "random_fraction": rule.random_fraction,
        }


def reading_options(settings: PretrainingSettings, config: BertConfig, data: PretrainingData) -> ReadingOptions:
    """Returns the options with which the pipeline reads the data in training and in evaluation."""
    return ReadingOptions(
        data.features, config.vocab_size, settings.random_seed, data.dynamic_masking, config.directionality
    )


def starts_word(config: BertConfig, data: PretrainingData) -> list[bool] | None:
    """Returns, for each row of the embedding table, whether its token begins a word. None if the model does not predict
    every token, or if the file of the vocabulary was not found."""
    if config.directionality == "bidi" or not data.rules:
        return None
    starts = [not continues for continues in data.rules.continues_word]
    return starts + [True] * (config.vocab_size - len(starts))


def inspect(
    settings: PretrainingSettings, config: BertConfig, files: Sequence[str], eval_files: Sequence[str]
) -> tuple[PretrainingSettings, PretrainingData]:
    """Inspects the files and checks that they fit the settings, the model and each other. Returns the settings and the
    data. Masking flags that were not given take their values from the data's manifests."""
    with unreadable(files[0], "has a manifest with unexpected content", "make the data again"):
        return _inspect(settings, config, files, eval_files)


def _inspect(
    settings: PretrainingSettings, config: BertConfig, files: Sequence[str], eval_files: Sequence[str]
) -> tuple[PretrainingSettings, PretrainingData]:
    config.check_length(settings.max_seq_length, settings.bert_config_file)
    if len(config.encoders) > 1:
        raise InputError(
            f"{settings.bert_config_file}: directionality={config.directionality} names two encoders; pre-train them "
            "apart, one with directionality=ltr and one with rtl"
        )
    there = reader.first_example(files[0]).features.feature
    masked, pairs = "masked_lm_positions" in there, "next_sentence_labels" in there
    if pairs:
        require_segments(config, settings.bert_config_file)
    every = [*files, *eval_files]
    manifests = manifest.find_manifests(every)
    one_way = config.directionality != "bidi"
    unmasked = not (masked or one_way)
    if settings.masked_lm_prob is not None and not unmasked:
        why = "its rows are masked already" if masked else f"directionality={config.directionality} does not mask"
        raise InputError(f"--masked_lm_prob={settings.masked_lm_prob}: {files[0]}: {why}; remove the flag")
    settings = _with_masking(settings, manifests if unmasked else {})
    if unmasked and settings.max_predictions_per_seq > settings.max_seq_length:
        raise InputError(
            f"--max_predictions_per_seq={settings.max_predictions_per_seq}: must not exceed "
            f"--max_seq_length={settings.max_seq_length}"
        )
    features = schema.pretraining_features(
        settings.max_seq_length, settings.max_predictions_per_seq, masked=masked,
        next_sentence=pairs and settings.use_next_sentence_label,
    )  # fmt: skip
    reader.check_lengths(every, features)
    for path, entries in manifests.items():
        _check_manifest(path, entries, settings, config)
    _check_set("input_file", settings.input_file, files, manifests)
    if settings.eval_input_file:
        _check_set("eval_input_file", settings.eval_input_file, eval_files, manifests)
    if one_way:
        _require_unmasked(every, settings, config)
    vocabulary, rules = _vocabulary(settings, every[0], manifests)
    if rules:
        config.check_vocabulary(len(rules.vocabulary), rules.vocab_file, settings.bert_config_file)
    dynamic = _dynamic_masking(settings, every, manifests, rules) if unmasked else None
    data = PretrainingData(files, eval_files, features, dynamic, None, vocabulary, rules, pairs)
    if settings.pack_sequences and settings.do_train:
        data = dataclasses.replace(data, packing=_row_shape(settings, config, data))
    return settings, data


def _with_masking(settings: PretrainingSettings, manifests: Mapping[str, Mapping]) -> PretrainingSettings:
    """Fills in the masking flags that the user did not give; the values are from the manifests of unmasked data."""
    values = {}
    for name in _BY_FLAG:
        made_with = {path: _made_with(entries).get(name) for path, entries in manifests.items()}
        values[name] = value = getattr(settings, name)
        if value is None:
            values[name] = _agreed(name, made_with)
        elif others := set(made_with.values()) - {value, None}:
            said = ", ".join(map(str, sorted(others)))
            logging.info("masking with --%s=%s, although the data's manifest says %s", name, value, said)
    predictions = values["max_predictions_per_seq"] or _DEFAULT_PREDICTIONS
    return dataclasses.replace(settings, **{**values, "max_predictions_per_seq": predictions})


def _agreed(name: str, made_with: Mapping[str, object]) -> object:
    """Returns the value with which all files were made; None if no manifest states the value."""
    first = next(iter(made_with), "")
    for path, value in made_with.items():
        if value != made_with[first]:
            raise InputError(
                f"{path}: made with --{name}={value}, but {first} with {made_with[first]}; make both with the same "
                f"value, or give --{name}"
            )
    return made_with.get(first)


def _made_with(entries: Mapping) -> Mapping:
    return entries.get("settings", {})


def _row_shape(settings: PretrainingSettings, config: BertConfig, data: PretrainingData) -> RowShape:
    """Chooses the shape of packed rows from a sample of all parts of the data. The shape does not depend on the run's
    seed."""
    reading = dataclasses.replace(reading_options(settings, config, data), seed=0)
    with clear_errors(data.files, config.vocab_size):
        batches = pretraining_batches(data.files, reading, batch_size=_ROWS_SAMPLED, training=True)
        sample = next(batches.as_numpy_iterator())
    one_way = config.directionality != "bidi"  # a unidirectional model predicts every token
    most = settings.max_seq_length - 1 if one_way else settings.max_predictions_per_seq
    predictions = (sample["masked_lm_weights"] > 0).sum(axis=1)
    return shape_for(sample["input_mask"].sum(axis=1), predictions, settings.max_seq_length, most)


def _check_manifest(path: str, entries: Mapping, settings: PretrainingSettings, config: BertConfig) -> None:
    if entries.get("vocab_size", 0) > config.vocab_size:
        grows = settings.init_checkpoint or run_record.exists(settings.output_dir)
        remedy = GROWTH_COMMAND if grows else "raise vocab_size"
        raise InputError(
            f"{settings.bert_config_file}: vocab_size={config.vocab_size} is smaller than the vocabulary of "
            f"{path}, which has {entries['vocab_size']} tokens; {remedy}"
        )
    manifest.check_size(path, entries)


def _check_set(flag: str, patterns: str, files: Sequence[str], manifests: Mapping[str, Mapping]) -> None:
    """Refuses unfinished sets, and globs that match the name of a missing shard. The user may leave out existing
    shards, for example to evaluate on the last shard. A shard that is missing and matches no glob is allowed, since the
    user then chose the other shards by name."""
    absolute = {os.path.abspath(path) for path in files}
    for path in dict.fromkeys(manifest.manifest_path(path) for path in files if path not in manifests):
        if tf.io.gfile.exists(f"{manifest.work_folder(path)}/plan.json"):
            name = path.removesuffix(manifest.SUFFIX)
            raise InputError(f"--{flag}: {name} is an unfinished set; finish the command that makes it first")
    missing = [name for name in _listed(files, manifests) if os.path.abspath(name) not in absolute]
    missing = [name for name in missing if not tf.io.gfile.exists(name)]
    for name in missing:
        if any(reader.is_match(name, pattern) for pattern in items(patterns)):
            raise InputError(
                f"--{flag}: {name} is missing, but its manifest lists it; make it again with the command that made "
                "the set, or give the other shards by their names"
            )
    if missing:
        what = f"{missing[0]} and {len(missing) - 1} more" if missing[1:] else missing[0]
        logging.warning("--%s: continuing without %s, which the manifest lists but which does not exist", flag, what)


def _listed(files: Sequence[str], manifests: Mapping[str, Mapping]) -> list[str]:
    """Returns the paths of all shards of the sets to which the files belong."""
    paths: dict[str, None] = {}
    for path in files:
        names = manifest.shard_names(manifests.get(path, {}))
        if path not in paths and os.path.basename(path) in names:
            paths |= dict.fromkeys(os.path.join(os.path.dirname(path), name) for name in names)
    return list(paths)


def _require_unmasked(files: Sequence[str], settings: PretrainingSettings, config: BertConfig) -> None:
    for path in files:
        if "masked_lm_positions" in reader.first_example(path).features.feature:
            raise InputError(
                f"{path}: its rows are masked, but {settings.bert_config_file} says directionality="
                f"{config.directionality}, and such a model predicts every token; make the data with --objective=lm"
            )


def _dynamic_masking(
    settings: PretrainingSettings, files: Sequence[str], manifests: Mapping[str, Mapping], rules: TokenizerRules | None
) -> DynamicMasking:
    """Returns the masking rule of the data; raises an error if the files have different rules."""
    made_with = {path: _made_with(manifests.get(path, {})) for path in files}
    for path, other in made_with.items():
        if "masked_lm_positions" in reader.first_example(path).features.feature:
            raise InputError(
                f"{path}: its rows are masked already, unlike rows of {files[0]}; give only masked data or only "
                "unmasked data"
            )
        if other.get("masking") != "dynamic":
            raise InputError(
                f"{path}: its rows are not masked, and its manifest does not say --masking=dynamic; make the data "
                "again with --objective=mlm_nsp or --objective=mlm, or train a model with directionality=ltr"
            )
    first = made_with[files[0]]
    for path, other in made_with.items():
        for name in _RULE:
            if other.get(name) != first.get(name):
                raise InputError(
                    f"{path}: made with --{name}={other.get(name)}, but {files[0]} with {first.get(name)}; "
                    "make both with the same value"
                )
    if not rules:
        raise InputError(
            f"--vocab_file is missing: {path} was made with --masking=dynamic, and its vocabulary "
            f"{other.get('vocab_file', '')} was not found; give the vocabulary"
        )
    stated = {**first, "masked_lm_prob": settings.masked_lm_prob}
    rule = MaskingRule.of_settings(rules, stated, settings.max_predictions_per_seq)
    return DynamicMasking(rule, (rules.id_of(CLS), rules.id_of(SEP)))


def _vocabulary(
    settings: PretrainingSettings, data: str, manifests: Mapping[str, Mapping]
) -> tuple[DataVocabulary | None, TokenizerRules | None]:
    """Returns the tokenizer with which all data was made, and its rules; None if the vocabulary was not found."""
    vocabulary = data_vocabulary.common(
        DataVocabulary.of_manifest(path, entries) for path, entries in manifests.items()
    )
    if file := settings.vocab_file:
        # Other programs' data has no manifest, so only the model's files state how it was made.
        rules = tokenizer_files.read(file, default=checkpoint_tokenizer.known_rules(settings), strict=False)
        if vocabulary and vocabulary.sha256 != rules.facts["vocab_sha256"]:
            raise InputError(
                f"--vocab_file={file}: not the vocabulary that {vocabulary.data} was made with ({vocabulary.name}); "
                "give the data's vocabulary"
            )
        vocabulary = vocabulary or DataVocabulary(data, file, {"vocab_sha256": rules.facts["vocab_sha256"]})
        return vocabulary, vocabulary.rules_of(rules)
    for path, where in _places(settings, vocabulary) if vocabulary else ():
        if _is_file(path) and (rules := _rules_with_sha256(path, vocabulary.sha256)):
            logging.info("--vocab_file=%s, the vocabulary of the data, was found %s", path, where)
            return vocabulary, vocabulary.rules_of(rules)
    logging.info(
        "the data's vocabulary%s was not found; give --vocab_file to show filled-in masks at each evaluation and to "
        "copy the vocabulary into the run's folder for fine-tuning", f" ({vocabulary.name})" if vocabulary else "",
    )  # fmt: skip
    return vocabulary, None


def _rules_with_sha256(path: str, sha256: str) -> TokenizerRules | None:
    try:
        rules = tokenizer_files.read(path, strict=False)
    except InputError:  # the file has the vocabulary's name, but is not a vocabulary
        return None
    return rules if rules.facts["vocab_sha256"] == sha256 else None


def _is_file(path: str) -> bool:
    return bool(path) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def _places(settings: PretrainingSettings, vocabulary: DataVocabulary) -> Iterator[tuple[str, str]]:
    """Yields each path where the data's vocabulary may be, with a description of the place for the log."""
    yield vocabulary.vocab_file, "through the data's manifest"
    for name in (os.path.basename(vocabulary.vocab_file), checkpoints.VOCABULARY_NAME):
        yield os.path.join(os.path.dirname(vocabulary.data), name), "next to the data"
    yield os.path.join(settings.output_dir, checkpoints.VOCABULARY_NAME), "in the run's folder"
    if starts_from := run_folder.initial_checkpoint(settings):
        yield checkpoints.open_checkpoint(starts_from).vocab_file, "next to --init_checkpoint"
