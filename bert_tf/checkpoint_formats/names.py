"""A table of the tensor names in all formats, and functions that search the table.

A row of the table has a weight's path in our models, its name in google-research/bert, its name in Hugging Face's
format, and its attribute path in tf-models-official. In these names, `{}` is the layer number.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from bert_tf.config import BertConfig


@dataclasses.dataclass(frozen=True)
class NameRow:
    """The names of one weight."""

    ours: str  # the variable's path in our models
    original: str  # name in google-research/bert; "" if there is no such weight
    hugging_face: str
    # attribute path in tf-models-official. The path starts at the encoder if `ours` starts with "encoder/", otherwise
    # at the model.
    tf_models: tuple[str, ...]
    original_transposed: bool = False  # whether google-research/bert stores the transposed weight
    hugging_face_transposed: bool = False  # whether transformers stores the transposed weight

    def of_layer(self, layer: str) -> "NameRow":
        theirs = {name: getattr(self, name).format(layer) for name in ("ours", "original", "hugging_face")}
        return dataclasses.replace(self, **theirs, tf_models=tuple(part.format(layer) for part in self.tf_models))


def _dense(ours: str, original: str, tf_models: str) -> list[NameRow]:
    hugging_face = _dotted(original)
    return [
        NameRow(f"{ours}/kernel", f"{original}/kernel", f"{hugging_face}.weight", (*tf_models.split("/"), "kernel"),
            hugging_face_transposed=True),
        NameRow(f"{ours}/bias", f"{original}/bias", f"{hugging_face}.bias", (*tf_models.split("/"), "bias")),
    ]  # fmt: skip


def _norm(ours: str, original: str, tf_models: str) -> list[NameRow]:
    return [
        NameRow(f"{ours}/{name}", f"{original}/{name}", f"{_dotted(original)}.{hugging_face}",
            (*tf_models.split("/"), name))
        for name, hugging_face in (("gamma", "weight"), ("beta", "bias"))
    ]  # fmt: skip


def _output(ours: str, original: str, hugging_face: str, tf_models: str) -> list[NameRow]:
    """Returns the rows of an output layer. google-research/bert stores the kernel as [classes, hidden size]."""
    return [
        NameRow(f"{ours}/kernel", f"{original}output_weights", f"{hugging_face}.weight",
                (*tf_models.split("/"), "kernel"), original_transposed=True, hugging_face_transposed=True),
        NameRow(f"{ours}/bias", f"{original}output_bias", f"{hugging_face}.bias", (*tf_models.split("/"), "bias")),
    ]  # fmt: skip


def _table(name: str, original: str, tf_models: str) -> NameRow:
    return NameRow(
        f"encoder/embeddings/{name}", f"bert/embeddings/{original}", f"bert.embeddings.{original}.weight",
        (tf_models, "embeddings"),
    )  # fmt: skip


def _dotted(original: str) -> str:
    return original.replace("/", ".").replace("layer_{}", "layer.{}")


_BLOCK = "encoder/blocks/{}"
_LAYER = "bert/encoder/layer_{}"
_SELF = f"{_LAYER}/attention/self"
_THEIR_BLOCK = "_transformer_layers/{}"
_THEIR_ATTENTION = f"{_THEIR_BLOCK}/_attention_layer"

ROWS: tuple[NameRow, ...] = (
    _table("word_embeddings", "word_embeddings", "_embedding_layer"),
    _table("position_embeddings", "position_embeddings", "_position_embedding_layer"),
    _table("segment_embeddings", "token_type_embeddings", "_type_embedding_layer"),
    *_norm("encoder/embeddings/layer_norm", "bert/embeddings/LayerNorm", "_embedding_norm_layer"),
    NameRow(
        "encoder/embeddings/relative_position_bias",
        "bert/encoder/relative_attention_bias",
        "bert.encoder.relative_attention_bias.weight",
        ("_relative_position_bias",),
    ),
    *_dense("encoder/embeddings/projection", "bert/embeddings/projection", "_embedding_projection"),
    *_dense(f"{_BLOCK}/attention/query", f"{_SELF}/query", f"{_THEIR_ATTENTION}/_query_dense"),
    *_dense(f"{_BLOCK}/attention/key", f"{_SELF}/key", f"{_THEIR_ATTENTION}/_key_dense"),
    *_dense(f"{_BLOCK}/attention/value", f"{_SELF}/value", f"{_THEIR_ATTENTION}/_value_dense"),
    *_dense(
        f"{_BLOCK}/attention/output_dense", f"{_LAYER}/attention/output/dense", f"{_THEIR_ATTENTION}/_output_dense"
    ),
    *_norm(f"{_BLOCK}/attention_norm", f"{_LAYER}/attention/output/LayerNorm", f"{_THEIR_BLOCK}/_attention_layer_norm"),
    *_dense(f"{_BLOCK}/intermediate", f"{_LAYER}/intermediate/dense", f"{_THEIR_BLOCK}/_intermediate_dense"),
    *_dense(f"{_BLOCK}/output_dense", f"{_LAYER}/output/dense", f"{_THEIR_BLOCK}/_output_dense"),
    *_norm(f"{_BLOCK}/output_norm", f"{_LAYER}/output/LayerNorm", f"{_THEIR_BLOCK}/_output_layer_norm"),
    *_dense("encoder/pooler", "bert/pooler/dense", "_pooler_layer"),
    NameRow("masked_lm/bias", "cls/predictions/output_bias", "cls.predictions.bias", ("masked_lm", "output_bias/bias")),
    *_dense("masked_lm/transform", "cls/predictions/transform/dense", "masked_lm/dense"),
    *_norm("masked_lm/layer_norm", "cls/predictions/transform/LayerNorm", "masked_lm/layer_norm"),
    *_output("next_sentence/dense", "cls/seq_relationship/", "cls.seq_relationship", "classification_heads/0/out_proj"),
    *_output("head/dense", "", "classifier", "classifier/out_proj"),
    # google-research/bert has no token classifier. In Hugging Face's format, the model class shows which head
    # "classifier" is.
    *_output("token_head/dense", "cls/tokens/", "token_classifier", "classifier"),
    *_output("span_head/dense", "cls/squad/", "qa_outputs", "span_labeling/layer_with_weights-0"),
)

# Our paths of two weights that every encoder has.
WORDS, FIRST_QUERY = "encoder/embeddings/word_embeddings", "encoder/blocks/0/attention/query/kernel"
TASK_HEADS = ("head", "token_head", "span_head")
# The BiLSTM under a task's head; see `modeling.bilstm`.
BILSTM = "head/lstm/"

_BY_PATH = {row.ours: row for row in ROWS}
_OUR_LAYER = re.compile(r"(?<=^encoder/blocks/)\d+(?=/)")
# The name of one of two encoders in a path; see `BertConfig.encoders`.
_DIRECTION = re.compile(r"(?<=^encoder/)(ltr|rtl)/")
_THEIR_LAYER = re.compile(r"(?<=encoder/layer_)\d+(?=/)|(?<=encoder\.layer\.)\d+(?=\.)")


def row_of(path: str) -> NameRow | None:
    """Returns the names of the weight at one of our paths, with its layer number; None if there is no row."""
    layer = _OUR_LAYER.search(path)
    row = _BY_PATH.get(_OUR_LAYER.sub("{}", path))
    return row.of_layer(layer[0]) if row and layer else row


def respelled(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a name with its parts replaced; a pair is a regular expression and its replacement, in order."""
    for pattern, replacement in pairs:
        name = re.sub(pattern, replacement, name)
    return name


def in_scope(name: str, scope: str, table_scope: str) -> str:
    """Replaces the scope in a tensor name with the table's scope.
    `scope`: prefix of the encoder's names in the file; "" if there is none.
    `table_scope`: prefix of the encoder's names in the table, "bert/" or "bert."."""
    rest = name.removeprefix(scope)
    parts = tuple(part + table_scope[-1] for part in ("embeddings", "encoder", "pooler"))
    if name.startswith(scope) and rest.startswith(parts):
        return table_scope + rest
    return name.removeprefix(scope.removesuffix(table_scope))


def paths_by_name(names: Iterable[str], column: str) -> dict[str, str]:
    """Maps names in another format to our paths. Names that are not in the table are left out.
    `names`: names in the other format, spelled as in the table.
    `column`: "original" or "hugging_face"."""
    rows = {getattr(row, column): row.ours for row in ROWS}
    paths = {}
    for name in names:
        layer = _THEIR_LAYER.search(name)
        if path := rows.get(_THEIR_LAYER.sub("{}", name)):
            paths[name] = path.format(layer[0] if layer else "")
    return paths


def encoder_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all weights of the encoder, or of both encoders, by path."""
    shapes = {}
    for name, part in config.encoders.items():
        scope = f"encoder/{name}/" if name else "encoder/"
        shapes |= {path.replace("encoder/", scope, 1): shape for path, shape in _shapes_of_one(part).items()}
    return shapes


def _shapes_of_one(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden, wide, embedded = config.hidden_size, config.intermediate_size, config.embedding_width
    special = {
        WORDS: (config.vocab_size, embedded),
        "encoder/embeddings/position_embeddings": (config.max_position_embeddings, embedded),
        "encoder/embeddings/segment_embeddings": (config.type_vocab_size, embedded),
        "encoder/embeddings/layer_norm/gamma": (embedded,),
        "encoder/embeddings/layer_norm/beta": (embedded,),
        "encoder/embeddings/projection/kernel": (embedded, hidden),
        "encoder/embeddings/relative_position_bias": (config.relative_position_buckets, config.num_attention_heads),
        f"{_BLOCK}/intermediate/kernel": (hidden, wide),
        f"{_BLOCK}/intermediate/bias": (wide,),
        f"{_BLOCK}/output_dense/kernel": (wide, hidden),
    }
    absent = () if config.type_vocab_size else ("encoder/embeddings/segment_embeddings",)
    absent += () if config.embedding_size else ("encoder/embeddings/projection/",)
    absent += () if config.relative_position_buckets else ("encoder/embeddings/relative_position_bias",)
    shapes = {}
    for row in ROWS:
        if row.ours.startswith("encoder/") and not row.ours.startswith(absent):
            shape = special.get(row.ours, (hidden, hidden) if row.ours.endswith("kernel") else (hidden,))
            layers = range(config.num_hidden_layers) if "{}" in row.ours else [""]
            shapes |= {row.ours.format(layer): shape for layer in layers}
    return shapes


def pretraining_head_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all weights of the two pre-training heads by path."""
    hidden, embedded = config.hidden_size, config.embedding_width
    return {
        "masked_lm/bias": (config.vocab_size,),
        "masked_lm/transform/kernel": (hidden, embedded),
        "masked_lm/transform/bias": (embedded,),
        "masked_lm/layer_norm/gamma": (embedded,),
        "masked_lm/layer_norm/beta": (embedded,),
        "next_sentence/dense/kernel": (hidden, 2),
        "next_sentence/dense/bias": (2,),
    }


def is_of_own_head(path: str) -> bool:
    """Returns whether a path belongs to a head that only bert_tf's format can store, such as a head with a BiLSTM."""
    return component_of(path) in TASK_HEADS and row_of(path) is None


def component_of(path: str) -> str:
    """Returns the part of the model to which a path belongs: "encoder", "encoder/pooler", "masked_lm", ..."""
    return "encoder/pooler" if _DIRECTION.sub("", path).startswith("encoder/pooler/") else path.split("/")[0]


def layer_of(path: str) -> int | None:
    """Returns the number of the layer to which a path belongs, counted from 0; None for a path of no layer."""
    layer = _OUR_LAYER.search(_DIRECTION.sub("", path))
    return int(layer[0]) if layer else None


def is_in_lowest_layers(path: str, layers: int) -> bool:
    layer = layer_of(path)
    return _DIRECTION.sub("", path).startswith("encoder/embeddings/") if layer is None else layer < layers


def heads_in(paths: Mapping[str, object] | Iterable[str]) -> set[str]:
    return {component_of(path) for path in paths} - {"encoder", "encoder/pooler"}
