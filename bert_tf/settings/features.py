"""Settings of `extract_features`: every field is a flag.

Paper: section 5.3.
"""

import dataclasses

from bert_tf.core.command_line import check_together, require, setting
from bert_tf.settings.jobs import JobSettings, format_of_output
from bert_tf.settings.model import Checkpoint, pooling

# Defaults of --layers. As in google-research/bert, token vectors come from the top four layers (compare Table 7).
# Pooled vectors come from the top layer.
_TOKEN_LAYERS, _SENTENCE_LAYERS = "-1,-2,-3,-4", "-1"
_FORMATS = ("jsonl", "parquet")
_POOLED = "sentence_vectors or pooling"


@dataclasses.dataclass(frozen=True)
class VectorSettings(Checkpoint):
    """The settings that determine the vectors of a text."""

    flag_group = "Model"

    layers: str | None = setting(
        "layers to write, comma-separated: -1 is the top layer, 1 the lowest, 0 the embeddings; default: -1,-2,-3,-4, "
        "or -1 for pooled vectors", None, group="Vectors", first=True,
    )  # fmt: skip
    max_seq_length: int | None = setting(
        "maximum number of tokens in a row, [CLS] and [SEP] included; longer texts are truncated; default: 128, or "
        "with --sentence_vectors the value in sentence_bert_config.json or tokenizer_config.json beside the checkpoint",
        None, first=True, at_least=3,
    )  # fmt: skip
    batch_size: int = setting(
        "number of rows of --max_seq_length tokens in a batch on a GPU; batches on a CPU are smaller", 32,
        group="Devices", above=0,
    )  # fmt: skip
    sentence_vectors: bool = setting(
        "write one vector per text instead of one vector per token; without --pooling, sentence-transformers' files "
        "1_Pooling/config.json and modules.json beside the checkpoint determine the pooling", False, group="Vectors",
        first=True,
    )  # fmt: skip
    pooling: str | None = pooling("Vectors", "see --sentence_vectors; without both flags, each token has a vector")
    normalize: bool | None = setting(
        "scale the vectors to length 1; default: false, or with --sentence_vectors as in modules.json", None,
        group="Vectors", only_with=_POOLED,
    )  # fmt: skip
    dimensions: int | None = setting(
        "keep only the first numbers of the vectors, for models that were trained with --matryoshka_dims; "
        "normalization comes after this", None, group="Vectors", above=0, only_with=_POOLED,
    )  # fmt: skip
    prompt_name: str = setting(
        "name of the text before each text, such as query or document, in config_sentence_transformers.json beside the "
        "checkpoint; empty: the default prompt of this file, or none", "", group="Vectors",
        only_with=_POOLED,
    )  # fmt: skip
    prompt: str | None = setting(
        "text before each text; default: see --prompt_name", None, group="Vectors", only_with=_POOLED
    )

    def __post_init__(self):
        super().__post_init__()
        _ = self.layer_numbers

    @property
    def is_pooled(self) -> bool:
        """Whether each text gets one vector, instead of one for each token."""
        return self.sentence_vectors or self.pooling is not None

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The numbers in `layers`, in the same order."""
        text = self.layers
        if text is None:
            text = _SENTENCE_LAYERS if self.is_pooled else _TOKEN_LAYERS
        numbers = []
        for word in text.split(","):
            try:
                numbers.append(int(word))
            except ValueError:
                require(False, f"--layers={text}: {word.strip()!r} is not a whole number; give numbers such as -1,-2")
        require(len(set(numbers)) == len(numbers), f"--layers={text}: a layer is listed twice; remove one")
        return tuple(numbers)


@dataclasses.dataclass(frozen=True)
class FeaturesSettings(JobSettings, VectorSettings):
    """Settings of `extract_features`, with the names and defaults of google-research/bert."""

    flag_group = "Data"

    input_file: str = setting(
        "UTF-8 text files: comma-separated paths and globs; each line is one text, or two texts separated by ' ||| '"
    )
    input_format: str | None = setting(
        "lines: one text per line; jsonl: one JSON object per line; default: jsonl for .jsonl or .json, else lines",
        None, choices=("lines", "jsonl"), first=True,
    )  # fmt: skip
    text_field: str = setting(
        "name of the field that contains the text; with commas, the texts of several fields are joined by a space, "
        "such as title,text of a collection in BEIR's layout", "text", only_with="input_format=jsonl",
    )  # fmt: skip
    text_b_field: str = setting(
        "name of the field that contains the second text; empty if each line has one text", "",
        only_with="input_format=jsonl",
    )  # fmt: skip
    id_field: str = setting(
        "name of the field whose value the output repeats as id; empty: no id", "", only_with="input_format=jsonl"
    )
    output_format: str | None = setting(
        "jsonl: JSON Lines, as in google-research/bert; parquet: compact; default: the format of --output_file's "
        "extension, or jsonl", None, choices=_FORMATS, group="Output", first=True,
    )  # fmt: skip
    dtype: str = setting(
        "dtype of the values in Parquet files; the computation is in float32", "float32",
        choices=("float32", "float16"), group="Output",
    )  # fmt: skip
    alignment: bool = setting(
        "for each token, also write the index of the text, the index of the word, and the range of characters in the "
        "input line or field; only for --output_format=jsonl, because Parquet files always have this data", False,
        group="Output",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        self._check_formats()

    def _check_formats(self):
        format = format_of_output(self.output_file, self.output_format, _FORMATS)
        object.__setattr__(self, "output_format", format)
        named_json = self.input_file.lower().endswith((".jsonl", ".json"))
        object.__setattr__(self, "input_format", self.input_format or ("jsonl" if named_json else "lines"))
        check_together(self)
        require(bool(self.text_field), "--text_field is empty; name a field")
