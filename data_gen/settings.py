"""Settings of the data-generating scripts: every field is a flag."""

import dataclasses
import os

from bert_tf.command_line import require, setting


def _input_format():
    """The same flag of every script that reads text; a field belongs to one class, so it is made for each."""
    return setting(
        "lines: a sentence a line, a blank line or the end of a file after each document; jsonl: a JSON object with a "
        "text a line; wikipedia: a MediaWiki XML dump",
        "lines",
        choices=("lines", "jsonl", "wikipedia"),
    )


def _text_field():
    return setting("--input_format=jsonl: the field that holds the text", "text")


@dataclasses.dataclass(frozen=True)
class GeneratorSettings:
    """Settings of `create_pretraining_data`; names and defaults of google-research/bert and tf-models-official."""

    input_file: str = setting(
        "text to read; commas and globs; .gz, .bz2 and .xz are unpacked; the end of a file ends a document", ""
    )
    output_file: str = setting("TFRecord file to write, or several with commas, or PATH@N for N shards")
    vocab_file: str = setting("vocabulary, one piece a line", "")
    input_format: str = _input_format()
    text_field: str = _text_field()
    do_lower_case: bool = setting("lower-case and strip accents; must fit the vocabulary", True)
    do_whole_word_mask: bool = setting("mask whole words, not single pieces", False)
    max_ngram_size: int | None = setting("mask up to so many words in a row; needs --do_whole_word_mask", None)
    max_seq_length: int = setting("pieces in a row, [CLS] and [SEP] counted", 128)
    max_predictions_per_seq: int = setting("at most so many masked positions a row", 20)
    random_seed: int = setting("seed of every random choice", 12345)
    dupe_factor: int | None = setting(
        "how often the corpus is gone through, masked anew each time; default 10, or 1 where nothing is masked yet "
        "(--masking=dynamic, --objective=ltr)",
        None,
    )
    masked_lm_prob: float = setting("share of the pieces that is masked", 0.15)
    short_seq_prob: float = setting("how often a document is cut into rows shorter than the maximum", 0.1)
    mask_fraction: float = setting("share of the chosen pieces that becomes [MASK]", 0.8)
    random_fraction: float = setting("share of the chosen pieces that becomes a random piece", 0.1)
    keep_fraction: float = setting("share of the chosen pieces that stays as it is", 0.1)
    objective: str = setting(
        "mlm_nsp: masked words and next sentence; mlm: masked words, one segment a row; "
        "ltr: left to right, nothing masked",
        "mlm_nsp",
        choices=("mlm_nsp", "mlm", "ltr"),
    )
    masking: str = setting(
        "static: mask when writing; dynamic: write unmasked, and mask anew in each epoch of training",
        "static",
        choices=("static", "dynamic"),
    )
    gzip_compress: bool = setting("compress the records with gzip", False)
    num_workers: int | None = setting(
        "processes to work with; default: one a core; --runner=spark: on a standalone cluster at most so many", None
    )
    runner: str = setting("local: this machine's cores; spark: a Spark cluster", "local", choices=("local", "spark"))
    spark_master: str = setting("--runner=spark: URL of the master; empty: what spark-submit was given", "")
    verify: bool = setting("write nothing; check every byte of --output_file's set against its manifest", False)

    def __post_init__(self):
        if self.verify:
            return
        for name, what in (
            ("input_file", "text to read"),
            ("vocab_file", "vocabulary, learn_vocab's or a published one"),
        ):
            require(bool(getattr(self, name)), f"--{name} is missing; name the {what}")
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", 10 if self.masks else 1)
        self._check_rows()
        self._check_masking()
        require(
            self.num_workers is None or self.num_workers >= 1, f"--num_workers={self.num_workers}: must be at least 1"
        )
        require(
            not self.spark_master or self.runner == "spark", f"--spark_master={self.spark_master} needs --runner=spark"
        )

    @property
    def masks(self) -> bool:
        """Whether the records hold masked rows."""
        return self.masking == "static" and self.objective != "ltr"

    def with_absolute_paths(self) -> "GeneratorSettings":
        """The same, for workers in other working directories."""
        paths = {name: _absolute(getattr(self, name)) for name in ("input_file", "output_file", "vocab_file")}
        return dataclasses.replace(self, **paths)

    def _check_rows(self) -> None:
        require(
            self.max_seq_length >= 5,
            f"--max_seq_length={self.max_seq_length}: must be at least 5, for [CLS] a [SEP] b [SEP]",
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
            f"--max_ngram_size={size} needs --do_whole_word_mask: n-grams are made of words",
        )
        require(
            self.masking == "static" or self.objective != "ltr",
            "--masking=dynamic contradicts --objective=ltr, where nothing is masked; drop one of them",
        )
        fractions = (self.mask_fraction, self.random_fraction, self.keep_fraction)
        require(
            min(fractions) >= 0 and abs(sum(fractions) - 1) < 1e-6,
            "--mask_fraction={}, --random_fraction={} and --keep_fraction={}: none may be negative, and they must "
            "add up to 1".format(*fractions),
        )


def _absolute(paths: str) -> str:
    parts = filter(None, (part.strip() for part in paths.split(",")))
    return ",".join(part if "://" in part else os.path.abspath(part) for part in parts)


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """Settings of `learn_vocab`."""

    input_file: str = setting("text to learn from, plain, .gz, .bz2 or .xz; commas and globs")
    output_file: str = setting("vocabulary file to write")
    input_format: str = _input_format()
    text_field: str = _text_field()
    vocab_size: int = setting(
        "number of pieces, special tokens and [unusedN] counted; fewer if the text has no more", 30522
    )
    do_lower_case: bool = setting("lower-case and strip accents, as the tokenizer will", True)
    num_unused: int = setting("so many [unusedN] to fill later, right after the five special tokens", 0)
    max_words: int = setting(
        "at most so many different words in memory, some 150 bytes each; beyond it the rarest are dropped", 4_000_000
    )
    extend_vocab: str = setting("vocabulary to keep, ids unchanged, and to add the text's most useful pieces to", "")
    extend_slots: str = setting(
        "where --extend_vocab puts them: end, up to --vocab_size in all; unused, into the file's [unusedN]",
        "end",
        choices=("end", "unused"),
    )
    num_added: int = setting("with --extend_slots=unused: how many slots to fill; 0 fills all", 0)

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
                f"--num_unused={self.num_unused}: the vocabulary of --extend_vocab keeps its own; leave one out",
            )
            require(
                not self.num_added or self.extend_slots == "unused",
                f"--num_added={self.num_added}: goes with --extend_slots=unused; "
                "at the end, --vocab_size says how many pieces there are in all",
            )
        else:
            require(
                self.extend_slots == "end" and not self.num_added,
                "--extend_slots and --num_added go with --extend_vocab; name the vocabulary to extend",
            )
