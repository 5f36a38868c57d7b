"""Settings of the data generation scripts; every field is a flag."""

import dataclasses

from bert_tf.core.command_line import require, setting
from bert_tf.core.flag_parsing import absolute_paths

_MAX_WORKERS = 4096
# Rows of this length take about 1 GB of memory in each worker.
_MAX_LENGTH = 16384


def _input_format():
    """Makes the flag that all scripts which read text share; each class needs a field of its own."""
    return setting(
        "lines: one sentence per line, a blank line or the end of a file after each document; documents: one document "
        "per line; jsonl: one JSON object with a text per line; wikipedia: a MediaWiki XML dump",
        "lines",
        choices=("lines", "documents", "jsonl", "wikipedia"),
        first=True,
    )


def _text_field():
    return setting("--input_format=jsonl: the field that contains the text", "text")


@dataclasses.dataclass(frozen=True)
class GeneratorSettings:
    """Settings of `create_pretraining_data`; names and defaults of google-research/bert and tf-models-official."""

    flag_group = "Data"

    input_file: str = setting(
        "text to read: comma-separated paths and globs; .gz, .bz2 and .xz are decompressed; the end of a file ends a "
        "document",
        "",
        first=True,
    )
    output_file: str = setting("TFRecord file to write: one path, a comma-separated list, or PATH@N for N shards")
    vocab_file: str = setting("vocabulary, one token per line", "", first=True)
    input_format: str = _input_format()
    text_field: str = _text_field()
    do_lower_case: bool = setting("lower-case and strip accents; must match the vocabulary", True, first=True)
    do_whole_word_mask: bool = setting("mask whole words instead of single tokens", False, group="Masking", first=True)
    max_ngram_size: int | None = setting(
        "mask n-grams of up to this many words; needs --do_whole_word_mask", None, group="Masking"
    )
    max_seq_length: int = setting(
        "sequence length in tokens, including [CLS] and [SEP]", 128, group="Examples", first=True
    )
    max_predictions_per_seq: int = setting(
        "maximum number of masked positions per sequence", 20, group="Masking", first=True
    )
    random_seed: int = setting("seed of all random choices", 12345, group="Examples", first=True)
    dupe_factor: int | None = setting(
        "number of passes over the corpus, each with other masks; default 10, or 1 if no masks are written "
        "(--masking=dynamic, --objective=ltr)",
        None,
        group="Examples",
        first=True,
    )
    masked_lm_prob: float = setting("fraction of the tokens to predict", 0.15, group="Masking", first=True)
    short_seq_prob: float = setting(
        "probability that a document is split into rows shorter than the maximum", 0.1, group="Examples"
    )
    mask_fraction: float = setting("fraction of the predicted tokens that [MASK] replaces", 0.8, group="Masking")
    random_fraction: float = setting(
        "fraction of the predicted tokens that a random token replaces", 0.1, group="Masking"
    )
    keep_fraction: float = setting("fraction of the predicted tokens that stay unchanged", 0.1, group="Masking")
    objective: str = setting(
        "mlm_nsp: masked LM and next sentence; mlm: masked LM, one segment per row; "
        "ltr: left-to-right language model, no masks",
        "mlm_nsp",
        choices=("mlm_nsp", "mlm", "ltr"),
        group="Examples",
    )
    masking: str = setting(
        "static: write masked rows; dynamic: write unmasked rows, which training masks differently in each epoch",
        "static",
        choices=("static", "dynamic"),
        group="Masking",
        first=True,
    )
    gzip_compress: bool = setting("compress the records with gzip", False)
    num_workers: int | None = setting(
        "number of worker processes; default: one per core; --runner=spark: maximum on a standalone cluster",
        None,
        group="Devices",
        first=True,
    )
    runner: str = setting(
        "local: this machine's cores; spark: a Spark cluster", "local", choices=("local", "spark"), group="Devices"
    )
    spark_master: str = setting(
        "--runner=spark: URL of the master; empty: the master given to spark-submit", "", group="Devices"
    )
    verify: bool = setting("write nothing; check every byte of the set at --output_file against its manifest", False)

    def __post_init__(self):
        if self.verify:
            return
        for name, what in (
            ("input_file", "text to read"),
            ("vocab_file", "vocabulary, from learn_vocab or a published one"),
        ):
            require(bool(getattr(self, name)), f"--{name} is missing; name the {what}")
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", 10 if self.masks else 1)
        self._check_rows()
        self._check_masking()
        require(
            self.num_workers is None or 1 <= self.num_workers <= _MAX_WORKERS,
            f"--num_workers={self.num_workers}: must lie between 1 and {_MAX_WORKERS}",
        )
        require(
            not self.spark_master or self.runner == "spark", f"--spark_master={self.spark_master} needs --runner=spark"
        )

    @property
    def masks(self) -> bool:
        """Whether the records contain masked rows."""
        return self.masking == "static" and self.objective != "ltr"

    def with_absolute_paths(self) -> "GeneratorSettings":
        """Returns a copy with absolute paths, for workers in other working directories."""
        paths = {name: absolute_paths(getattr(self, name)) for name in ("input_file", "output_file", "vocab_file")}
        return dataclasses.replace(self, **paths)

    def _check_rows(self) -> None:
        require(
            5 <= self.max_seq_length <= _MAX_LENGTH,
            f"--max_seq_length={self.max_seq_length}: must be at least 5, for [CLS] a [SEP] b [SEP], and at most "
            f"{_MAX_LENGTH}, because a worker holds 2,048 such rows in memory",
        )
        require(self.dupe_factor >= 1, f"--dupe_factor={self.dupe_factor}: must be at least 1")
        require(self.random_seed >= 0, f"--random_seed={self.random_seed}: must be at least 0")
        require(0 <= self.short_seq_prob <= 1, f"--short_seq_prob={self.short_seq_prob}: must lie between 0 and 1")

    def _check_masking(self) -> None:
        require(
            1 <= self.max_predictions_per_seq <= self.max_seq_length,
            f"--max_predictions_per_seq={self.max_predictions_per_seq}: must lie between 1 and "
            f"--max_seq_length={self.max_seq_length}",
        )
        require(0 < self.masked_lm_prob < 1, f"--masked_lm_prob={self.masked_lm_prob}: must lie between 0 and 1")
        size = self.max_ngram_size
        require(size is None or size >= 0, f"--max_ngram_size={size}: must be at least 0")
        require(
            not size or self.do_whole_word_mask,
            f"--max_ngram_size={size} needs --do_whole_word_mask, because n-grams consist of words",
        )
        require(
            self.masking == "static" or self.objective != "ltr",
            "--masking=dynamic contradicts --objective=ltr, which masks nothing; omit one of them",
        )
        fractions = (self.mask_fraction, self.random_fraction, self.keep_fraction)
        require(
            min(fractions) >= 0 and abs(sum(fractions) - 1) < 1e-6,
            "--mask_fraction={}, --random_fraction={} and --keep_fraction={}: none may be negative, and they must "
            "add up to 1".format(*fractions),
        )


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """Settings of `learn_vocab`."""

    flag_group = "Data"

    input_file: str = setting("text to learn from: comma-separated paths and globs; .gz, .bz2 and .xz are decompressed")
    output_file: str = setting("vocabulary file to write")
    input_format: str = _input_format()
    text_field: str = _text_field()
    vocab_size: int = setting(
        "number of tokens, including special tokens and [unusedN]; fewer if the text does not contain that many",
        30522,
        group="Vocabulary",
    )
    do_lower_case: bool = setting(
        "lower-case and strip accents; must match the tokenizer's setting", True, group="Vocabulary"
    )
    num_unused: int = setting("number of reserved [unusedN] slots after the five special tokens", 0, group="Vocabulary")
    max_words: int = setting(
        "maximum number of different words in memory, about 150 bytes each; the rarest above it are dropped",
        4_000_000,
        group="Vocabulary",
    )
    extend_vocab: str = setting(
        "vocabulary to extend by the most useful tokens of the text; its ids do not change",
        "",
        group="Extending a vocabulary",
    )
    extend_slots: str = setting(
        "where --extend_vocab adds tokens: end: at the end, up to --vocab_size; unused: in the file's [unusedN] slots",
        "end",
        choices=("end", "unused"),
        group="Extending a vocabulary",
    )
    num_added: int = setting(
        "--extend_slots=unused: number of slots to fill; 0 fills all", 0, group="Extending a vocabulary"
    )
    overwrite: bool = setting("replace an existing --output_file", False)

    def __post_init__(self):
        require(self.num_unused >= 0, f"--num_unused={self.num_unused}: must be at least 0")
        require(
            self.vocab_size >= 10 + self.num_unused,
            f"--vocab_size={self.vocab_size}: must be at least 10 more than --num_unused={self.num_unused}",
        )
        require(self.max_words >= 1000, f"--max_words={self.max_words}: must be at least 1000")
        require(self.num_added >= 0, f"--num_added={self.num_added}: must be at least 0")
        if self.extend_vocab:
            require(
                not self.num_unused,
                f"--num_unused={self.num_unused}: the vocabulary of --extend_vocab keeps its own slots; omit one flag",
            )
            require(
                not self.num_added or self.extend_slots == "unused",
                f"--num_added={self.num_added}: goes with --extend_slots=unused; "
                "with --extend_slots=end, give the total number of tokens as --vocab_size",
            )
        else:
            require(
                self.extend_slots == "end" and not self.num_added,
                "--extend_slots and --num_added go with --extend_vocab; name the vocabulary to extend",
            )
