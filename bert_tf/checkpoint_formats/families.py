"""The encoders of transformers that are BERT with other names: their tensors, configurations and classes.

Papers: V. Sanh et al., "DistilBERT, a distilled version of BERT", 2019; K. Clark et al., "ELECTRA: Pre-training Text
Encoders as Discriminators Rather Than Generators", 2020; A. Conneau et al., "Unsupervised Cross-lingual Representation
Learning at Scale", 2020 (XLM-RoBERTa); K. Song et al., "MPNet: Masked and Permuted Pre-training for Language
Understanding", 2020.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.checkpoint_formats.contents import StoredTensor
from bert_tf.checkpoint_formats.names import respelled
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError

SEQUENCE, CHOICE = "ForSequenceClassification", "ForMultipleChoice"
_POOLER = "bert.pooler.dense"
_TRANSFORM = "cls.predictions.transform"
# Model types that users try, and why their encoders are not implemented.
_REFUSED = {
    "roberta": "its byte-level BPE tokenizer is not implemented; a model of the type xlm-roberta works",
    "deberta": "its disentangled attention is not implemented",
    "deberta-v2": "its disentangled attention is not implemented",
    "modernbert": "its rotary positions and local attention are not implemented",
    "albert": "its layers share their weights, which is not implemented",
}

Pairs = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Family:
    """The classes of a model type. In names of tensors, a part of a name is one word or several words with dots."""

    classes: str  # the beginning of the names of its classes
    # parts of names and the corresponding parts in BERT's names, in the order in which they are replaced
    parts: Pairs = ()
    # more parts in the classes with a head, by the end of the class's name
    parts_of_heads: Mapping[str, Pairs] = dataclasses.field(default_factory=dict)
    has_pooler: bool = True  # whether classes without a head for texts have a pooler
    first_position: int = 0  # the row of the position embeddings that belongs to the first token
    # names of the configuration's entries, by BERT's names, where they differ
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # values of our configuration that all models have
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # defaults of the configuration's class that differ from `BertConfig`, by BERT's names
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def berts_name(self, name: str) -> str:
        """Returns the name that a tensor of this family would have in BERT's class."""
        return _replaced(name, [*self.parts, *(pair for pairs in self.parts_of_heads.values() for pair in pairs)])

    def own_name(self, name: str, model_class: str) -> str:
        """Returns the name of a tensor of BERT's class in a class of this family; "" if the class has no such tensor.
        `name`: the name, with the scope "bert.".
        `model_class`: the end of the class's name, such as SEQUENCE."""
        pairs = [(berts, own) for own, berts in (*self.parts_of_heads.get(model_class, ()), *self.parts)]
        own = _replaced(name, pairs)
        return "" if not self.has_pooler and re.search(r"(^|\.)pooler\.dense\.", own) else own

    def without_first_positions(self, table: StoredTensor) -> StoredTensor:
        """Returns a table of position embeddings without the rows that no token has."""
        first = self.first_position
        shape = (table.shape[0] - first, *table.shape[1:])
        return StoredTensor(table.name, shape, lambda: table.read()[first:]) if first else table


def _replaced(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    return respelled(name, ((rf"(?<![^.]){re.escape(old)}(?![^.])", new) for old, new in pairs))


_ROBERTAS_PARTS = (
    ("lm_head.dense", f"{_TRANSFORM}.dense"), ("lm_head.layer_norm", f"{_TRANSFORM}.LayerNorm"),
    ("lm_head.decoder", "cls.predictions.decoder"), ("lm_head.bias", "cls.predictions.bias"),
)  # fmt: skip
_ABSOLUTE = {"relative_position_buckets": 0}
_ROBERTAS_HEAD = {SEQUENCE: (("classifier.out_proj", "classifier"), ("classifier.dense", _POOLER))}
FAMILIES = {
    "bert": Family("Bert", fixed={"pooler_activation": "tanh", "embedding_size": None, **_ABSOLUTE}),
    "distilbert": Family(
        "DistilBert",
        parts=(
            ("distilbert", "bert"),
            ("transformer.layer", "encoder.layer"),
            ("attention.q_lin", "attention.self.query"),
            ("attention.k_lin", "attention.self.key"),
            ("attention.v_lin", "attention.self.value"),
            ("attention.out_lin", "attention.output.dense"),
            ("sa_layer_norm", "attention.output.LayerNorm"),
            ("ffn.lin1", "intermediate.dense"),
            ("ffn.lin2", "output.dense"),
            ("output_layer_norm", "output.LayerNorm"),
            ("vocab_transform", f"{_TRANSFORM}.dense"),
            ("vocab_layer_norm", f"{_TRANSFORM}.LayerNorm"),
            ("vocab_projector.weight", "cls.predictions.decoder.weight"),
            ("vocab_projector.bias", "cls.predictions.bias"),
        ),
        parts_of_heads=dict.fromkeys((SEQUENCE, CHOICE), (("pre_classifier", _POOLER),)),
        has_pooler=False,
        keys={
            "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout", "classifier_dropout": "seq_classif_dropout",
        },
        fixed={
            "type_vocab_size": 0, "pooler_activation": "relu", "embedding_size": None, "layer_norm_eps": 1e-12,
            **_ABSOLUTE,
        },
        defaults={"num_hidden_layers": 6, "classifier_dropout": 0.2},
    ),
    "electra": Family(
        "Electra",
        parts=(
            ("electra", "bert"),
            ("embeddings_project", "embeddings.projection"),
            ("generator_predictions.dense", f"{_TRANSFORM}.dense"),
            ("generator_predictions.LayerNorm", f"{_TRANSFORM}.LayerNorm"),
            ("generator_lm_head.weight", "cls.predictions.decoder.weight"),
            ("generator_lm_head.bias", "cls.predictions.bias"),
        ),
        parts_of_heads={**_ROBERTAS_HEAD, CHOICE: (("sequence_summary.summary", _POOLER),)},
        has_pooler=False,
        fixed={"pooler_activation": "gelu_erf", **_ABSOLUTE},
        defaults={
            "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128,
        },
    ),
    "xlm-roberta": Family(
        "XLMRoberta",
        parts=(("roberta", "bert"), *_ROBERTAS_PARTS),
        parts_of_heads=_ROBERTAS_HEAD,
        first_position=2,
        fixed={"pooler_activation": "tanh", "embedding_size": None, **_ABSOLUTE},
    ),
    "mpnet": Family(
        "MPNet",
        parts=(
            ("mpnet", "bert"),
            ("attention.attn.q", "attention.self.query"),
            ("attention.attn.k", "attention.self.key"),
            ("attention.attn.v", "attention.self.value"),
            ("attention.attn.o", "attention.output.dense"),
            ("attention.LayerNorm", "attention.output.LayerNorm"),
            *_ROBERTAS_PARTS,
        ),
        parts_of_heads=_ROBERTAS_HEAD,
        first_position=2,
        keys={"relative_position_buckets": "relative_attention_num_buckets"},
        fixed={"type_vocab_size": 0, "pooler_activation": "tanh", "embedding_size": None},
        defaults={"relative_position_buckets": 32, "vocab_size": 30527},
    ),
}  # fmt: skip


def family_of(model_type: str) -> Family:
    """Returns the family of a model type of transformers."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    works = ", ".join(FAMILIES)
    reason = _REFUSED.get(model_type, "this architecture is not implemented")
    raise InputError(f"model_type={model_type!r} is not BERT: {reason}; give a checkpoint of one of the types {works}")


def check(config: BertConfig) -> None:
    """Refuses a configuration that the classes of its family cannot express."""
    for name, only in FAMILIES[config.family].fixed.items():
        if getattr(config, name) != only:
            raise InputError(f"{name}={getattr(config, name)}: models of the type {config.family} need {only}")
