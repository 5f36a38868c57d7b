"""Settings of the data-generating scripts: every field is a flag."""

import dataclasses

from bert_tf.command_line import require, setting


@dataclasses.dataclass(frozen=True)
class GeneratorSettings:
    """Settings of `create_pretraining_data`; names and defaults of google-research/bert."""

    input_file: str = setting("text, one sentence a line, blank line between documents; commas and globs")
    output_file: str = setting("TFRecord file to write, or several with commas, filled in turn")
    vocab_file: str = setting("vocabulary, one piece a line")
    do_lower_case: bool = setting("lower-case and strip accents; must fit the vocabulary", True)
    do_whole_word_mask: bool = setting("mask whole words, not single pieces", False)
    max_seq_length: int = setting("pieces in a row, [CLS] and [SEP] counted", 128)
    max_predictions_per_seq: int = setting("at most so many masked positions a row", 20)
    random_seed: int = setting("seed of every random choice", 12345)
    dupe_factor: int = setting("how often the corpus is gone through, masked anew each time", 10)
    masked_lm_prob: float = setting("share of the pieces that is masked", 0.15)
    short_seq_prob: float = setting("how often a document is cut into rows shorter than the maximum", 0.1)

    def __post_init__(self):
        require(
            self.max_seq_length >= 5,
            f"--max_seq_length={self.max_seq_length}: must be at least 5, for [CLS] a [SEP] b [SEP]",
        )
        require(
            1 <= self.max_predictions_per_seq <= self.max_seq_length,
            f"--max_predictions_per_seq={self.max_predictions_per_seq}: must lie between 1 and "
            f"--max_seq_length={self.max_seq_length}",
        )
        require(self.dupe_factor >= 1, f"--dupe_factor={self.dupe_factor}: must be at least 1")
        require(self.random_seed >= 0, f"--random_seed={self.random_seed}: must be at least 0")
        require(0 < self.masked_lm_prob < 1, f"--masked_lm_prob={self.masked_lm_prob}: must lie between 0 and 1")
        require(0 <= self.short_seq_prob <= 1, f"--short_seq_prob={self.short_seq_prob}: must lie between 0 and 1")


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """Settings of `learn_vocab`."""

    input_file: str = setting("text to learn from, plain, .gz, .bz2 or .xz; commas and globs")
    output_file: str = setting("vocabulary file to write")
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
