"""Reads classification data that tf-models-official's `create_finetuning_data` wrote: TFRecords and a JSON file.

The JSON file describes the TFRecords. The rows are already encoded, so a run must use the vocabulary that encoded the
rows.

Letters: B rows of a batch, S sequence length, N rows of a split.
"""

import dataclasses
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.datasets import without_autotune
from bert_tf.core.errors import InputError
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.stratified_split import HeldOut
from bert_tf.finetuning.task import Columns, Split
from bert_tf.settings import FineTuningSettings
from bert_tf.settings.finetuning import PATH_FLAGS
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.classification_task import ClassificationTask, Example
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER, Reading
from bert_tf.text.packing import TRUNCATE
from bert_tf.tokenization import BertTokenizer
from tfrecords import reader

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_ROWS_PER_CALL = 1024


class Rows(Sequence):
    """The encoded rows of a split, as a sequence of examples with unknown texts and labels.

    Attributes:
      columns: `input_ids`, `input_mask` and `segment_ids`, int32 [N, S]; `label_ids`, float32 [N]; and `weight`,
        float32 [N], if the records have weights.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["label_ids"])

    def __getitem__(self, number: int) -> Example:
        return Example("", None, None)

    def digest(self) -> str:
        """Returns a hash of all columns."""
        found = hashlib.sha256()
        for name in sorted(self.columns):
            found.update(name.encode() + np.ascontiguousarray(self.columns[name]).tobytes())
        return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class RecordsTask(ClassificationTask):
    """Classification of encoded rows from TFRecords.

    Attributes:
      name: name of the data's processor, such as "MRPC".
      meta_file: path of the JSON file that describes the records.
      paths: maps each split to comma-separated paths and globs.
      labels: the ids of the classes as text; () for a regression.
      score_names: names of the task's scores in `scores.SCORES`; the main score comes first.
      has_float_labels: whether the dtype of the labels in the records is float32.
      has_weights: whether the records have a weight for each example.
      has_pairs: whether an example has two texts.
      reading: see `ClassificationTask`. Long texts are already truncated.
      held_out: see `Task`.
      row_length: see `Task`.
      known: the splits that `read_files` has already read.
    """

    name: str
    meta_file: str
    paths: Mapping[str, str]
    labels: tuple[str, ...]
    score_names: tuple[str, ...]
    has_float_labels: bool
    has_weights: bool
    has_pairs: bool
    reading: Reading = READ_AS_IN_THE_PAPER
    held_out: HeldOut | None = None
    row_length: int | None = None
    known: dict[str, Rows] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses data with more segments than the model has, and values of `--long_text` that need the whole texts.

        Raises:
          InputError: the data has a segment that the model lacks, or `--long_text` is not "truncate".
        """
        super().check(config, settings)
        if self.reading.has_both_orders:
            raise InputError(
                "--pair_order=both needs the texts of a pair, but create_finetuning_data has already joined them; drop "
                "the flag"
            )
        if self.reading.long_text != TRUNCATE:
            raise InputError(
                f"--long_text={self.reading.long_text}: create_finetuning_data has already truncated the texts of "
                f"{self.meta_file}; drop the flag"
            )
        # Check the ids here, because TensorFlow's lookup does not always report an id outside the table. On a CPU, the
        # lookup raises an error, but on a GPU, it returns zeros.
        asked = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
        for split in (split for split, wanted in asked.items() if wanted):
            segments = self.read(split).columns["segment_ids"]
            if segments.min() < 0 or segments.max() >= config.type_vocab_size:
                raise InputError(
                    f"{self.data_name(split)}: has segment_ids of {segments.min()} to {segments.max()}, but "
                    f"{settings.bert_config_file} has type_vocab_size={config.type_vocab_size}; give data with "
                    "only the model's segments"
                )

    def data_facts(self) -> dict[str, Any]:
        return super().data_facts() | {"processor_type": self.name, "has_sample_weights": self.has_weights}

    @property
    def has_dev_files(self) -> bool:
        return bool(self.paths["dev"])

    def files_of(self, split: str) -> list[str]:
        return reader.expand_files(self.paths[split], PATH_FLAGS[split])

    def digest(self, examples: Rows) -> str:
        return examples.digest()

    def is_labeled(self, examples: Rows) -> bool:
        """Returns false, because create_finetuning_data writes the label 0 if a test file has no labels."""
        return False

    def read_files(self, split: str) -> Rows:
        """Returns the rows of a split; only the first call reads the files.

        Raises:
          InputError: a file is damaged or contradicts `meta_file`, or a label is out of range.
        """
        if split not in self.known:
            self.known[split] = self._read(split)
        return self.known[split]

    def _read(self, split: str) -> Rows:
        label_type = tf.float32 if self.has_float_labels else tf.int64
        # Test data may lack labels.
        unknown = {"default_value": 0} if split == "test" else {}
        features = {name: tf.io.FixedLenFeature([self.row_length], tf.int64) for name in _INPUTS}
        features["label_ids"] = tf.io.FixedLenFeature([], label_type, **unknown)
        if self.has_weights:
            features["weight"] = tf.io.FixedLenFeature([], tf.float32)
        parts = []
        for path in self.files_of(split):
            records = tf.data.TFRecordDataset(path, reader.compression(path)).batch(_ROWS_PER_CALL)
            records = without_autotune(records)
            try:
                parts += [tf.io.parse_example(batch, features) for batch in records]
            except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
                raise InputError(
                    f"{path}: contradicts {self.meta_file} ({error.message.split(chr(10))[0]}); create both again"
                ) from error
        if not parts:
            raise InputError(f"--{PATH_FLAGS[split]}={self.paths[split]}: holds no example; create the data again")
        types = {name: np.int32 if name in _INPUTS else np.float32 for name in features}
        columns = {name: np.concatenate([part[name] for part in parts]).astype(kind) for name, kind in types.items()}
        self._check_labels(split, columns["label_ids"])
        return Rows(columns)

    def _check_labels(self, split: str, labels: np.ndarray) -> None:
        good = np.isfinite(labels) if self.is_regression else (labels >= 0) & (labels < len(self.labels))
        if not good.all():
            number = int(np.argmin(good))
            what = "is not a finite number" if self.is_regression else f"is not one of 0 to {len(self.labels) - 1}"
            raise InputError(f"{self.paths[split]}: the label {labels[number]:g} of example {number + 1} {what}")

    def contents_and_classes(self, examples: Rows) -> tuple[list[str], list[Hashable]]:
        """Returns the token ids, as text, and the class of each row; for a regression, all classes are None."""
        contents = [" ".join(map(str, row)) for row in examples.columns["input_ids"].tolist()]
        return contents, [None] * len(examples) if self.is_regression else examples.columns["label_ids"].tolist()

    def some_of(self, examples: Rows, numbers: np.ndarray) -> Rows:
        return Rows({name: column[numbers] for name, column in examples.columns.items()})

    def encode(self, examples: Rows, tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        """Returns the columns of the records.

        Raises:
          InputError: the rows were encoded with another vocabulary or have another length.
        """
        ids = examples.columns["input_ids"]
        size = len(tokenizer.vocabulary)
        if not (ids[:, 0] == tokenizer.cls_id).all() or ids.min() < 0 or ids.max() >= size:
            raise InputError(
                f"--vocab_file={tokenizer.vocab_file}: the data's rows do not begin with this vocabulary's [CLS], or "
                f"have ids beyond its {size} tokens; give the vocabulary that create_finetuning_data used"
            )
        if max_seq_length != self.row_length:
            raise InputError(
                f"--max_seq_length={max_seq_length}: {self.meta_file} says {self.row_length}; leave the flag out"
            )
        return examples.columns

    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Returns `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], unchanged."""
        return {name: columns[name] for name in _INPUTS}

    def keep_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """See `Task`. The texts are reconstructed from the tokens."""
        examples = _spelled(split.examples.columns, split.tokenizer.vocabulary, self.has_pairs)
        super().keep_evaluation(folder, dataclasses.replace(split, examples=examples), predictions, step, prefix)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of the rows, float32 [B]."""
        return batch["row_weights"] * batch["weight"] if self.has_weights else batch["row_weights"]


def _spelled(columns: Mapping[str, np.ndarray], vocabulary: Sequence[str], has_pairs: bool) -> list[Example]:
    """Converts encoded rows back to examples; the texts lack [CLS] and the [SEP] at the end of each text."""
    examples = []
    for ids, mask, segments, label in zip(*(columns[name] for name in (*_INPUTS, "label_ids")), strict=True):
        parts = [ids[(mask == 1) & (segments == number)] for number in range(2 if has_pairs else 1)]
        parts[0] = parts[0][1:]
        texts = [" ".join(vocabulary[token] for token in part[:-1]).replace(" ##", "") for part in parts]
        examples.append(Example(texts[0], texts[1] if has_pairs else None, str(label)))
    return examples


def records_task(command: Command) -> RecordsTask:
    """Returns the task that `--input_meta_data_path` describes.

    Without a trained run, this function reads the training data to find out whether examples have two texts.

    Raises:
      InputError: the file is missing, is damaged, or does not describe data of a classifier.
    """
    settings, trained = command.settings, command.trained
    meta = read_meta(settings.input_meta_data_path)
    name = str(meta.get("processor_type", "records"))
    is_regression = meta["task_type"] == "bert_regression"
    official = {name.upper(): task.score_names for name, task in glue.TASKS.items()}
    default = ("pearson", "spearman") if is_regression else ("accuracy", "macro_f1")
    task = RecordsTask(
        name,
        settings.input_meta_data_path,
        {split: getattr(settings, flag) for split, flag in PATH_FLAGS.items()},
        () if is_regression else tuple(map(str, range(meta["num_labels"]))),
        official.get(name.upper(), default),
        meta.get("label_type") == "float",
        bool(meta.get("has_sample_weights")),
        bool(trained and trained.parameters.get("has_pairs")),
        row_length=meta["max_seq_length"],
    )
    if trained:
        return task
    return dataclasses.replace(task, has_pairs=bool(task.read_files("train").columns["segment_ids"].any()))


def read_meta(path: str) -> Mapping[str, Any]:
    """Reads the JSON file that `create_finetuning_data` wrote to describe the records.

    Raises:
      InputError: the file is missing, is damaged, or does not describe data of a classifier.
    """
    if not tf.io.gfile.exists(path):
        raise InputError(f"--input_meta_data_path={path}: no such file; create_finetuning_data writes it")
    with storage.json_file(path, "create the data again") as meta:
        kind = meta.setdefault("task_type", "bert_classification")
        if kind not in ("bert_classification", "bert_regression"):
            raise InputError(f"--input_meta_data_path={path}: describes {kind}; give data of a classifier")
        numbers = [meta["max_seq_length"], *([meta["num_labels"]] if kind == "bert_classification" else [])]
        if not all(isinstance(number, int) and number > 1 for number in numbers):
            raise ValueError("max_seq_length and num_labels must be numbers above 1")
    return meta
