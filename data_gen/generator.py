"""Making the records of a corpus: plan, tokenize, make the units, shuffle them into shards, manifest last.

Every step's results are files that appear only when they are whole, so a run that was stopped at any
moment goes on from them.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.text.masking import MaskingRule
from bert_tf.tokenization import CLS, SEP, load_vocabulary
from data_gen import compressed, disk_space
from data_gen.documents import plan_sources
from data_gen.examples import Facts, Pieces
from data_gen.job import Job, corpus_entries, hash_range, output_paths, plan_hashes
from data_gen.progress import Progress
from data_gen.runner import Runner
from data_gen.settings import GeneratorSettings
from data_gen.shards import make_shards, make_units, plan_unit_tasks
from data_gen.token_blocks import Block, TokenizeTask, group_sources, read_blocks, tokenize_sources
from tfrecords import manifest, reader, writer
from tfrecords.errors import InputError


def create_pretraining_data(settings: GeneratorSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, and their manifest last.

    A set that is there already is left as it is, and one that was begun is finished.

    Returns:
      The shards.

    Raises:
      InputError: a file is missing, empty or cannot be read, the vocabulary lacks a special token, the corpus has
        fewer than the two documents that a random next sentence needs, or the set there was made otherwise.
    """
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    writer.check_outputs(outputs, read=[*files, settings.vocab_file])
    compressed.check_readable(files)
    vocabulary = load_vocabulary(settings.vocab_file)
    corpus = corpus_entries(files, dict(runner.map(hash_range, plan_hashes(files))))
    job = Job(settings, outputs, writer.sha256(settings.vocab_file), corpus)
    if all(finished := job.finished_shards()):
        job.clear()
        logging.info("%s: all shards are there, nothing to do (--verify checks their bytes)", job.manifest_path)
        return finished
    try:
        job.open()
        return _make(files, vocabulary, job, runner)
    finally:
        job.release()


def _make(files: Sequence[str], vocabulary: Sequence[str], job: Job, runner: Runner) -> list[manifest.Shard]:
    """All steps from text to manifest."""
    settings = job.settings
    try:
        # looked at again, now that no other run can change it
        finished = job.finished_shards()
        pieces = _pieces(vocabulary, settings)
        blocks = _tokenize(files, pieces, job, runner)
        _check_documents(blocks, settings)
        disk_space.check(blocks, 1.0, pieces, job)
        tasks = plan_unit_tasks(blocks, pieces, job)
        facts = make_units(tasks, runner)
        shards = make_shards(tasks, facts, job, runner, finished)
    except InputError as error:
        # units are worth keeping until there is room for the rest; otherwise the corpus has to change, and nothing
        # that was made of it is of use
        if not (isinstance(error, disk_space.NoRoomError) and disk_space.unit_paths(job)):
            job.close()
        raise
    if any(finished):  # then the manifest is there, and says the same
        logging.info("made %d missing shard%s again", *_counted(finished.count(None)))
    else:
        summary = _summary(blocks, sum(facts, Facts()), settings)
        entries = {key: job.identity[key] for key in ("recipe", "corpus", "vocab_sha256")}
        text = manifest.to_json(job.identity["settings"], shards, **entries, vocab_size=len(vocabulary), **summary)
        writer.write_text(job.manifest_path, text)
        logging.info("%s: %s", job.manifest_path, _in_words(summary, len(shards)))
    job.close()
    return shards


def verify(settings: GeneratorSettings) -> None:
    """Checks a set against its manifest, byte by byte.

    Raises:
      InputError: the set is not what was written; the message names the first shard that is not.
    """
    outputs = output_paths(settings.output_file)
    path = manifest.manifest_path(outputs[0])
    faults = list(manifest.find_faults(path))
    for fault in faults[1:]:
        logging.error("%s", fault)
    if faults:
        raise InputError(faults[0])
    count = len(manifest.read_manifest(path)["shards"])
    if count != len(outputs):
        raise InputError(
            f"{path}: names {count} shards, but --output_file={settings.output_file} {len(outputs)}; give it as it was"
        )
    logging.info("%s: %d shard%s as written", path, *_counted(count))


def _pieces(vocabulary: Sequence[str], settings: GeneratorSettings) -> Pieces:
    rule = MaskingRule.of_settings(vocabulary, dataclasses.asdict(settings), settings.max_predictions_per_seq)
    return Pieces(vocabulary.index(CLS), vocabulary.index(SEP), rule)


def _tokenize(files: Sequence[str], pieces: Pieces, job: Job, runner: Runner) -> list[Block]:
    """All blocks of the corpus, in its order.

    Raises:
      InputError: a file cannot be read, or what the first text gives says that the disk has no room for the set.
    """
    tf.io.gfile.makedirs(f"{job.folder}/tokens")
    tasks = _tokenize_tasks(files, job)
    size = sum(task.size for task in tasks)
    blocks = {task: done for task in tasks if (done := read_blocks(task)) is not None}
    with Progress("tokenizing", size, "B") as progress:
        progress.start_at(sum(task.size for task in blocks))

        def tokenize(todo: Sequence[TokenizeTask]) -> None:
            for task, done in runner.map(tokenize_sources, [task for task in todo if task not in blocks]):
                blocks[task] = done
                progress.update(task.size)

        tokenize(tasks[:1])
        if tasks and tasks[0].size:
            disk_space.check(blocks[tasks[0]], tasks[0].size / size, pieces, job)
        tokenize(tasks[1:])
    return [block for task in tasks for block in blocks[task]]


def _tokenize_tasks(files: Sequence[str], job: Job) -> list[TokenizeTask]:
    settings = job.settings
    sources = [source for path in files for source in plan_sources(path, settings.input_format)]
    return [
        TokenizeTask(
            group,
            settings.input_format,
            settings.text_field,
            settings.vocab_file,
            job.identity["vocab_sha256"],
            settings.do_lower_case,
            f"{job.folder}/tokens/{index:06d}",
        )
        for index, group in enumerate(group_sources(sources))
    ]


def _check_documents(blocks: Sequence[Block], settings: GeneratorSettings) -> None:
    documents = sum(block.documents for block in blocks)
    where = f"--input_file={settings.input_file}: holds"
    if not documents:
        raise InputError(f"{where} no text; check the file and --input_format={settings.input_format}")
    if documents < 2 and settings.objective == "mlm_nsp":
        raise InputError(
            f"{where} 1 document, but a random next sentence needs two; set documents apart with a blank line, or give "
            "--objective=mlm"
        )


def _summary(blocks: Sequence[Block], facts: Facts, settings: GeneratorSettings) -> dict:
    """What a person wants to know of the set, and the trainer of its balance."""
    tokens = sum(block.tokens for block in blocks)
    summary = {
        "documents": sum(block.documents for block in blocks),
        "sentences": sum(block.sentences for block in blocks),
        "tokens": tokens,
        "unknown_share": round(sum(block.unknown for block in blocks) / tokens, 6),
        "examples": facts.examples,
        "padding_share": round(1 - facts.pieces / (facts.examples * settings.max_seq_length), 6),
    }
    if settings.masks:
        summary["masked_share"] = round(facts.predictions / facts.pieces, 6)
    if settings.objective == "mlm_nsp":
        summary["random_next_share"] = round(facts.random_next / facts.examples, 6)
    return summary


def _in_words(summary: Mapping[str, float], shards: int) -> str:
    parts = [
        "wrote {examples:,} examples in {shards} shard{ending}",
        "{documents:,} documents, {sentences:,} sentences, {tokens:,} pieces ({unknown_share:.2%} [UNK])",
        "{padding_share:.1%} padding",
        "{masked_share:.1%} masked" if "masked_share" in summary else "",
        "next sentence random in {random_next_share:.1%}" if "random_next_share" in summary else "",
    ]
    number, ending = _counted(shards)
    return "; ".join(filter(None, parts)).format(**summary, shards=number, ending=ending)


def _counted(number: int) -> tuple[int, str]:
    """A number, and the ending of what is counted."""
    return number, "" if number == 1 else "s"
