"""Reads classification data that tf-models-official's `create_finetuning_data` wrote: TFRecords and a JSON file.

The JSON file describes the TFRecords. The rows are already encoded, so a run must use the vocabulary that encoded the
rows.

Letters: N rows of a split.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.datasets import without_autotune
from bert_tf.core.errors import InputError
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Columns, Split
from bert_tf.finetuning.task_data import TaskData
from bert_tf.settings import FineTuningSettings
from bert_tf.settings.finetuning import PATH_FLAGS
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.classes import Classes
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.regression import Regression
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.text.packing import TRUNCATE
from bert_tf.tokenization import BertTokenizer
from tfrecords import reader

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_ROWS_PER_CALL = 1024


@dataclasses.dataclass(frozen=True, repr=False)
class Row(Example):
    """An encoded row; its texts and its label are unknown.

    Attributes:
      columns: the columns of the row's split: `input_ids`, `input_mask` and `segment_ids`, int32 [N, S]; `label_ids`,
        float32 [N]; and `weight`, float32 [N], if the records have weights.
      number: index of the row.
    """

    columns: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    number: int = 0

    def __repr__(self) -> str:
        return " ".join(f"{name}={column[self.number].tolist()}" for name, column in sorted(self.columns.items()))


@dataclasses.dataclass(frozen=True)
class RecordsTask(ClassificationTask):
    """Classification of encoded rows from TFRecords. Long texts are already truncated.

    Attributes:
      has_weights: whether the records have a weight for each example.
    """

    meta_file: str = ""
    has_weights: bool = False
    row_length: int | None = None

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses data with more segments than the model has, and values of `--long_text` that need the whole texts."""
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
            segments = self.data.read(split)[0].columns["segment_ids"]
            if segments.min() < 0 or segments.max() >= config.type_vocab_size:
                raise InputError(
                    f"{self.data.title(split)}: has segment_ids of {segments.min()} to {segments.max()}, but "
                    f"{settings.bert_config_file} has type_vocab_size={config.type_vocab_size}; give data with "
                    "only the model's segments"
                )

    def encode(self, examples: Sequence[Row], tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        numbers = [row.number for row in examples]
        columns = {name: column[numbers] for name, column in examples[0].columns.items()}
        ids = columns["input_ids"]
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
        return columns

    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Returns `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], unchanged."""
        return {name: columns[name] for name in _INPUTS}

    def keep_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """See `Task`. The texts are reconstructed from the tokens."""
        examples = [_spelled(row, split.tokenizer.vocabulary, self.has_pairs) for row in split.examples]
        super().keep_evaluation(folder, dataclasses.replace(split, examples=examples), predictions, step, prefix)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of the rows, float32 [B]."""
        return batch["row_weights"] * batch["weight"] if self.has_weights else batch["row_weights"]


def _spelled(row: Row, vocabulary: Sequence[str], has_pairs: bool) -> Example:
    """Converts an encoded row back to an example; the texts lack [CLS] and the [SEP] at the end of each text."""
    ids, mask, segments, label = (row.columns[name][row.number] for name in (*_INPUTS, "label_ids"))
    parts = [ids[(mask == 1) & (segments == number)] for number in range(2 if has_pairs else 1)]
    parts[0] = parts[0][1:]
    texts = [" ".join(vocabulary[token] for token in part[:-1]).replace(" ##", "") for part in parts]
    return Example(texts[0], texts[1] if has_pairs else None, str(label))


def records_task(command: Command) -> RecordsTask:
    """Returns the task that `--input_meta_data_path` describes.

    Without a trained run, this function reads the training data to find out whether examples have two texts.
    """
    settings, trained = command.settings, command.trained
    meta = read_meta(settings.input_meta_data_path)
    name = str(meta.get("processor_type", "records"))
    official = {each.upper(): task.answers.score_names for each, task in glue.TASKS.items()}.get(name.upper())
    if meta["task_type"] == "bert_regression":
        answers = Regression(official or ("pearson", "spearman"))
    else:
        labels = tuple(map(str, range(meta["num_labels"])))
        answers = Classes(labels, official) if official else Classes(labels)
    data = _data(settings, meta, answers)
    if trained:
        has_pairs = bool(trained.parameters.get("has_pairs"))
    else:
        has_pairs = bool(data.load("train")[0].columns["segment_ids"].any())
    return RecordsTask(
        name, answers, has_pairs, data,
        meta_file=settings.input_meta_data_path, has_weights=data.facts["has_sample_weights"],
        row_length=meta["max_seq_length"],
    )  # fmt: skip


def _data(settings: ClassifierSettings, meta: Mapping[str, Any], answers: Answers) -> TaskData:
    has_weights = bool(meta.get("has_sample_weights"))
    features = {name: tf.io.FixedLenFeature([meta["max_seq_length"]], tf.int64) for name in _INPUTS}
    if has_weights:
        features["weight"] = tf.io.FixedLenFeature([], tf.float32)
    label_type = tf.float32 if meta.get("label_type") == "float" else tf.int64

    def files(split: str) -> list[str]:
        return reader.expand_files(getattr(settings, PATH_FLAGS[split]), PATH_FLAGS[split])

    @functools.cache
    def load(split: str) -> list[Row]:
        # Test data may lack labels; then, create_finetuning_data writes the label 0.
        label = tf.io.FixedLenFeature([], label_type, **({"default_value": 0} if split == "test" else {}))
        columns = _read(files(split), features | {"label_ids": label}, settings.input_meta_data_path)
        _check_labels(split, settings, columns["label_ids"], answers)
        return [Row("", None, None, columns=columns, number=number) for number in range(len(columns["label_ids"]))]

    def strata(rows: Sequence[Row]) -> tuple[list[str], list[Hashable]]:
        """Returns the token ids, as text, and the class of each row; for a regression, all classes are None."""
        contents = [" ".join(map(str, row.columns["input_ids"][row.number].tolist())) for row in rows]
        return contents, [float(row.columns["label_ids"][row.number]) if answers.labels else None for row in rows]

    has_dev = bool(settings.eval_data_path)
    facts = {"processor_type": str(meta.get("processor_type", "records")), "has_sample_weights": has_weights}
    return TaskData(files, load, has_dev, facts, strata=strata)


def _read(paths: Sequence[str], features: Mapping[str, Any], meta_file: str) -> dict[str, np.ndarray]:
    parts = []
    for path in paths:
        records = without_autotune(tf.data.TFRecordDataset(path, reader.compression(path)).batch(_ROWS_PER_CALL))
        try:
            parts += [tf.io.parse_example(batch, features) for batch in records]
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            raise InputError(
                f"{path}: contradicts {meta_file} ({error.message.split(chr(10))[0]}); create both again"
            ) from error
    if not parts:
        raise InputError(f"{', '.join(paths)}: holds no example; create the data again")
    types = {name: np.int32 if name in _INPUTS else np.float32 for name in features}
    return {name: np.concatenate([part[name] for part in parts]).astype(kind) for name, kind in types.items()}


def _check_labels(split: str, settings: ClassifierSettings, labels: np.ndarray, answers: Answers) -> None:
    count = len(answers.labels)
    good = (labels >= 0) & (labels < count) if count else np.isfinite(labels)
    if not good.all():
        number, paths = int(np.argmin(good)), getattr(settings, PATH_FLAGS[split])
        what = f"is not one of 0 to {count - 1}" if count else "is not a finite number"
        raise InputError(f"{paths}: the label {labels[number]:g} of example {number + 1} {what}")


def read_meta(path: str) -> Mapping[str, Any]:
    """Reads the JSON file that `create_finetuning_data` wrote to describe the records."""
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
