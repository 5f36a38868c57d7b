"""Settings of `run_embeddings` and `mine_negatives`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import Settings, require, setting
from bert_tf.settings.finetuning import FolderSettings
from bert_tf.settings.model import pooling

_DATA = (
    "columns anchor and positive (and negative_1, ...); or sentence1, sentence2 and score; or text (each text is its "
    "own positive, with another dropout mask)"
)


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings(FolderSettings):
    """Settings of `run_embeddings`."""

    flag_group = "Data"
    script: ClassVar[str] = "run_embeddings"
    reported: ClassVar[tuple[str, ...]] = ("data_dir", "loss", "scale", "matryoshka_dims")

    data_dir: str = setting(
        f"folder with the files train, dev and test (.tsv, .csv, .jsonl or .parquet): {_DATA}", "", first=True,
        per_worker=True,
    )  # fmt: skip
    eval_data_path: str = setting(
        "dev data, if it is not in --data_dir: pairs, scored pairs, or a folder in BEIR's layout (corpus.jsonl, "
        "queries.jsonl, qrels/dev.tsv)", "", first=True, per_worker=True,
    )  # fmt: skip
    test_data_path: str = setting(
        "test data, if it is not in --data_dir; see --eval_data_path", "", first=True, per_worker=True
    )
    pooling: str | None = pooling(
        "Model",
        "from the run in --output_dir, else from sentence-transformers' files beside --init_checkpoint, else mean",
    )
    normalize: bool | None = setting(
        "scale vectors to length 1; default: as --pooling, else false", None, group="Model"
    )
    query_prefix: str | None = setting(
        "text before each anchor or query, and before both texts of scored pairs and single texts; default: from the "
        "run in --output_dir, else the prompt query of --init_checkpoint, else none", None, group="Model",
    )  # fmt: skip
    document_prefix: str | None = setting(
        "text before each positive, negative or document; default: as --query_prefix, with the prompt document", None,
        group="Model",
    )  # fmt: skip
    matryoshka_dims: str | None = setting(
        "train vectors whose first numbers are vectors too; sizes, comma-separated and falling, such as 384,256,128; "
        "default: from the run in --output_dir, else only the whole vector", None, group="Model",
    )  # fmt: skip
    loss: str = setting(
        "infonce: choose the positive among all texts of the batch; cosent: order the cosines of scored pairs; empty: "
        "the loss for the training data's columns", "", choices=("", "infonce", "cosent"), group="Training",
    )  # fmt: skip
    scale: float = setting("factor of the cosines in the loss", 20.0, group="Training", above=0)
    both_directions: bool = setting(
        "with infonce: also choose the anchor of each positive among all anchors of the batch", False, group="Training"
    )

    def __post_init__(self):
        super().__post_init__()
        require(not self.bilstm_head, "--bilstm_head: run_embeddings pools the encoder's outputs; drop the flag")
        require(self.lm_coefficient == 0, "--lm_coefficient: run_embeddings trains no language model; drop the flag")
        require(
            self.train_batch_size > 1 or not self.do_train,
            "--train_batch_size=1: the loss compares the rows of a batch; give a larger batch",
        )

    @property
    def training_facts(self) -> dict:
        """The values of the flags that affect the weights."""
        return super().training_facts | {name: getattr(self, name) for name in ("loss", "scale", "both_directions")}


@dataclasses.dataclass(frozen=True)
class MiningSettings(Settings):
    """Settings of `mine_negatives`."""

    flag_group = "Data"

    init_checkpoint: str = setting("model that computes the vectors; see run_embeddings", group="Model")
    input_file: str = setting("pairs: .tsv, .csv or .jsonl with the columns anchor and positive")
    output_file: str = setting("file to write: JSON Lines with anchor, positive, negative_1, ...")
    corpus_file: str = setting(
        "texts among which negatives are searched: a table (.jsonl, .parquet, .csv, .tsv) with the column text, BEIR's "
        "corpus.jsonl, or one text per line; empty: the positives of all pairs", "", first=True,
    )  # fmt: skip
    num_negatives: int = setting("number of negatives per pair", 1, first=True, above=0)
    min_rank: int = setting("rank of the most similar text that may be a negative, from 1", 1, first=True, above=0)
    max_rank: int = setting("rank of the least similar text that may be a negative", 50, first=True, above=0)
    margin: float = setting(
        "a negative's similarity with the anchor is at least this much below the positive's", 0.0, first=True
    )
    sampling: str = setting(
        "random: draw the negatives from all ranks; top: take the most similar", "random", choices=("random", "top")
    )
    random_seed: int = setting("seed of the draws", 0, at_least=0)
    max_seq_length: int | None = setting("maximum number of tokens in a row; default: the model's", None, at_least=3)

    def __post_init__(self):
        super().__post_init__()
        require(
            self.max_rank - self.min_rank + 1 >= self.num_negatives,
            f"--max_rank={self.max_rank}: the ranks from {self.min_rank} hold fewer than --num_negatives="
            f"{self.num_negatives} texts; give a larger rank",
        )
