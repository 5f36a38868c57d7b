"""Shapes of models that train in milliseconds."""

from bert_tf.config import BertConfig


def small_config(
    vocab_size: int = 300,
    hidden_size: int = 16,
    num_hidden_layers: int = 1,
    num_attention_heads: int = 2,
    *,
    dropout: float = 0.1,
    max_position_embeddings: int = 32,
    **changes,
) -> BertConfig:
    """Returns a configuration whose feed-forward layers are twice as wide as its hidden layers.

    Args:
      vocab_size: size of the vocabulary; the fixture `vocab_file` has fewer tokens than 300.
      hidden_size: width of the hidden layers.
      num_hidden_layers: number of layers.
      num_attention_heads: number of heads.
      dropout: rate of both dropouts.
      max_position_embeddings: length of the longest row.
      **changes: values of other fields.
    """
    fields = {
        "intermediate_size": 2 * hidden_size, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
        "type_vocab_size": 2, "max_position_embeddings": max_position_embeddings,
    }  # fmt: skip
    return BertConfig(vocab_size, hidden_size, num_hidden_layers, num_attention_heads, **fields | changes)
