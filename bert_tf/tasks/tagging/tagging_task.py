"""The task of tagging named entities. The first token of each word is labeled; the metrics are the same as conlleval's.

Paper: section 3.2, Figure 4 (d); section 5.3 and Table 7.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import ACCURACY, LOSS, ConstantAnswer, Distillation, Encoded, Split, Task, tokenize
from bert_tf.finetuning.task_data import NO_DATA, TaskData
from bert_tf.modeling.heads import FeatureTaggingHead, TaggingHead, layers_of
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import example_checks
from bert_tf.tasks.tagging import conll_files, entity_scores, tag_schemes, word_rows
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops
from bert_tf.training.divergence import divergence

TAGGING = "tagging"
NAME = "NER"
# The label of the tokens that have no tag: all tokens of a word except the first, and all tokens of the context.
NOT_LABELED = -1


def labels_of(types: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Returns the labels of a new model for data in a tag scheme; see `TaggingTask`."""
    return tag_schemes.tags_of_types(types, _learned(scheme))


def _outside(sentence: Sentence) -> list[str]:
    return [tag_schemes.OUTSIDE] * len(sentence.words)


def _learned(scheme: str) -> str:
    return tag_schemes.BIOES if scheme == tag_schemes.BIOES else tag_schemes.IOB2


@dataclasses.dataclass(frozen=True)
class TaggingTask(Task):
    """Tags the words of sentences as parts of entities."""

    labels: tuple[str, ...]  # the tags that the model predicts, in the order of its outputs; see `labels_of`
    # scheme of the training data and the predictions. If the scheme is IOB1, the model learns IOB2, which can represent
    # the same entities.
    scheme: str
    document_context: bool = False  # whether neighboring sentences of the document fill the rows
    # the layers of the frozen encoder that the head reads. The value is a name in `modeling.heads.FEATURES`, or "" to
    # train the encoder.
    features: str = ""
    lstm_size: int = 0  # number of units in each direction of the BiLSTM on features
    activations_dir: str = ""
    data: TaskData = NO_DATA

    kind = TAGGING
    name = NAME
    metrics = (LOSS, ACCURACY)
    example_and_row_names = ("sentences", "rows")

    @property
    def types(self) -> tuple[str, ...]:
        """The types of entities, in the order of the labels."""
        return tag_schemes.types_of(self.labels)

    @property
    def parameters(self) -> Mapping[str, Any]:
        features = {"features": self.features, "lstm_size": self.lstm_size} if self.features else {}
        return {"tag_scheme": self.scheme, "document_context": self.document_context, **features}

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses an encoder that lacks a layer of `features`."""
        try:
            if self.features:
                layers_of(self.features, config.num_hidden_layers)
        except ValueError as error:
            raise InputError(f"--feature_layers: {error}; choose others, or another --init_checkpoint") from error

    def check_examples(self, examples: Mapping[str, Sequence[Sentence]]) -> None:
        """See `Task`. Also warns about types that no training sentence has, and about files without documents."""
        example_checks.warn_of_texts(examples)
        if train := examples.get("train"):
            there = tag_schemes.types_of(tag for sentence in train for tag in sentence.tags)
            if missing := [type_ for type_ in self.types if type_ not in there]:
                logging.warning("train has no entity of the type %s", " or ".join(missing))
        for sentences in examples.values():
            if self.document_context and not any(sentence.starts_document for sentence in sentences):
                logging.warning("%s: no line begins with %s, so the whole file is read as one document",
                                sentences[0].path, conll_files.DOCUMENT_START)  # fmt: skip

    def encode(self, examples: Sequence[Sentence], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        """Splits sentences into rows; each word is labeled in exactly one row. If a sentence has no tags, its words are
        labeled with O. Returns the columns; the rows of a sentence are in the order of its words.
        - `tokens`: int32 [N, (tokens)], token ids without [CLS] and [SEP].
        - `token_labels`: int32 [N, (tokens)], label ids; `NOT_LABELED` for tokens without a label.
        - `example_ids`: int64 [N], index of each row's example, ascending."""
        numbers: dict[str, int] = {}
        order = [numbers.setdefault(word, len(numbers)) for sentence in examples for word in sentence.words]
        room = max_seq_length - word_rows.NUM_SPECIAL
        words = word_rows.word_tokens(tokenize(list(numbers), tokenizer), tokenizer.unk_id, room)
        splits = np.cumsum([0, *(len(sentence.words) for sentence in examples)])
        documents = None
        if self.document_context:
            starts = [i for i, sentence in enumerate(examples) if i and sentence.starts_document]
            documents = tf.constant([0, *starts, len(examples)], tf.int64)
        rows = word_rows.make_rows(tf.gather(words, order), tf.constant(splits), room, documents)
        # The rows label all words in the order of the text; the first token of a row has the position 1.
        firsts = tf.gather(rows.tokens.row_starts(), rows.words.value_rowids()) + rows.words.values - 1
        token_labels = np.full(rows.tokens.values.shape, NOT_LABELED, np.int32)
        ids = {label: number for number, label in enumerate(self.labels)}
        token_labels[firsts.numpy()] = [
            ids[tag]
            for sentence in examples
            for tag in tag_schemes.convert(sentence.tags or _outside(sentence), _learned(self.scheme))
        ]
        return {
            "tokens": rows.tokens,
            "token_labels": rows.tokens.with_values(tf.constant(token_labels)),
            "example_ids": rows.sentences.numpy(),
        }

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Packs token ids into rows.
        `columns`: the columns `tokens` and `token_labels`; see `encode`.
        `max_seq_length`: sequence length, S.
        Returns the inputs, int32 [B, S] each. In the last three inputs, the first n columns of a row with n labeled
        tokens are for these tokens, in order.
        - `input_ids`, `input_mask`, `segment_ids`: see `BertEncoder`.
        - `read_positions`: the position of each labeled token in the row.
        - `label_ids`: the label of each labeled token; 0 in other columns.
        - `read_mask`: 1 for each labeled token; 0 in other columns."""
        inputs = pack(columns["tokens"], None, max_seq_length=max_seq_length, **tokenizer.row_form)
        labels = columns["token_labels"].to_tensor(NOT_LABELED, shape=[None, max_seq_length - 2])
        labels = tf.pad(labels, [[0, 0], [1, 1]], constant_values=NOT_LABELED)  # [B, S]
        is_read = labels != NOT_LABELED
        # The sort is stable, so the labeled tokens come first and keep their order.
        positions = tf.argsort(tf.cast(~is_read, tf.int32), axis=1, stable=True)
        read_mask = tf.gather(tf.cast(is_read, tf.int32), positions, batch_dims=1)
        label_ids = tf.gather(labels, positions, batch_dims=1) * read_mask
        own = {"read_positions": positions, "label_ids": label_ids, "read_mask": read_mask}
        return {**inputs, **{name: tf.ensure_shape(value, [None, max_seq_length]) for name, value in own.items()}}

    def head(self, config: BertConfig) -> keras.layers.Layer:
        """Returns a head with C outputs. If there are `features`, the head reads the activations of these layers."""
        if self.features:
            return FeatureTaggingHead(config, len(self.labels), self.features, self.lstm_size)
        return TaggingHead(config, len(self.labels))

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of tokens, float32 [B, S], in the order of `read_positions`. The weight of a labeled
        token is the weight of its row. All other weights are 0."""
        return batch["row_weights"][:, tf.newaxis] * tf.cast(batch["read_mask"], tf.float32)

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the cross-entropy and the accuracy, float32 [B, S] each, in the order of `read_positions`."""
        logits, labels = self._of_labeled(logits, batch), batch["label_ids"]
        return {
            "loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
            "accuracy": tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32),
        }

    def _of_labeled(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Orders the logits [B, S, C] by `read_positions`; the logits of a head on features already have this order."""
        return logits if self.features else tf.gather(logits, batch["read_positions"], batch_dims=1)

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the most probable labels, int32 [B, S], in the order of `read_positions`."""
        return tf.argmax(self._of_labeled(logits, batch), -1, tf.int32)

    @property
    def distillation(self) -> Distillation:
        """See `Task`. Both models label each word once, in the same order."""

        def losses(teacher, logits, temperature, batch):
            return divergence(teacher, self._of_labeled(logits, batch), temperature)

        def of_rows(split, teacher, taught, outputs):
            return outputs[np.arange(outputs.shape[1]) < self.output_counts(taught)[:, np.newaxis]]

        return Distillation(losses, self.weights, self._of_labeled, of_rows)

    def output_counts(self, split: Split) -> np.ndarray:
        """Returns the number of labeled words of each row, int64 [N]."""
        return tf.reduce_sum(tf.cast(split.columns["token_labels"] != NOT_LABELED, tf.int64), axis=1).numpy()

    def predicted_tags(self, split: Split, predictions: np.ndarray) -> list[list[str]]:
        """Joins the predictions for the rows of each sentence.
        `split`: a split with N rows.
        `predictions`: int32 [N, S], see `prediction`.
        Returns the tags of each sentence's words, in the scheme of the training data. If the model predicts an invalid
        sequence of tags, the returned tags are valid; they have the entities that the official scorer finds in the
        invalid sequence."""
        tags: list[list[str]] = [[] for _ in split.examples]
        for example, row, count in zip(split.example_ids, predictions, self.output_counts(split), strict=True):
            tags[example] += [self.labels[label] for label in row[:count].tolist()]
        return [tag_schemes.convert(of_sentence, self.scheme) for of_sentence in tags]

    def evaluation(self, split: Split, predictions: np.ndarray) -> entity_scores.Comparison:
        """Compares the predictions [N, S] with the tags of the data in the same way as the official scorer."""
        return entity_scores.compare(self._true_tags(split), self.predicted_tags(split, predictions))

    def _true_tags(self, split: Split) -> list[tuple[str, ...]]:
        return [tuple(tag_schemes.convert(sentence.tags, self.scheme)) for sentence in split.examples]

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the F1, precision and recall of entities, and the accuracy of tags."""
        return self.evaluation(split, predictions).scores

    def baseline(self, split: Split) -> ConstantAnswer:
        """Returns the constant answer, which is the tag O for every word."""
        outside = list(map(_outside, split.examples))
        return ConstantAnswer("O", entity_scores.compare(self._true_tags(split), outside).scores)

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the tag that is predicted for every word, if all predictions are equal; see `Task`."""
        tags = [{tag for sentence in sentences for tag in sentence}
                for sentences in (self._true_tags(split), self.predicted_tags(split, predictions))]  # fmt: skip
        return repr(tags[1].pop()) if len(tags[1]) == 1 and len(tags[0]) > 1 else ""

    def write_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes the predictions and the official scorer's table, and logs the table."""
        names = f"{prefix}_predictions.txt", f"{prefix}_scores.txt"
        self._write(folder, *names, split, predictions)
        logging.info("%s:\n%s", names[1], self.evaluation(split, predictions).describe().rstrip())

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes the predictions for the test data, and the official scorer's table if the right tags are known."""
        return self._write(folder, "test_predictions.txt", "test_scores.txt", split, predictions)

    def _write(self, folder: str, name: str, scores: str, split: Split, predictions: np.ndarray) -> list[str]:
        paths, sentences = [os.path.join(folder, name)], split.examples
        if is_known := all(sentence.tags is not None for sentence in sentences):
            # The right tags get the scheme of the predicted tags, because scorers compare the tags word by word.
            true = zip(sentences, self._true_tags(split), strict=True)
            sentences = [dataclasses.replace(sentence, tags=tags) for sentence, tags in true]
        conll_files.write_predictions(paths[0], sentences, self.predicted_tags(split, predictions))
        if is_known:
            paths.append(os.path.join(folder, scores))
            storage.write_text(paths[1], self.evaluation(split, predictions).describe())
        return paths

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        """See `Task`. Returns 0 (unknown) if there are `features`, since the work depends on the words per row."""
        if self.features:
            return 0
        return flops.training_flops(config, length, examples=examples)
