"""Settings of `score_text`: every field is a flag."""

import dataclasses

from bert_tf.core.command_line import check_values, require, setting
from bert_tf.settings.jobs import JobSettings, format_of_output
from bert_tf.settings.training import IGNORE_TOKENIZER

LIKELIHOOD, FILL_MASK = "likelihood", "fill_mask"


@dataclasses.dataclass(frozen=True)
class ScoringSettings(JobSettings):
    """Settings of `score_text`."""

    flag_group = "Model"

    init_checkpoint: str = setting(
        "pre-trained checkpoint in any supported format: prefix, folder, or hf://owner/model"
    )
    input_file: str = setting("UTF-8 text files, one text per line: comma-separated paths and globs", group="Data")
    output_file: str = setting(
        "JSON Lines file to write, one object per text: one path, a comma-separated list, or PATH@N for N shards",
        group="Data",
    )
    mode: str = setting(
        "likelihood: write the log-likelihood of each text and token (the pseudo-log-likelihood with a bidirectional "
        "model); fill_mask: write predictions for each [MASK] in the texts",
        LIKELIHOOD, choices=(LIKELIHOOD, FILL_MASK), group="Output", first=True,
    )  # fmt: skip
    bert_config_file: str = setting("configuration of the model; empty: the file beside --init_checkpoint", "")
    vocab_file: str = setting("vocabulary, one token per line; empty: the file beside --init_checkpoint", "")
    do_lower_case: bool | None = setting(
        "lower-case and strip accents; default: from the files beside --init_checkpoint, else true", None
    )
    ignore_checkpoint_tokenizer: bool = setting(IGNORE_TOKENIZER, False)
    hide_rest_of_word: bool = setting(
        "with --mode=likelihood: together with a token, also mask the later tokens of the word, because the later "
        "tokens reveal the masked token",
        False,
        group="Output",
        first=True,
    )
    num_guesses: int = setting(
        "with --mode=fill_mask: number of tokens to write for each [MASK], most probable first",
        5,
        group="Output",
        first=True,
        above=0,
    )
    max_seq_length: int | None = setting(
        "maximum number of tokens in a text, [CLS] and [SEP] included; a longer text is an error; default: the model's "
        "number of positions",
        None,
        first=True,
        at_least=3,
    )
    batch_size: int = setting("number of masked rows per step", 64, group="Devices", above=0)

    def __post_init__(self):
        check_values(self)
        self.check_devices()
        format_of_output(self.output_file, None, ("jsonl",))
        require(
            not self.hide_rest_of_word or self.mode == LIKELIHOOD,
            f"--hide_rest_of_word is for --mode={LIKELIHOOD}; drop one of the flags",
        )
