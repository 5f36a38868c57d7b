"""Settings of the data generation scripts; every field is a flag."""

import dataclasses
import re

from bert_tf.core.command_line import Settings, require, setting
from bert_tf.jobs.settings import RunnerSettings

# Maximum value of --max_seq_length. Rows of this length take about 1 GB of memory in each worker.
_MAX_LENGTH = 16384


@dataclasses.dataclass(frozen=True)
class CorpusSettings(Settings):
    """How text is read from files."""

    flag_group = "Data"

    input_format: str | None = setting(
        "lines: one sentence per line, a blank line or the end of a file after each document; documents: one document "
        "per line; jsonl: one JSON object with a text per line; parquet: one document per row; wikipedia: a MediaWiki "
        "XML dump; default: jsonl, parquet or wikipedia for .jsonl, .json, .parquet or .xml, else lines", None,
        choices=("lines", "documents", "jsonl", "parquet", "wikipedia"), first=True,
    )  # fmt: skip
    text_field: str = setting("with the formats jsonl and parquet: name of the field that contains the text", "text")


@dataclasses.dataclass(frozen=True)
class GeneratorSettings(RunnerSettings, CorpusSettings):
    """Settings of `create_pretraining_data`, with names and defaults of google-research/bert and tf-models-official."""

    flag_group = "Data"

    input_file: str = setting(
        "text to read: comma-separated paths and globs; .gz, .bz2 and .xz are decompressed; the end of a file ends a "
        "document", "", first=True,
    )  # fmt: skip
    vocab_file: str = setting("vocabulary, one token per line", "", first=True)
    language: str = setting(
        "code of the language whose rules split text into sentences, such as de; default: the language of a Wikipedia "
        "dump, else en; about 30 languages have rules, others use the rules of a related language or of English; no "
        "effect on --input_format=lines", "",
    )  # fmt: skip
    do_lower_case: bool | None = setting(
        "lower-case text; default: as the files beside the vocabulary say, else true, or false if the vocabulary has "
        "tokens with capital letters", None, first=True,
    )  # fmt: skip
    strip_accents: bool | None = setting(
        "strip accents; default: as the same files say, else the same as --do_lower_case, but not if only the "
        "vocabulary decides and has accents", None,
    )  # fmt: skip
    do_whole_word_mask: bool = setting("mask whole words instead of single tokens", False, group="Masking", first=True)
    max_ngram_size: int | None = setting(
        "mask n-grams of up to this many words", None, group="Masking", at_least=0, only_with="do_whole_word_mask"
    )
    max_seq_length: int = setting(
        "sequence length in tokens, including [CLS] and [SEP]", 128, group="Examples", first=True, at_least=5,
        at_most=_MAX_LENGTH,
    )  # fmt: skip
    max_predictions_per_seq: int = setting(
        "maximum number of masked positions per sequence", 20, group="Masking", first=True, at_least=1
    )
    random_seed: int = setting("seed of all random choices", 12345, group="Examples", first=True, at_least=0)
    dupe_factor: int | None = setting(
        "number of passes over the corpus, each with different masks; default 10, or 1 if no masks are written "
        "(--masking=dynamic, --objective=lm)", None, group="Examples", first=True, at_least=1,
    )  # fmt: skip
    masked_lm_prob: float = setting(
        "fraction of the tokens that the model predicts", 0.15, group="Masking", first=True, above=0, below=1
    )
    short_seq_prob: float = setting(
        "probability that a document is split into rows shorter than the maximum; no effect on --objective=lm", 0.1,
        group="Examples", at_least=0, at_most=1,
    )  # fmt: skip
    join_documents: bool = setting(
        "fill the last row of a document with the beginning of the next document, after a [SEP], instead of padding",
        False, group="Examples", only_with="objective=lm",
    )  # fmt: skip
    mask_fraction: float = setting("fraction of the predicted tokens that [MASK] replaces", 0.8, group="Masking")
    random_fraction: float = setting(
        "fraction of the predicted tokens that a random token replaces", 0.1, group="Masking"
    )
    keep_fraction: float = setting("fraction of the predicted tokens that stay unchanged", 0.1, group="Masking")
    objective: str = setting(
        "mlm_nsp: masked LM and next sentence; mlm: masked LM, one segment per row; "
        "lm: language model of one direction, rows of contiguous text without masks", "mlm_nsp",
        choices=("mlm_nsp", "mlm", "lm"), group="Examples",
    )  # fmt: skip
    masking: str = setting(
        "static: write masked rows; dynamic: write unmasked rows, which training masks differently in each epoch",
        "static", choices=("static", "dynamic"), group="Masking", first=True,
    )  # fmt: skip
    gzip_compress: bool = setting("compress the records with gzip", False)
    verify: bool = setting("write nothing; check every byte of the set at --output_file against its manifest", False)

    def __post_init__(self):
        super().__post_init__()
        if self.verify:
            return
        for name, what in (
            ("input_file", "text to read"),
            ("vocab_file", "vocabulary, from learn_vocab or a published one"),
        ):
            require(bool(getattr(self, name)), f"--{name} is missing; name the {what}")
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", 10 if self.masks else 1)
        require(
            not self.language or re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)*", self.language) is not None,
            f"--language={self.language}: is not a language code in lower case; give a code such as de or pt-br",
        )
        self._check_masking()

    @property
    def masks(self) -> bool:
        """Whether the records contain masked rows."""
        return self.masking == "static" and self.objective != "lm"

    def _check_masking(self) -> None:
        require(
            self.objective == "lm" or self.max_predictions_per_seq <= self.max_seq_length,
            f"--max_predictions_per_seq={self.max_predictions_per_seq}: must be at most "
            f"--max_seq_length={self.max_seq_length}",
        )
        fractions = (self.mask_fraction, self.random_fraction, self.keep_fraction)
        require(
            min(fractions) >= 0 and abs(sum(fractions) - 1) < 1e-6,
            "--mask_fraction={}, --random_fraction={} and --keep_fraction={}: none may be negative, and they must "
            "add up to 1".format(*fractions),
        )


@dataclasses.dataclass(frozen=True)
class VocabularySettings(CorpusSettings):
    """Settings of `learn_vocab`."""

    flag_group = "Data"

    input_file: str = setting("text to learn from: comma-separated paths and globs; .gz, .bz2 and .xz are decompressed")
    output_file: str = setting("vocabulary file to write")
    vocab_size: int = setting(
        "number of tokens, including special tokens and [unusedN]; fewer if the text provides fewer tokens", 30522,
        group="Vocabulary",
    )  # fmt: skip
    do_lower_case: bool | None = setting(
        "lower-case text; default: true, or with --extend_vocab the casing of that vocabulary", None, group="Vocabulary"
    )
    strip_accents: bool | None = setting(
        "strip accents; default: the same as --do_lower_case", None, group="Vocabulary"
    )
    num_unused: int = setting(
        "number of reserved [unusedN] slots after the five special tokens", 0, group="Vocabulary", at_least=0
    )
    max_words: int = setting(
        "maximum number of different words in memory, about 150 bytes each; if there are more, rare words are dropped",
        4_000_000, group="Vocabulary", at_least=1000,
    )  # fmt: skip
    extend_vocab: str = setting(
        "vocabulary to extend by the most useful tokens of the text; the ids of existing tokens do not change", "",
        group="Extending a vocabulary", not_with=("num_unused",),
    )  # fmt: skip
    extend_slots: str = setting(
        "where to add tokens; end: at the end, up to --vocab_size; unused: in the file's [unusedN] slots", "end",
        choices=("end", "unused"), group="Extending a vocabulary", only_with="extend_vocab",
    )  # fmt: skip
    overwrite: bool = setting("replace an existing --output_file", False)

    def __post_init__(self):
        super().__post_init__()
        require(
            self.vocab_size >= 10 + self.num_unused,
            f"--vocab_size={self.vocab_size}: must be at least 10 more than --num_unused={self.num_unused}",
        )
