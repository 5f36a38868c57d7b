"""Mines hard negatives: texts that are similar to an anchor but are not its positives.

Paper: L. Xiong et al., "Approximate Nearest Neighbor Negative Contrastive Learning for Dense Text Retrieval", 2021.
Here, the search is exact.

Letters: Q anchors, D texts of the corpus.
"""

import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats.sentence_transformers import document_prompt, similarity
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.rows import files
from bert_tf.rows.text_files import decoded_lines
from bert_tf.tasks.embeddings import data, retrieval
from bert_tf.tasks.embeddings.data import PAIRS, TEXTS, Texts
from bert_tf.tasks.embeddings.prompts import QUERY
from bert_tf.tasks.embeddings.settings import MiningSettings


def mine(settings: MiningSettings) -> None:
    """Writes each pair with the negatives that were mined for it, which may be fewer than were asked for."""
    storage.check_outputs([settings.output_file], read=[settings.input_file, *filter(None, [settings.corpus_file])])
    pairs = _read(settings.input_file)
    if not pairs or data.form_of(pairs) != PAIRS:
        raise InputError(f"--input_file={settings.input_file}: must hold pairs; give the columns anchor and positive")
    positives: dict[str, list[str]] = {}
    for pair in pairs:
        positives.setdefault(pair.texts[0], []).append(pair.texts[1])
    titles = _corpus(settings.corpus_file)
    for pair in pairs:
        titles.setdefault(pair.texts[1], "")
    corpus = list(titles)
    length = {} if settings.max_seq_length is None else {"max_seq_length": settings.max_seq_length}
    extractor, anchors = FeatureExtractor.of_texts(settings.init_checkpoint, **length), list(positives)
    prompts = extractor.prompts
    queries = extractor.with_prompt(QUERY).sentences(anchors)
    documents = extractor.with_prompt(document_prompt(prompts)).sentences(corpus)
    places: dict[str, list[int]] = {}  # a document with a title is also found by its text alone
    for number, text in enumerate(corpus):
        for form in {text, text.removeprefix(titles[text]).strip()}:
            places.setdefault(form, []).append(number)
    mined = {}
    with ProgressBar("mining", len(anchors), "anchors") as progress:
        for number, values in retrieval.similarities(queries, documents, similarity(extractor.folder)):
            anchor = anchors[number]
            own = [place for text in positives[anchor] for place in places[text]]
            rng = np.random.default_rng((settings.random_seed, number))
            mined[anchor] = [corpus[one] for one in _chosen(values, own, places.get(anchor, ()), settings, rng)]
            progress.update()
    _write(settings, pairs, mined)


def _read(path: str) -> list[Texts]:
    return data.of_rows(list(data.rows_of_table(path)), path, "train")


def _corpus(path: str) -> dict[str, str]:
    """Returns the texts of a corpus, each with its title, which is the beginning of the text, or ""."""
    if not path:
        return {}
    extension = os.path.splitext(path)[1].lower()
    if not any(extension in known for known in files.EXTENSIONS.values()):
        return {line.strip(): "" for line in decoded_lines(path) if line.strip()}
    if files.has_objects(path) and "_id" in next(files.rows(path), ("", {}))[1]:
        return {f"{title} {text}".strip(): title for title, text in data.titled_texts(path).values()}
    examples = _read(path)
    if examples and data.form_of(examples) != TEXTS:
        raise InputError(f"--corpus_file={path}: holds {examples[0].form}; give one text per row in the column text")
    return {example.texts[0]: "" for example in examples}


def _chosen(
    values: np.ndarray, own: Sequence[int], itself: Sequence[int], settings: MiningSettings, rng: np.random.Generator
) -> list[int]:
    """Returns the indices of the negatives of an anchor, the most similar first."""
    values = values.copy()
    least = min(values[own])
    values[[*own, *itself]] = -np.inf
    ranked = retrieval.highest(values, settings.max_rank)[settings.min_rank - 1 :]
    ranked = ranked[(values[ranked] < least - settings.margin) & np.isfinite(values[ranked])]
    if settings.sampling == "random" and len(ranked) > settings.num_negatives:
        ranked = ranked[np.sort(rng.choice(len(ranked), settings.num_negatives, replace=False))]
    return ranked[: settings.num_negatives].tolist()


def _write(settings: MiningSettings, pairs: Sequence[Texts], mined: dict[str, list[str]]) -> None:
    lines = []
    for pair in pairs:
        texts = dict.fromkeys([*pair.texts[2:], *mined[pair.texts[0]]])  # first the negatives of the input
        negatives = {f"negative_{number}": text for number, text in enumerate(texts, 1)}
        row = {"anchor": pair.texts[0], "positive": pair.texts[1], **negatives}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    folder = os.path.dirname(settings.output_file)
    if folder:
        tf.io.gfile.makedirs(folder)
    storage.write_text(settings.output_file, "".join(lines))
    fewer = sum(len(mined[pair.texts[0]]) < settings.num_negatives for pair in pairs)
    logging.info("wrote %d pairs to %s; %d of them have fewer negatives than --num_negatives=%d", len(pairs),
                 settings.output_file, fewer, settings.num_negatives)  # fmt: skip
