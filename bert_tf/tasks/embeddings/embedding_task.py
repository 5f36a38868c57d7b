"""The task of vectors of texts: similar texts get vectors with a high cosine.

Sentence vectors from BERT: N. Reimers and I. Gurevych, "Sentence-BERT", EMNLP 2019. Each text is a row.

Letters: G examples.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.checkpoint_formats import sentence_transformers
from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import ACCURACY, LOSS, Distillation, Encoded, Split, Task, tokenize
from bert_tf.finetuning.task_data import NO_DATA, TaskData
from bert_tf.modeling.heads import pool_tokens
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import evaluation_file, example_checks
from bert_tf.tasks.embeddings import data, losses, retrieval
from bert_tf.tasks.embeddings.data import COLLECTION, PAIRS, SCORED, TEXTS
from bert_tf.tasks.embeddings.prompts import VectorFiles, stated_folder
from bert_tf.tasks.report_parts import short
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from bert_tf.training.metrics import Metric

EMBEDDINGS = "embeddings"
INFO_NCE, CO_SENT = "infonce", "cosent"
# Number of found documents that the report shows for a query.
_SHOWN = 3
# The scores that each Matryoshka size has.
_OF_EACH_SIZE = ("spearman", "ndcg@10")


class PoolingHead(keras.layers.Layer):
    """Pools the encoder's outputs for each row; the layer has no weights."""

    reads, columns = "sequence_output", ("input_mask",)

    def __init__(self, pooling: str, normalize: bool, **options):
        super().__init__(**options)
        self._pooling, self._normalize = pooling, normalize

    def call(self, x, input_mask=None, training=False, seed=None):
        """Maps float [B, S, H] to vectors, float32 [B, H]; `input_mask` is int32 [B, S]."""
        del training, seed
        pooled = pool_tokens(x, input_mask, self._pooling)
        return tf.math.l2_normalize(pooled, -1) if self._normalize else pooled


def embedding_task(command: Command, texts: TaskData | None = None) -> "EmbeddingTask":
    """Returns the task for the flags of `run_embeddings`.
    `texts`: data in memory; None if the flags name the data."""
    settings = command.settings
    task_data = with_dev_share(texts or data.text_data(settings.data_dir, settings.data_paths), command)
    files = VectorFiles.of_command(command)
    loss = _loss_for(settings, data.form_of(task_data.load("train"))) if settings.do_train else settings.loss
    folder = stated_folder(command)
    length = sentence_transformers.longest_sentence(folder) if folder else None
    return EmbeddingTask(task_data, files, loss or INFO_NCE, settings.scale, settings.both_directions, length)


def _loss_for(settings: FineTuningSettings, form: str) -> str:
    suited = CO_SENT if form == SCORED else INFO_NCE
    if settings.loss not in ("", suited):
        raise InputError(f"--loss={settings.loss}: the training data holds {form}, whose loss is {suited}; drop the "
                         "flag, or give other data")  # fmt: skip
    return suited


@dataclasses.dataclass(frozen=True)
class EmbeddingTask(Task):
    """Maps texts to vectors."""

    data: TaskData = NO_DATA
    files: VectorFiles = dataclasses.field(default_factory=VectorFiles)  # pooling, prefixes and sizes of the vectors
    loss: str = INFO_NCE  # the loss of training, INFO_NCE or CO_SENT
    scale: float = 20.0  # factor of the cosines in the loss
    both_directions: bool = False  # whether INFO_NCE also ranks the anchors for each second text
    # row length that sentence-transformers' files beside the checkpoint state; None if not stated
    default_length: int | None = None
    kind = EMBEDDINGS
    name = EMBEDDINGS
    labels = ()
    couples_rows = True
    example_and_row_names = ("examples", "texts")

    @property
    def parameters(self) -> Mapping[str, Any]:
        return dataclasses.asdict(self.files)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (LOSS, ACCURACY) if self.loss == INFO_NCE else (LOSS,)

    def is_labeled(self, examples: Sequence[Any]) -> bool:
        """Returns whether the examples can be scored; only scored pairs may lack their scores."""
        return all(example.form != SCORED or example.label is not None for example in examples)

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        sentence_transformers.check_pooling(self.files.pooling, config)
        sizes, most = self.files.sizes, config.hidden_size
        if list(sizes) != sorted({size for size in sizes if 0 < size <= most}, reverse=True):
            raise InputError(
                f"--matryoshka_dims={self.files.matryoshka_dims}: must fall, from at most {most}, the size of the "
                "model's vectors"
            )
        has_dropout = config.hidden_dropout_prob > 0 or config.attention_probs_dropout_prob > 0
        if settings.do_train and not has_dropout and data.form_of(self.data.load("train")) == TEXTS:
            raise InputError(
                "the training data holds single texts, which are their own positives under another dropout mask, but "
                "the model has no dropout; give a bert_config.json with hidden_dropout_prob 0.1"
            )

    def check_examples(self, examples: Mapping[str, Sequence[Any]]) -> None:
        forms = {split: data.form_of(of_split) for split, of_split in examples.items()}
        if forms.get("dev") == TEXTS:
            raise InputError("single texts cannot be evaluated; give pairs, scored pairs or a collection as "
                             "--eval_data_path, instead of --dev_share")  # fmt: skip
        example_checks.warn_of_texts({split: examples[split] for split in forms if forms[split] != COLLECTION})

    def encode(self, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        """Tokenizes examples; each text becomes a row. Returns the columns:
        - `tokens`: int32 [N, (tokens)].
        - `roles`: int32 [N], see `losses`; for a collection, queries are anchors and documents are positives.
        - `text_ids`: int32 [N], equal for equal texts.
        - `label_ids`: float32 [N], the score of the example; 0 if unknown.
        - `example_ids`: int [N], the index of the example."""
        groups, roles, example_ids = _groups(examples)
        texts = [text for group in groups for text in group]
        prefixed, _ = self.prefixed_texts(examples)
        return {
            "tokens": tokenize(prefixed, tokenizer),
            "roles": roles.astype(np.int32),
            "text_ids": np.unique(np.array(texts, np.object_), return_inverse=True)[1].astype(np.int32),
            "label_ids": np.float32([example.label or 0 for example in examples])[example_ids],
            "example_ids": example_ids,
        }

    def prefixed_texts(self, examples: Sequence[Any]) -> tuple[list[str], np.ndarray]:
        """Returns the N texts of all examples with their prefixes, and the index of each text's example, int [N]."""
        groups, roles, example_ids = _groups(examples)
        is_query = (roles == losses.ANCHOR) | (data.form_of(examples) in (SCORED, TEXTS))
        texts = (text for group in groups for text in group)
        return [self.files.prefix(asks) + text for asks, text in zip(is_query, texts, strict=True)], example_ids

    def rows_per_example(self, split: Split) -> np.ndarray:
        """Returns the number of texts of each example, int [G]."""
        return np.bincount(split.example_ids)

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        return pack(columns["tokens"], None, max_seq_length=max_seq_length, **tokenizer.row_form)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        return PoolingHead(self.files.pooling, self.files.normalize)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of rows, float32 [B]; only the first rows of examples have weights above 0."""
        return batch["row_weights"] * tf.cast(batch["roles"] == losses.ANCHOR, tf.float32)

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss, and for pairs the accuracy, from vectors [B, H]; see `losses`."""

        def of_vectors(vectors: tf.Tensor) -> dict[str, tf.Tensor]:
            if self.loss == CO_SENT:
                return losses.co_sent(vectors, batch, self.scale)
            return losses.info_nce(vectors, batch, self.scale, self.both_directions)

        return losses.matryoshka(of_vectors, logits, self.files.sizes or (logits.shape[-1],))

    @property
    def distillation(self) -> Distillation:
        """See `Task` and `losses.of_teacher`."""

        def of_texts(teacher, logits, temperature, batch):
            return losses.of_teacher(logits, teacher, batch["row_weights"])

        return Distillation(of_texts, lambda batch: batch["row_weights"], self.prediction)

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the scores of vectors [N, H], then the scores of each smaller Matryoshka size. Scored pairs have the
        correlations of similarities and scores. Collections have the metrics of retrieval. Pairs are evaluated as a
        collection: the anchors are queries, and all other texts are documents."""
        if not np.all(np.isfinite(predictions)):
            return {"spearman" if _form(split) == SCORED else "ndcg@10": float("nan")}
        scores: dict[str, float] = {}
        for size in sorted({predictions.shape[1], *self.files.sizes}, reverse=True):
            end = "" if size == predictions.shape[1] else f"_{size}"
            of_size = _scores(split, predictions[:, :size], self.files.similarity)
            scores |= {f"{name}{end}": value for name, value in of_size.items() if not end or name in _OF_EACH_SIZE}
        return scores

    def write_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes `dev_predictions.jsonl` for the report; see `evaluation_file`."""
        if np.all(np.isfinite(predictions)):
            evaluation_file.write(folder, _entries(split, predictions, self.files.similarity), prefix)

    def write_files(self, folder: str, config: BertConfig, max_seq_length: int) -> None:
        """Writes the files with which every script, and sentence-transformers, pool as the training."""
        files = self.files
        sentence_transformers.write(
            folder, files.pooling, files.normalize, config.hidden_size, max_seq_length, files.prompts, files.similarity
        )

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes `test_predictions.tsv`, the similarity of each pair, or `test_predictions.trec`, documents found."""
        name = "test_predictions.tsv"
        if _form(split) in (SCORED, PAIRS):
            similarities = enumerate(_of_pairs(split, predictions, self.files.similarity))
            lines = ["index\tsimilarity", *(f"{number}\t{value:.6f}" for number, value in similarities)]
        elif _form(split) == COLLECTION:
            name, collection = "test_predictions.trec", _Collection(split, predictions, self.files.similarity)
            lines = [
                f"{query.id.removeprefix('query ')} Q0 {collection.documents[number].id} {rank} {value:.6f} bert_tf"
                for query, ranking in zip(collection.queries, collection.rankings(shown=100), strict=True)
                for rank, (number, value) in enumerate(zip(ranking.best, ranking.best_similarities, strict=True), 1)
            ]
        else:
            raise InputError("--test_data_path: single texts have no predictions; extract_features writes vectors")
        path = os.path.join(folder, name)
        storage.write_text(path, "".join(f"{line}\n" for line in lines))
        return [path]


def _groups(examples: Sequence[Any]) -> tuple[list[tuple[str, ...]], np.ndarray, np.ndarray]:
    """Returns the texts of each example, and for all N texts the role and the index of the example, int [N]."""
    groups = [example.texts for example in examples]
    roles = np.concatenate([np.arange(len(texts)) for texts in groups])
    if data.form_of(examples) == COLLECTION:
        roles = np.array([int(example.relevant is None) for example in examples])
    return groups, roles, np.repeat(np.arange(len(examples)), [len(group) for group in groups])


def _form(split: Split) -> str:
    return data.form_of(split.examples)


class _Collection:
    """The queries and documents of a split; pairs become a collection of their texts."""

    def __init__(self, split: Split, vectors: np.ndarray, similarity: str):
        examples, self._similarity = split.examples, similarity
        if _form(split) == COLLECTION:
            count = sum(example.relevant is not None for example in examples)
            self.queries, self.documents = examples[:count], examples[count:]
            place = {document.id: number for number, document in enumerate(self.documents)}
            gains = [query.relevant for query in self.queries]
            self.relevant = [{place[id]: gain for id, gain in of_query.items() if id in place} for of_query in gains]
            self.absent = [[gain for id, gain in of_query.items() if id not in place] for of_query in gains]
            # As in BEIR: in some collections, the queries are documents, which would find themselves.
            names = (query.id.removeprefix("query ") for query in self.queries)
            self._left_out = {number: place[name] for number, name in enumerate(names) if name in place}
            self._vectors = vectors[:count], vectors[count:]
            return
        firsts, texts = _firsts(split), {text: None for example in examples for text in example.texts[1:]}
        place = {text: number for number, text in enumerate(texts)}
        rows = {text: first + at for example, first in zip(examples, firsts, strict=True)
                for at, text in enumerate(example.texts) if at}  # fmt: skip
        relevant: dict[str, dict[int, float]] = {}
        for example in examples:
            relevant.setdefault(example.texts[0], {})[place[example.texts[1]]] = 1.0
        asked = {example.texts[0]: first for example, first in zip(examples, firsts, strict=True)}
        self.queries = [data.CollectionText(text, (text,)) for text in relevant]
        self.documents = [data.CollectionText(text, (text,)) for text in texts]
        self.relevant, self.absent = list(relevant.values()), [()] * len(relevant)
        # An anchor that is also a document would find itself.
        self._left_out = {
            number: place[text]
            for number, (text, gains) in enumerate(relevant.items())
            if text in place and place[text] not in gains
        }
        self._vectors = vectors[[asked[text] for text in relevant]], vectors[[rows[text] for text in texts]]

    def rankings(self, shown: int = _SHOWN) -> list[retrieval.Ranking]:
        relevant = [list(gains) for gains in self.relevant]
        return retrieval.search(*self._vectors, relevant, shown, self._left_out, self._similarity)


def _firsts(split: Split) -> np.ndarray:
    """Returns the index of the first row of each example, int64 [G]."""
    return np.flatnonzero(np.diff(split.example_ids, prepend=-1))


def _of_pairs(split: Split, vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Returns the similarity of the first two texts of each example, float32 [G]."""
    firsts = _firsts(split)
    return retrieval.pair_similarities(vectors[firsts], vectors[firsts + 1], similarity)


def _scores(split: Split, vectors: np.ndarray, similarity: str) -> dict[str, float]:
    if _form(split) == SCORED:
        import scipy.stats  # takes most of a second, and all scripts import all kinds

        values, labels = _of_pairs(split, vectors, similarity), [example.label for example in split.examples]
        of: dict[str, Callable] = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}
        if np.ptp(values) == 0 or np.ptp(labels) == 0:
            return dict.fromkeys(of, 0.0)
        return {name: float(function(values, labels).statistic) for name, function in of.items()}
    collection = _Collection(split, vectors, similarity)
    return retrieval.mean_scores(collection.rankings(), collection.relevant, collection.absent)


def _entries(split: Split, vectors: np.ndarray, similarity: str) -> list[dict[str, Any]]:
    if _form(split) == SCORED:
        rows = zip(split.examples, _of_pairs(split, vectors, similarity).tolist(), strict=True)
        return [
            {"index": number, "text_a": one.texts[0], "text_b": one.texts[1], "label": one.label, "prediction": value}
            for number, (one, value) in enumerate(rows)
        ]
    collection, entries = _Collection(split, vectors, similarity), []
    for number, ranking in enumerate(collection.rankings()):
        gains = collection.relevant[number]
        if not np.isfinite(ranking.ranks).any() or not len(ranking.best):
            continue  # the collection has no relevant document of the query
        best = max(zip(ranking.similarities.tolist(), gains, strict=True))
        wrong = [(value, place) for value, place in zip(ranking.best_similarities.tolist(), ranking.best, strict=True)
                 if place not in gains]  # fmt: skip
        right, first = (short(collection.documents[place].texts[0]) for place in (best[1], ranking.best[0]))
        entries.append({
            "index": number, "text_a": collection.queries[number].texts[0], "label": right, "prediction": first,
            "similarity": best[0], "wrong_similarity": wrong[0][0] if wrong else None, "rank": int(ranking.ranks.min()),
            "ndcg@10": retrieval.query_scores(ranking, list(gains.values()))["ndcg@10"],
        })  # fmt: skip
    return entries
