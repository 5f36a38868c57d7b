"""Settings of `score_text`: every field is a flag."""

import dataclasses
import json

from bert_tf.core.command_line import require, setting
from bert_tf.settings.jobs import JobSettings, format_of_output
from bert_tf.settings.model import Checkpoint

LIKELIHOOD, FILL_MASK, CONTINUATION, CHOOSE = "likelihood", "fill_mask", "continuation", "choose"


@dataclasses.dataclass(frozen=True)
class ScoringSettings(JobSettings, Checkpoint):
    """Settings of `score_text`."""

    flag_group = "Model"

    input_file: str = setting(
        "UTF-8 text files, one text per line: comma-separated paths and globs; with --mode=choose: a file or folder in "
        "a format of run_swag, or a table of texts and labels", group="Data",
    )  # fmt: skip
    mode: str = setting(
        "likelihood: write the log-likelihood of each text and token (the pseudo-log-likelihood with a bidirectional "
        "model); fill_mask: write predictions for each [MASK] in the texts; continuation: write the log-likelihood of "
        "the text after the tab of each line, given the text before the tab; choose: choose among the answers of each "
        "example without training; continuation and choose need a left-to-right model",
        LIKELIHOOD, choices=(LIKELIHOOD, FILL_MASK, CONTINUATION, CHOOSE), group="Output", first=True,
    )  # fmt: skip
    label_texts: str = setting(
        "if --input_file is a table of texts and labels: a JSON object that maps each label to the text that continues "
        "the texts of this label", "", group="Data", only_with="mode=choose",
    )  # fmt: skip
    text_column: str = setting(
        "column of the text, by name or by number from 0", "text", group="Data", only_with="label_texts"
    )
    label_column: str = setting("column of the label", "label", group="Data", only_with="label_texts")
    hide_rest_of_word: bool = setting(
        "together with a token, also mask the later tokens of the word, because the later tokens reveal the masked "
        "token", False, group="Output", first=True, only_with="mode=likelihood",
    )  # fmt: skip
    num_guesses: int = setting(
        "number of tokens to write for each [MASK], most probable first", 5, group="Output", first=True, above=0,
        only_with="mode=fill_mask",
    )  # fmt: skip
    max_seq_length: int | None = setting(
        "maximum number of tokens in a text, [CLS] and [SEP] included; a longer text is an error; default: the model's "
        "number of positions", None, first=True, at_least=3,
    )  # fmt: skip
    batch_size: int = setting("number of masked rows per step", 64, group="Devices", above=0)

    def __post_init__(self):
        super().__post_init__()
        format_of_output(self.output_file, None, ("jsonl",))
        require(
            self.mode != CHOOSE or "@" not in self.output_file,
            f"--output_file={self.output_file}: --mode={CHOOSE} writes one file; give its name without @N",
        )
        _ = self.texts_of_labels
        require(
            self.mode == CHOOSE or not self.input_file.endswith(".jsonl"),
            f"--input_file={self.input_file}: each line is one text, so the JSON would be scored; give lines of text",
        )

    @property
    def texts_of_labels(self) -> dict[str, str]:
        """The texts of `label_texts` by label; {} if the flag is not given."""
        try:
            texts = json.loads(self.label_texts or "{}")
        except ValueError:
            texts = None
        is_right = isinstance(texts, dict) and all(isinstance(text, str) and text for text in texts.values())
        require(
            is_right and (len(texts) > 1 or not self.label_texts),
            f"--label_texts={self.label_texts}: is not a JSON object of two or more texts; write, for example, "
            '\'{"positive": "It was great.", "negative": "It was bad."}\'',
        )
        return texts
