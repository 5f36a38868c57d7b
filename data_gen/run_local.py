"""Making masked-LM / next-sentence records on this machine.

Paper: section 3.1 and appendix A.2.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence

import numpy as np
import tqdm
from absl import logging

from bert_tf import masking
from bert_tf.tokenization import BertTokenizer
from data_gen.documents import Document, read_documents
from data_gen.sentence_pairs import SentencePair, pairs_from_document
from data_gen.settings import GeneratorSettings
from tfrecords import manifest, reader, schema, writer
from tfrecords.errors import InputError

_SECONDS_BETWEEN_LINES = 10.0


def create_pretraining_data(settings: GeneratorSettings) -> list[manifest.Shard]:
    """Writes the records that `settings` describes, and their manifest last.

    Returns:
      The shards that were written.

    Raises:
      InputError: a file is missing or empty, the vocabulary lacks a special token, or the corpus has
        fewer than the two documents that a random next sentence needs.
    """
    files = reader.expand_files(settings.input_file)
    outputs = _outputs(settings, files)
    tokenizer = BertTokenizer(settings.vocab_file, settings.do_lower_case)
    documents = list(read_documents(files, tokenizer))
    if len(documents) < 2:
        raise InputError(
            f"--input_file={settings.input_file}: holds {len(documents)} document(s), but a random next "
            "sentence needs two; set documents apart with a blank line"
        )
    logging.info("read %d documents from %d file(s)", len(documents), len(files))
    features = schema.pretraining_features(settings.max_seq_length, settings.max_predictions_per_seq)
    rows = _masked_rows(documents, tokenizer, settings)
    examples = (pad(row, settings.max_seq_length, settings.max_predictions_per_seq) for row in rows)
    shards = writer.write_shards(outputs, examples, features)
    text = manifest.to_json(
        dataclasses.asdict(settings),
        shards,
        vocab_size=len(tokenizer.vocabulary),
        vocab_sha256=writer.sha256(settings.vocab_file),
        documents=len(documents),
        random_next_share=sum(row.is_random_next for row in rows) / len(rows),
    )
    writer.write_text(manifest.manifest_path(outputs[0]), text)
    logging.info("wrote %d examples to %s", sum(s.examples for s in shards), ", ".join(outputs))
    return shards


def _outputs(settings: GeneratorSettings, files: Sequence[str]) -> list[str]:
    """The files to write, none of them another one's name or a file that is read."""
    outputs = [path.strip() for path in settings.output_file.split(",") if path.strip()]
    if not outputs:
        raise InputError("--output_file is empty; give the file to write")
    writer.check_outputs(outputs, read=[*files, settings.vocab_file])
    return outputs


def _masked_rows(
    documents: Sequence[Document], tokenizer: BertTokenizer, settings: GeneratorSettings
) -> list["MaskedRow"]:
    """All rows in an order mixed over documents and passes, as training wants them."""
    rule = masking.MaskingRule(
        vocab_size=len(tokenizer.vocabulary),
        mask_id=tokenizer.mask_id,
        masked_lm_prob=settings.masked_lm_prob,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        continues_word=_continues_word(tokenizer.vocabulary) if settings.do_whole_word_mask else None,
    )
    rows = []
    total = settings.dupe_factor * len(documents)
    last_line = time.monotonic()
    with tqdm.tqdm(total=total, unit="doc", desc="examples", disable=not sys.stderr.isatty()) as progress:
        for dupe in range(settings.dupe_factor):
            for index in range(len(documents)):
                # one stream of numbers a document and pass: none depends on what came before it
                rng = np.random.default_rng((settings.random_seed, dupe, index))
                pairs = pairs_from_document(documents, index, settings.max_seq_length, settings.short_seq_prob, rng)
                rows.extend(mask_pair(pair, tokenizer, rule, rng) for pair in pairs)
                progress.update()
                if progress.disable and time.monotonic() - last_line > _SECONDS_BETWEEN_LINES:
                    last_line = time.monotonic()
                    logging.info(
                        "pass %d of %d, document %d of %d", dupe + 1, settings.dupe_factor, index + 1, len(documents)
                    )
    order = np.random.default_rng(settings.random_seed).permutation(len(rows))
    return [rows[index] for index in order]


@dataclasses.dataclass(frozen=True)
class MaskedRow:
    """One example without padding: ids, where B starts, and what was masked where."""

    input_ids: np.ndarray
    start_of_b: int
    positions: np.ndarray
    labels: np.ndarray
    is_random_next: bool


def mask_pair(
    pair: SentencePair, tokenizer: BertTokenizer, rule: masking.MaskingRule, rng: np.random.Generator
) -> MaskedRow:
    """Builds [CLS] A [SEP] B [SEP] and masks it; [CLS] and [SEP] are never masked."""
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    ids = np.concatenate([cls, pair.tokens_a, sep, pair.tokens_b, sep])
    start_of_b = len(pair.tokens_a) + 2
    maskable = np.ones(len(ids), bool)
    maskable[[0, start_of_b - 1, len(ids) - 1]] = False
    positions = masking.choose_positions(ids, maskable, rule, rng)
    masked = masking.replace(ids, positions, rule, rng)
    return MaskedRow(masked, start_of_b, positions, ids[positions], pair.is_random_next)


def pad(row: MaskedRow, max_seq_length: int, max_predictions_per_seq: int) -> dict[str, np.ndarray]:
    """A row as the record's features, padded with zeros to their fixed lengths."""
    used, predictions = len(row.input_ids), len(row.positions)

    def padded(values, length, dtype=np.int64):
        result = np.zeros(length, dtype)
        result[: len(values)] = values
        return result

    return {
        "input_ids": padded(row.input_ids, max_seq_length),
        "input_mask": padded(np.ones(used), max_seq_length),
        "segment_ids": padded(np.arange(used) >= row.start_of_b, max_seq_length),
        "masked_lm_positions": padded(row.positions, max_predictions_per_seq),
        "masked_lm_ids": padded(row.labels, max_predictions_per_seq),
        "masked_lm_weights": padded(np.ones(predictions), max_predictions_per_seq, np.float32),
        "next_sentence_labels": np.array([row.is_random_next], np.int64),
    }


def _continues_word(vocabulary: Sequence[str]) -> np.ndarray:
    return np.array([piece.startswith("##") for piece in vocabulary])
