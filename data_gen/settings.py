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

    input_file: str = setting("text to learn from; commas and globs")
    output_file: str = setting("vocabulary file to write")
    vocab_size: int = setting("largest number of pieces, special tokens counted", 30522)
    do_lower_case: bool = setting("lower-case and strip accents, as the tokenizer will", True)

    def __post_init__(self):
        require(self.vocab_size >= 10, f"--vocab_size={self.vocab_size}: must be at least 10")
