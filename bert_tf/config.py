"""The configuration of a BERT encoder. As a command, this module prints the bert_config.json of a named size.

bert_config --size=mini --vocab_size=8000 > bert_config.json

Paper: section 3 ("Model Architecture"), Table 6 for the sizes, section 5.1 for the attention's direction.
"""

import dataclasses
import json
import re
from collections.abc import Mapping

from bert_tf.core import command_line, storage
from bert_tf.core.command_line import setting
from bert_tf.core.errors import InputError

# (L, H, A) of google-research/bert's smaller models (tiny to medium) and of the paper's two models.
_SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# Matches the sizes in the names of google-research/bert's checkpoints, such as uncased_L-12_H-768_A-12.
_SIZE_BY_NUMBERS = re.compile(r"L-(\d+)_H-(\d+)_A-(\d+)")

# Model types of transformers whose encoders are this encoder; see `checkpoint_formats.families`.
FAMILIES = ("bert", "distilbert", "electra", "xlm-roberta", "mpnet")

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# The directions of attention: both directions, only to the left (section 5.1, "LTR"), only to the right, and two
# encoders, one in each direction.
PAIR = "ltr+rtl"
DIRECTIONS = ("bidi", "ltr", "rtl", PAIR)

_CHOICES = {
    "hidden_act": ACTIVATIONS, "pooler_activation": ACTIVATIONS, "directionality": DIRECTIONS, "family": FAMILIES,
}  # fmt: skip

# Defaults of keys that google-research/bert does not know.
_OWN_DEFAULTS = {
    "layer_norm_eps": 1e-12, "pooler_activation": "tanh", "family": "bert", "relative_position_buckets": 0,
}  # fmt: skip

# The sizes of the joined encoders, of which each encoder has half.
_OF_HALVES = ("hidden_size", "num_attention_heads", "intermediate_size")

# Keys of published configurations that have no effect on the paper's encoder.
_IGNORED_PREFIXES = ("pooler_",)
_IGNORED = (
    # In tf-models-official: whether variables have the shapes of google-research/bert.
    "backward_compatible",
    # In other libraries: options for the outputs, the storage and the training of a model.
    "finetuning_task", "gradient_checkpointing", "num_labels", "output_attentions", "output_hidden_states",
    "output_past", "pad_token_id", "torch_dtype", "torchscript", "use_bfloat16", "use_cache",
)  # fmt: skip

# Keys for which the paper's encoder allows only one value.
_FIXED = {
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "pruned_heads": {},
    "is_encoder_decoder": False,
}


# A file of a stranger could otherwise keep the process busy for hours.
_MOST_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape and regularization of the encoder, with the keys and defaults of google-research/bert.

    Attributes:
      vocab_size: V, the number of word embeddings; may be larger than the number of tokens (padding).
      hidden_size: H, the size of a token's vector.
      num_hidden_layers: L, the number of layers.
      num_attention_heads: A, the number of attention heads per layer; must divide H.
      intermediate_size: width of the feed-forward layer, 4H in the paper.
      hidden_act: the activation function. "gelu" is the tanh approximation of google-research/bert, and "gelu_erf"
        is the exact form, which Hugging Face names "gelu".
      hidden_dropout_prob: dropout rate after the embeddings and after each sub-layer.
      attention_probs_dropout_prob: dropout rate on the attention probabilities.
      max_position_embeddings: maximum sequence length.
      type_vocab_size: number of segments; with 0, there are no segment embeddings. With fewer than 2, a second text has
        the same segment as the first.
      initializer_range: standard deviation of the truncated normal distribution that initializes weights.
      directionality: the positions to which a token attends: "bidi" for all, "ltr" for the token and the preceding
        tokens, "rtl" for the token and the following tokens. "ltr+rtl" means two encoders of half the size, whose
        outputs are joined, as in ELMo.
      classifier_dropout: dropout rate of the heads of fine-tuned models; None means `hidden_dropout_prob`.
      extract_token_id: the token that replaces the token at which the pooled output is read, as in GPT. The pooled
        output is then the last layer at this token, without the pooler. None for the tokens of the row.
      layer_norm_eps: the number that layer normalization adds to the variance.
      pooler_activation: the activation function of the pooler.
      embedding_size: E, the width of the embeddings if it differs from the hidden size, as in ELECTRA. An affine map
        from E to H values follows the embeddings. None for the hidden size.
      family: the model type of transformers to whose classes the model can be converted: "bert", "distilbert",
        "electra", "xlm-roberta" or "mpnet".
      relative_position_buckets: number of learned attention biases per head, one for each range of distances between
        two tokens, as in T5 and MPNet; 0 for no such biases.

    Raises:
      InputError: a value is invalid, or values contradict each other.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    directionality: str = "bidi"
    classifier_dropout: float | None = None
    extract_token_id: int | None = None
    layer_norm_eps: float = 1e-12
    pooler_activation: str = "tanh"
    embedding_size: int | None = None
    family: str = "bert"
    relative_position_buckets: int = 0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = {int: (int,), str: (str,)}.get(field.type, (int, float))
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, wanted):
                raise InputError(f"{field.name}={value!r}: must be of type {wanted[-1].__name__}")
            least = 0 if field.name in ("type_vocab_size", "relative_position_buckets") else 1
            if field.type in (int, int | None) and value < least:
                raise InputError(f"{field.name}={value}: must be at least {least}")
        if self.num_hidden_layers > _MOST_LAYERS:
            raise InputError(f"num_hidden_layers={self.num_hidden_layers}: must be at most {_MOST_LAYERS}")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}; change one of them, because all heads have equal size"
            )
        for name, values in _CHOICES.items():
            if getattr(self, name) not in values:
                raise InputError(f"{name}={getattr(self, name)!r}: must be one of {', '.join(values)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise InputError(f"{name}={getattr(self, name)}: must be at least 0 and below 1")
        for name in ("initializer_range", "layer_norm_eps"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name}={getattr(self, name)}: must be above 0 and at most 1")

    @property
    def head_size(self) -> int:
        """Width of one attention head, H / A."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, E or H."""
        return self.embedding_size or self.hidden_size

    @property
    def head_dropout_prob(self) -> float:
        """Dropout rate of the heads of fine-tuned models."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def encoders(self) -> dict[str, "BertConfig"]:
        """The configurations of the encoders: of one encoder with the name "", or of two named by their directions."""
        if self.directionality != PAIR:
            return {"": self}
        sizes = {name: getattr(self, name) // 2 for name in _OF_HALVES}
        return {name: dataclasses.replace(self, directionality=name, **sizes) for name in PAIR.split("+")}

    @classmethod
    def joined(cls, half: "BertConfig") -> "BertConfig":
        """Returns the configuration of two encoders with the sizes of `half`, one in each direction."""
        return dataclasses.replace(half, directionality=PAIR, **{name: 2 * getattr(half, name) for name in _OF_HALVES})

    def check_length(self, max_seq_length: int, config_file: str) -> None:
        """Checks that the sequence length is at most `max_position_embeddings`.

        Raises:
          InputError: the length is too large; the message names the file and both lengths.
        """
        if max_seq_length > self.max_position_embeddings:
            raise InputError(
                f"--max_seq_length={max_seq_length} is beyond max_position_embeddings="
                f"{self.max_position_embeddings} of {config_file}; give a smaller value"
            )

    def check_vocabulary(self, tokens: int, vocab_file: str, config_file: str) -> None:
        """Checks that each token of a vocabulary has an embedding. Additional embeddings (padding) are allowed.

        Raises:
          InputError: the vocabulary is too large; the message names both files and both numbers.
        """
        if tokens > self.vocab_size:
            raise InputError(
                f"{config_file}: vocab_size={self.vocab_size} is smaller than {vocab_file}, which has {tokens} tokens; "
                "give the vocabulary that belongs to the configuration, or extend the model with convert_checkpoint "
                "--extended_vocab_file"
            )

    @classmethod
    def named(cls, size: str, vocab_size: int = 30522) -> "BertConfig":
        """Returns the configuration of a named size.

        Args:
          size: "tiny", "mini", "small", "medium", "base" or "large"; or L, H and A, such as "L-6_H-768_A-3".
          vocab_size: V, the number of word embeddings.

        Raises:
          InputError: the name is unknown.
        """
        numbers = _SIZE_BY_NUMBERS.fullmatch(size)
        if size not in _SIZES and not numbers:
            raise InputError(
                f"unknown size {size!r}: must be one of {', '.join(_SIZES)}, or of the form L-12_H-768_A-12"
            )
        layers, hidden, heads = map(int, numbers.groups()) if numbers else _SIZES[size]
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            type_vocab_size=2,
        )

    @classmethod
    def from_dict(cls, entries: dict) -> "BertConfig":
        """Makes a configuration from entries with the keys of google-research/bert.

        Raises:
          InputError: a key is unknown or missing, a value is invalid, or values contradict each other.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values = {k: v for k, v in entries.items() if k in names}
        if values.get("embedding_size") == values.get("hidden_size", cls.hidden_size):
            del values["embedding_size"]
        fixed = _FIXED | {"is_decoder": False}
        unknown = [
            k for k in entries
            if k not in names and k not in fixed and k not in _IGNORED and not k.startswith(_IGNORED_PREFIXES)
        ]  # fmt: skip
        if unknown:
            raise InputError(f"unknown key {unknown[0]!r}; the known keys are {', '.join(names)}")
        if "vocab_size" not in values:
            raise InputError("the key 'vocab_size' is missing")
        refuse_other_architectures(entries, fixed)
        return cls(**values)

    @classmethod
    def from_json_file(cls, path: str) -> "BertConfig":
        """Reads a `bert_config.json` from any tf.io.gfile path.

        Raises:
          InputError: the file is missing, is not JSON, or does not contain a valid configuration.
        """
        entries = read_json(path)
        try:
            return cls.from_dict(entries)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_json_string(self) -> str:
        """Returns the configuration in the JSON format of google-research/bert."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_dict(self) -> dict:
        """Returns the keys and values of the configuration.

        Values that are None, and defaults of keys that google-research/bert does not know, are left out.
        """
        return {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if value is not None and (key not in _OWN_DEFAULTS or value != _OWN_DEFAULTS[key])
        }


def read_json(path: str) -> dict:
    """Reads a file with one JSON object from any tf.io.gfile path."""
    import tensorflow as tf

    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; give a bert_config.json, which bert_config can print")
    with storage.json_file(path, "copy it again", "not JSON") as entries:
        if not isinstance(entries, dict):
            raise InputError(f"{path}: must contain one JSON object, but contains a {type(entries).__name__}")
        return entries


def read_json_if_exists(path: str) -> dict:
    """Like `read_json`, but returns {} if there is no such file."""
    import tensorflow as tf

    return read_json(path) if tf.io.gfile.exists(path) else {}


def refuse_other_architectures(entries: Mapping, fixed: Mapping = _FIXED) -> None:
    """Refuses a configuration that describes an architecture other than the paper's encoder.

    Args:
      entries: keys and values of the configuration; the value null is equivalent to a missing key.
      fixed: the only supported value of each key. The keys may be missing in `entries`.
    """
    for key, only in fixed.items():
        if entries.get(key) is not None and entries[key] != only:
            raise InputError(f"{key}={entries[key]!r}: BERT only supports {only!r}; use another checkpoint")


def require_segments(config: BertConfig, config_file: str) -> None:
    """Checks that a model has segment embeddings for a second text, unless its family has none."""
    if config.type_vocab_size < 2 and config.family == "bert":
        raise InputError(f"{config_file}: type_vocab_size={config.type_vocab_size}, but pairs of texts need 2")


@dataclasses.dataclass(frozen=True)
class ConfigSettings(command_line.Settings):
    """Settings of the command."""

    flag_group = "Model"

    size: str = setting(
        f"size of the model: {', '.join(_SIZES)}, or layers, hidden size and attention heads, such as L-6_H-768_A-3"
    )
    vocab_size: int = setting("number of tokens in the vocabulary", 30522, first=True)


def main(settings: ConfigSettings) -> None:
    """Prints the configuration that the settings name."""
    print(BertConfig.named(settings.size, settings.vocab_size).to_json_string(), end="")


run = command_line.script_of(ConfigSettings, main, __doc__)

if __name__ == "__main__":
    run()
