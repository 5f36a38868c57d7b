"""The shape of a BERT encoder.

Paper: section 3 ("Model Architecture"), Table 6 for the sizes, section 5.1 for the attention's direction.

Letters: L layers, H hidden size, A attention heads, V vocabulary size.
"""

import dataclasses
import json
import re
from collections.abc import Mapping

from tfrecords.errors import InputError

# google-research/bert's smaller models (tiny to medium) and the paper's two: (L, H, A)
_SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# As google-research/bert names its checkpoints: uncased_L-12_H-768_A-12.
_SIZE_BY_NUMBERS = re.compile(r"L-(\d+)_H-(\d+)_A-(\d+)")

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# Both ways; to the pieces before only, section 5.1's "LTR"; to the pieces after only.
DIRECTIONS = ("bidi", "ltr", "rtl")

# Published configurations carry these; the encoder of the paper has nothing for them to set.
_IGNORED_PREFIXES = ("pooler_",)
_IGNORED = (
    # tf-models-official: whether its variables have the shapes of the original's
    "backward_compatible",
    # libraries' own: what a model gives back, how it is stored and trained
    "finetuning_task", "gradient_checkpointing", "num_labels", "output_attentions", "output_hidden_states",
    "output_past", "pad_token_id", "torch_dtype", "torchscript", "use_bfloat16", "use_cache",
)  # fmt: skip

# What the encoder of the paper has one way only.
_FIXED = {
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "add_cross_attention": False,
    "pruned_heads": {},
    "is_encoder_decoder": False,
}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape and regularisation of the encoder; keys and defaults of the original's `bert_config.json`.

    Attributes:
      vocab_size: V; may be larger than the vocabulary (padded), never smaller.
      hidden_size: H.
      num_hidden_layers: L.
      num_attention_heads: A; must divide H.
      intermediate_size: width of the feed-forward layer, 4H in the paper.
      hidden_act: "gelu" is the original's tanh form; "gelu_erf" the exact one, Hugging Face's "gelu".
      hidden_dropout_prob: dropout after embeddings and after each sub-layer.
      attention_probs_dropout_prob: dropout on the attention probabilities.
      max_position_embeddings: longest sequence.
      type_vocab_size: number of segments.
      initializer_range: standard deviation of the truncated normal that weights start from.
      directionality: what a position attends to besides itself: "bidi" all others, "ltr" those before it, "rtl"
        those after it.
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

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = {int: (int,), float: (int, float), str: (str,)}[field.type]
            if isinstance(value, bool) or not isinstance(value, wanted):
                raise InputError(f"{field.name}={value!r}: must be of type {field.type.__name__}")
            if field.type is int and value < 1:
                raise InputError(f"{field.name}={value}: must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size={self.hidden_size} is no multiple of "
                f"num_attention_heads={self.num_attention_heads}; each head takes an equal share of it"
            )
        if self.hidden_act not in ACTIVATIONS:
            raise InputError(f"hidden_act={self.hidden_act!r}: must be one of {', '.join(ACTIVATIONS)}")
        if self.directionality not in DIRECTIONS:
            raise InputError(f"directionality={self.directionality!r}: must be one of {', '.join(DIRECTIONS)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: must be at least 0 and below 1")
        if not 0 < self.initializer_range <= 1:
            raise InputError(f"initializer_range={self.initializer_range}: must be above 0 and at most 1")

    @property
    def head_size(self) -> int:
        """Width of one attention head, H / A."""
        return self.hidden_size // self.num_attention_heads

    def check_length(self, max_seq_length: int, config_file: str) -> None:
        """Refuses rows that are longer than there are positions.

        Raises:
          InputError: names the file and both lengths.
        """
        if max_seq_length > self.max_position_embeddings:
            raise InputError(
                f"--max_seq_length={max_seq_length} is beyond max_position_embeddings="
                f"{self.max_position_embeddings} of {config_file}; make it smaller"
            )

    def check_vocabulary(self, pieces: int, vocab_file: str, config_file: str) -> None:
        """Refuses a vocabulary with more pieces than there are embeddings; fewer are fine (padding).

        Raises:
          InputError: names both files and numbers.
        """
        if pieces > self.vocab_size:
            raise InputError(
                f"{config_file}: vocab_size={self.vocab_size} is smaller than {vocab_file}, which has {pieces} pieces; "
                "give the vocabulary that belongs to the configuration"
            )

    @classmethod
    def named(cls, size: str, vocab_size: int = 30522) -> "BertConfig":
        """One of the published sizes: tiny, mini, small, medium, base, large; or by its numbers, "L-6_H-768_A-3".

        Raises:
          InputError: an unknown name.
        """
        numbers = _SIZE_BY_NUMBERS.fullmatch(size)
        if size not in _SIZES and not numbers:
            raise InputError(f"unknown size {size!r}: must be one of {', '.join(_SIZES)}, or as L-12_H-768_A-12")
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
        """A configuration from the original's keys.

        Raises:
          InputError: a key is unknown or missing, or the values contradict each other.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        known = {k: v for k, v in entries.items() if k in names}
        fixed = _FIXED | {"is_decoder": False, "embedding_size": entries.get("hidden_size", cls.hidden_size)}
        unknown = [
            k for k in entries
            if k not in names and k not in fixed and k not in _IGNORED and not k.startswith(_IGNORED_PREFIXES)
        ]  # fmt: skip
        if unknown:
            raise InputError(f"unknown key {unknown[0]!r}; known are {', '.join(names)}")
        if "vocab_size" not in known:
            raise InputError("the key 'vocab_size' is missing")
        refuse_other_architectures(entries, fixed)
        return cls(**known)

    @classmethod
    def from_json_file(cls, path: str) -> "BertConfig":
        """Reads a `bert_config.json`; any tf.io.gfile path.

        Raises:
          InputError: the file is missing, is not JSON, or holds no valid configuration.
        """
        entries = read_json(path)
        try:
            return cls.from_dict(entries)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_json_string(self) -> str:
        """The original's JSON form."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def read_json(path: str) -> dict:
    """The keys and values of a configuration file; any tf.io.gfile path.

    Raises:
      InputError: the file is missing, is not JSON, or holds something else than one object.
    """
    import tensorflow as tf

    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; give a bert_config.json")
    try:
        with tf.io.gfile.GFile(path) as file:
            entries = json.load(file)
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise InputError(f"{path}: must hold one JSON object, holds a {type(entries).__name__}")
    return entries


def refuse_other_architectures(entries: Mapping, fixed: Mapping = _FIXED) -> None:
    """Refuses keys of a configuration whose values are not the encoder of the paper.

    Args:
      entries: a configuration's keys and values; null is as good as no key.
      fixed: what the values must be, of the keys that are there.

    Raises:
      InputError: names the key.
    """
    for key, only in fixed.items():
        if entries.get(key) is not None and entries[key] != only:
            raise InputError(f"{key}={entries[key]!r}: BERT has {only!r} only; take another checkpoint")


def require_segments(config: BertConfig, config_file: str) -> None:
    """Refuses a model that cannot tell a second text from the first.

    Raises:
      InputError: names the file.
    """
    if config.type_vocab_size < 2:
        raise InputError(f"{config_file}: type_vocab_size={config.type_vocab_size}, but pairs of texts need 2")
