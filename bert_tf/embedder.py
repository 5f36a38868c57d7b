"""Vectors of texts for Python programs: trains on pairs, evaluates, encodes, saves, loads and exports.

Paper: N. Reimers and I. Gurevych, "Sentence-BERT", EMNLP 2019. The model, the settings and the folder are the same as
for `run_embeddings`.
"""

import contextlib
import functools
import numbers
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from bert_tf import conversion, report
from bert_tf.core.command_line import of_keywords
from bert_tf.core.errors import InputError
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.finetuning.dev_share import check_dev
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Split
from bert_tf.finished_run import FinishedRun
from bert_tf.modeling.precision import policy
from bert_tf.rows import Row
from bert_tf.rows.memory import rows_of
from bert_tf.tasks.embeddings import data, retrieval
from bert_tf.tasks.embeddings.embedding_task import EMBEDDINGS, EmbeddingTask, embedding_task
from bert_tf.tasks.embeddings.prompts import VectorFiles
from bert_tf.tasks.embeddings.settings import EmbeddingSettings

# What messages call data in memory.
_IN_MEMORY = "examples in memory"


class TextEmbedder(FinishedRun):
    """A trained model that maps texts to vectors; similar texts have similar vectors.

    Attributes:
      folder: see `FinishedRun`.
      scores: see `FinishedRun`.
    """

    def __init__(self, folder: str, scores: dict[str, float] | None = None, use_checkpoint: str = "best"):
        # The temporary folder of a converted model exists as long as this object.
        self._files = contextlib.ExitStack()
        weakref.finalize(self, self._files.close)
        run = self._files.enter_context(conversion.run_of(os.fspath(folder)))
        super().__init__(run, scores, use_checkpoint)
        self._with_prompts: dict[tuple, FeatureExtractor] = {}
        if self._trained.description.kind != EMBEDDINGS:
            raise InputError(
                f"{folder}: was trained for {self._trained.description.kind}; give a run of run_embeddings, or a model "
                "of sentence-transformers"
            )

    @classmethod
    def load(cls, folder: str, use_checkpoint: str = "best") -> "TextEmbedder":
        """Loads a model that `train` or `run_embeddings` trained, or a model of sentence-transformers.

        For the vectors of any other checkpoint, use `FeatureExtractor.of_texts`.

        Args:
          folder: the folder of a run or a sweep; or a model of sentence-transformers, a folder or `hf://owner/model`.
          use_checkpoint: "best" or "last"; see `--use_checkpoint` of `run_embeddings`.

        Raises:
          InputError: the folder does not contain a finished run, or files that say how to pool vectors.
        """
        return cls(folder, use_checkpoint=use_checkpoint)

    @classmethod
    def train(
        cls, examples: Sequence, checkpoint: str, output_dir: str, *, dev: Sequence | None = None, **settings
    ) -> "TextEmbedder":
        """Trains a model. After an interruption, the same call resumes the training.

        Args:
          examples: tuples of an anchor, its positive and any number of negatives; or tuples of two texts and a score
            (a number); or single texts; or rows with the columns of a file of `run_embeddings`: a list of dicts, a
            dict of lists, a DataFrame of pandas or polars, or a Dataset of the library datasets.
          checkpoint: weights to start from; see `--init_checkpoint` of `run_embeddings`.
          output_dir: folder for checkpoints and report.
          dev: examples for the evaluation: pairs or scored pairs; None for the dev data of the settings, if any.
          **settings: further flags of `run_embeddings`, without the dashes, such as `num_train_epochs`. Instead of
            `dev`, `eval_data_path` names a file or a collection, or `dev_share` holds out a share of `examples`.

        Returns:
          The model with its `scores`.

        Raises:
          InputError: examples or settings are invalid, or do not match the run in the folder.
        """
        for name in ("data_dir", "train_data_path", "test_data_path"):
            if settings.get(name):
                raise InputError(f"{name} and {_IN_MEMORY} are two data sets; drop one of them")
        names = ["dev"] * (dev is not None) + [name for name in ("eval_data_path", "dev_share") if settings.get(name)]
        if len(names) > 1:
            raise InputError(f"{' and '.join(names)}: each gives the dev data; drop all but one")
        rows = {"train": _rows(examples, "examples")} | ({} if dev is None else {"dev": _rows(dev, "dev")})
        paths = {"init_checkpoint": os.fspath(checkpoint), "output_dir": os.fspath(output_dir)}
        flags = {"data_dir": _IN_MEMORY, "do_train": True, "do_eval": bool(names)}
        parsed = of_keywords(EmbeddingSettings, paths | flags | settings)
        texts = data.in_memory(rows, data.text_data("", parsed.data_paths))
        for split in rows:
            data.form_of(texts.load(split))
        command = Command.of(parsed)
        task = embedding_task(command, texts)
        check_dev(command, task, "".join(names), texts.source.has_dev)
        with policy():
            scores = run_finetuning(parsed, lambda _: task, report.write, conversion.open_teacher)
        report.conclude(parsed.output_dir, scores, "encode(texts), export(folder)")
        return cls(parsed.output_dir, scores, parsed.use_checkpoint)

    def encode(
        self, texts: Sequence[str] | str, prompt_name: str = "", dimensions: int | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Computes the vectors of N texts.

        Args:
          texts: strings; or one string.
          prompt_name: "query" or "document" to write the model's prefix before each text; "" for no prefix.
          dimensions: number of the first values of each vector to keep; None to keep all.
          batch_size: see `--batch_size` of `extract_features`; None for its default.

        Returns:
          float32 [N, H], or [H] for one string; of length 1 if the model normalizes vectors. As in
          sentence-transformers, `dimensions` cuts normalized vectors, which are then shorter than 1.

        Raises:
          InputError: a text is not a string, or an argument is invalid.
        """
        if isinstance(texts, str):
            return self.encode([texts], prompt_name, dimensions, batch_size)[0]
        key = prompt_name, dimensions, batch_size
        if key not in self._with_prompts:
            self._with_prompts[key] = self._extractor.with_prompt(*key)
        return self._with_prompts[key].sentences(texts)

    def similarity(self, texts: Sequence[str] | str, others: Sequence[str] | str) -> np.ndarray:
        """Computes the similarity of each of N texts with each of M other texts, float32 [N, M]; see `encode`.

        This is the cosine, unless the model's files name another similarity.
        """
        vectors, of_others = (self.encode([each] if isinstance(each, str) else each) for each in (texts, others))
        name = self._trained.description.parameters.get("similarity", "cosine")
        return np.stack([values for _, values in retrieval.similarities(vectors, of_others, name)])

    def evaluate(self, examples: Sequence) -> dict[str, float]:
        """Computes the metrics in `scores`, except for the loss, for pairs or scored pairs; see `train`.

        Raises:
          InputError: an example is invalid, or the examples are single texts.
        """
        checked = data.of_rows(_rows(examples, "examples"), "examples", "train")
        if data.form_of(checked) == data.TEXTS:
            raise InputError("examples: single texts cannot be evaluated; give pairs or scored pairs")
        task = EmbeddingTask(files=VectorFiles(**self._trained.description.parameters))
        texts, example_ids = task.prefixed_texts(checked)
        return task.scores(Split(checked, {}, example_ids), self.encode(texts))

    @functools.cached_property
    def _extractor(self) -> FeatureExtractor:
        return FeatureExtractor(self._trained.checkpoint, sentence_vectors=True)


def _rows(examples: Iterable, name: str) -> list[Row]:
    """Returns the rows of a table, or of examples in a list."""
    examples = examples if hasattr(examples, "__len__") else list(examples)
    table = rows_of(examples)
    if isinstance(examples, (str, Set)) or not len(examples if table is None else table):
        raise InputError(f"{name}: give a list with at least one example")
    if table is not None:
        return [(f"{name}[{number}]", row) for number, row in enumerate(table)]
    rows = [(f"{name}[{number}]", _row(one, f"{name}[{number}]")) for number, one in enumerate(examples)]
    for place, row in rows:
        if next(iter(row)) != next(iter(rows[0][1])):
            raise InputError(f"{place}: has another form than {rows[0][0]}; give examples of one form")
    return rows


def _row(example: Any, place: str) -> Mapping[str, Any]:
    """Returns an example with the names of the columns of a file."""
    parts = list(example) if isinstance(example, (tuple, list, np.ndarray)) else [example]
    is_scored = len(parts) == 3 and isinstance(parts[2], numbers.Real) and not isinstance(parts[2], bool)
    texts = parts[:2] if is_scored else parts
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        what = "one, two with a score, or an anchor, its positive and negatives"
        raise InputError(f"{place}: must be texts that are not empty: {what}")
    if is_scored:
        return {"sentence1": parts[0], "sentence2": parts[1], "score": parts[2]}
    names = ("anchor", "positive", *(f"negative_{number}" for number in range(1, len(texts) - 1)))
    return dict(zip(names, texts, strict=True)) if len(texts) > 1 else {"text": texts[0]}
