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

    init_checkpoint: str = setting("pre-trained checkpoint of any format: prefix, folder, or hf://owner/model")
    input_file: str = setting("UTF-8 text to read, one text a line: comma-separated paths and globs", group="Data")
    output_file: str = setting(
        "JSON Lines to write, one object a text: one path, a comma-separated list, or PATH@N for N shards",
        group="Data",
    )
    mode: str = setting(
        "likelihood: pseudo-log-likelihood of each text and token; fill_mask: guesses for each [MASK] in the texts",
        LIKELIHOOD, choices=(LIKELIHOOD, FILL_MASK), group="Output", first=True,
    )  # fmt: skip
    bert_config_file: str = setting("shape of the model; empty: the file beside --init_checkpoint", "")
    vocab_file: str = setting("vocabulary, one token a line; empty: the file beside --init_checkpoint", "")
    do_lower_case: bool | None = setting(
        "lower-case and strip accents; default: as the files beside --init_checkpoint say, else true", None
    )
    ignore_checkpoint_tokenizer: bool = setting(IGNORE_TOKENIZER, False)
    hide_rest_of_word: bool = setting(
        "likelihood: mask with a token also the later tokens of its word, which give it away",
        False,
        group="Output",
        first=True,
    )
    num_guesses: int = setting(
        "fill_mask: tokens to write for each [MASK], the most probable first", 5, group="Output", first=True, above=0
    )
    max_seq_length: int | None = setting(
        "most tokens of a text, [CLS] and [SEP] included; a longer one is refused; default: the model's positions",
        None,
        first=True,
        at_least=3,
    )
    batch_size: int = setting("masked rows per step", 64, group="Devices", above=0)

    def __post_init__(self):
        check_values(self)
        self.check_devices()
        format_of_output(self.output_file, None, ("jsonl",))
        require(
            not self.hide_rest_of_word or self.mode == LIKELIHOOD,
            f"--hide_rest_of_word is for --mode={LIKELIHOOD}; drop one of them",
        )
