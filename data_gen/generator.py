"""Generates the records of a corpus: tokenizes text, makes work units, shuffles records into shards, writes a manifest.

Every step writes its results atomically, so that an interrupted run resumes from existing files.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.jobs.job import Job, corpus_entries
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.shard_names import output_paths
from bert_tf.jobs.stage import run_stage
from bert_tf.text import tokenizer_files, tokenizer_rules
from bert_tf.text.masking import MaskingRule
from bert_tf.text.tokenizer_rules import CLS, SEP, TokenizerRules
from data_gen import wikipedia
from data_gen.corpus_check import check_corpus
from data_gen.documents import format_of, plan_sources
from data_gen.examples import SpecialTokens, UnitCounts
from data_gen.sentences import ENGLISH
from data_gen.settings import GeneratorSettings
from data_gen.shards import make_shards, make_units, plan_unit_tasks
from data_gen.summary import check_unknown, counted, in_words, summarize, warn_of_examples
from data_gen.token_blocks import TokenBlock, TokenizeTask, group_sources, read_blocks, tokenize_sources
from tfrecords import manifest, reader

# Increment this number whenever the same settings produce different records.
_RECIPE = 4


def create_pretraining_data(settings: GeneratorSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest. A finished set is left unchanged, and an
    unfinished set is resumed."""
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    settings = dataclasses.replace(settings, input_format=format_of(files, settings.input_format))
    check_corpus(files, settings.input_format)
    settings = dataclasses.replace(settings, language=_language(files, settings))
    rules = tokenizer_files.read(settings.vocab_file, settings.do_lower_case, settings.strip_accents)
    rules.require_word_pieces("pre-training data")
    storage.check_outputs(outputs, read=[*files, rules.vocab_file])
    tokenizer_rules.log_casing(rules, settings.do_lower_case)
    job = make_job(settings, outputs, rules, corpus_entries(files, runner))
    return job.run(lambda finished: _make(files, rules, job, runner, finished))


def _language(files: Sequence[str], settings: GeneratorSettings) -> str:
    """Returns the language whose rules split sentences; "" if nothing is split, or if each dump has its own."""
    if settings.language or settings.input_format == "lines":
        return settings.language
    languages = {ENGLISH}
    if settings.input_format == "wikipedia":
        languages = {wikipedia.header(path).language for path in files}
    logging.info("sentences are split by the rules for %s; --language selects others", ", ".join(sorted(languages)))
    return languages.pop() if len(languages) == 1 else ""


def make_job(settings: GeneratorSettings, outputs: Sequence[str], rules: TokenizerRules, corpus: list[dict]) -> Job:
    casing = {"do_lower_case": rules.do_lower_case, "strip_accents": rules.strip_accents}
    settings = dataclasses.replace(settings, vocab_file=rules.vocab_file, **casing)
    return Job(_RECIPE, settings, outputs, corpus, rules.facts)


def _make(
    files: Sequence[str], rules: TokenizerRules, job: Job, runner: Runner, finished: Sequence[manifest.Shard | None]
) -> list[manifest.Shard]:
    settings = job.settings
    rule = MaskingRule.of_settings(rules, dataclasses.asdict(settings), settings.max_predictions_per_seq)
    special_tokens = SpecialTokens(rules.id_of(CLS), rules.id_of(SEP), rule, rules.has_token_types)
    blocks = _tokenize(files, job, runner)
    _check_documents(blocks, settings)
    check_unknown(blocks, settings)
    tasks = plan_unit_tasks(blocks, special_tokens, job)
    counts = make_units(tasks, runner)
    shards = make_shards(tasks, counts, job, runner, finished)
    summary = summarize(blocks, sum(counts, UnitCounts()), settings)
    job.complete(shards, finished, lambda: {"vocab_size": len(rules.vocabulary), **summary})
    if not any(finished):
        warn_of_examples(summary, settings)
        logging.info("%s: %s", job.manifest_path, in_words(summary, len(shards)))
    return shards


def verify(settings: GeneratorSettings) -> None:
    """Checks every byte of a set against its manifest."""
    path = manifest.manifest_path(output_paths(settings.output_file)[0])
    faults = list(reader.find_faults(path))
    for fault in faults[1:]:
        logging.error("%s", fault)
    if faults:
        raise InputError(faults[0])
    logging.info("%s: verified %d shard%s", path, *counted(len(manifest.read_manifest(path)["shards"])))


def _tokenize(files: Sequence[str], job: Job, runner: Runner) -> list[TokenBlock]:
    tf.io.gfile.makedirs(f"{job.folder}/tokens")
    sources = [source for path in files for source in plan_sources(path, job.settings.input_format)]
    tasks = [
        TokenizeTask(group, job.settings, job.identity["vocab_sha256"], f"{job.folder}/tokens/{index:06d}")
        for index, group in enumerate(group_sources(sources))
    ]
    made = run_stage("tokenizing", "B", runner, tasks, tokenize_sources, read_blocks, amount=lambda task: task.size)
    return [block for blocks in made for block in blocks]


def _check_documents(blocks: Sequence[TokenBlock], settings: GeneratorSettings) -> None:
    documents = sum(block.documents for block in blocks)
    where = f"--input_file={settings.input_file}: contains"
    if not documents:
        raise InputError(f"{where} no text; check the file and --input_format={settings.input_format}")
    if documents < 2 and settings.objective == "mlm_nsp":
        remedy = "separate documents by a blank line, " if settings.input_format == "lines" else ""
        if remedy and sum(block.sentences for block in blocks) > 1:
            remedy += "give --input_format=documents if each line is a document, "
        raise InputError(f"{where} 1 document, but a random next sentence needs two; {remedy}or give --objective=mlm")
