"""BERT's forward pass and joint loss as formulas in float64 NumPy, one row and one head at a time.

Paper: section 3, section 3.1, appendix A.2; "Attention Is All You Need" for the block, "Gaussian Error Linear
Units" for both forms of the activation.
"""

import math

import numpy as np

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


class Formulas:
    """The model with our weights.

    Args:
      config: the `BertConfig`.
      weights: arrays by path, as `variables_by_path` names them.
    """

    def __init__(self, config, weights):
        self.config = config
        self.weights = {path: np.asarray(value, np.float64) for path, value in weights.items()}
        self.activation = ACTIVATIONS[config.hidden_act]

    def outputs(self, batch) -> dict:
        """Returns the outputs of our pre-trainer, as arrays over all rows, and `loss`."""
        batch = {name: np.asarray(value) for name, value in batch.items()}
        rows = [self._row({name: value[i] for name, value in batch.items()}) for i in range(len(batch["input_ids"]))]
        outputs = {name: np.stack([row[name] for row in rows]) for name in rows[0] if name != "encoder_outputs"}
        outputs["encoder_outputs"] = [
            np.stack([row["encoder_outputs"][layer] for row in rows]) for layer in range(self.config.num_hidden_layers)
        ]
        outputs["loss"] = self._masked_lm_loss(batch, outputs) + self._next_sentence_loss(batch, outputs)
        return outputs

    def _row(self, row) -> dict:
        """Returns the outputs of one row: `input_ids` [S] and so on."""
        mask = row["input_mask"].astype(bool)
        places = np.arange(len(mask))
        x = self._embed(row, places)
        outputs = {"embedding_output": x, "encoder_outputs": []}
        seen = {
            "bidi": np.tile(mask, (len(mask), 1)),
            "ltr": mask & (places[None, :] <= places[:, None]),
            "rtl": mask & (places[None, :] >= places[:, None]),
        }[self.config.directionality]
        for layer in range(self.config.num_hidden_layers):
            block = f"encoder/blocks/{layer}/"
            x = self._norm(x + self._attend(x, seen, block + "attention/"), block + "attention_norm")
            wide = self.activation(self._affine(x, block + "intermediate"))
            x = self._norm(x + self._affine(wide, block + "output_dense"), block + "output_norm")
            outputs["encoder_outputs"].append(x)
        first = mask.sum() - 1 if self.config.directionality == "ltr" else 0
        pooled = np.tanh(self._affine(x[first], "encoder/pooler"))
        masked = self.activation(self._affine(x[row["masked_lm_positions"]], "masked_lm/transform"))
        words = self.weights["encoder/embeddings/word_embeddings"]
        return outputs | {
            "sequence_output": x,
            "pooled_output": pooled,
            "masked_lm_logits": self._norm(masked, "masked_lm/layer_norm") @ words.T + self.weights["masked_lm/bias"],
            "next_sentence_logits": self._affine(pooled, "next_sentence/dense"),
        }

    def _embed(self, row, places):
        total = (
            self.weights["encoder/embeddings/word_embeddings"][row["input_ids"]]
            + self.weights["encoder/embeddings/position_embeddings"][places]
            + self.weights["encoder/embeddings/segment_embeddings"][row["segment_ids"]]
        )
        return self._norm(total, "encoder/embeddings/layer_norm")

    def _attend(self, x, seen, path):
        """Computes softmax(Q K^T / sqrt(D)) V of each head over visible positions, bool [S, S], and the output map."""
        query, key, value = (self._affine(x, path + name) for name in ("query", "key", "value"))
        size = self.config.hidden_size // self.config.num_attention_heads
        heads = []
        for head in range(self.config.num_attention_heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:, part].T / math.sqrt(size)
            # Right to left, a padded position sees no position; its output is never read.
            nothing = ~seen.any(-1, keepdims=True)
            weights = np.where(seen | nothing, np.exp(scores - scores.max(-1, keepdims=True)), 0)
            heads.append(weights / weights.sum(-1, keepdims=True) @ value[:, part])
        return self._affine(np.concatenate(heads, -1), path + "output_dense")

    def _affine(self, x, path):
        return x @ self.weights[path + "/kernel"] + self.weights[path + "/bias"]

    def _norm(self, x, path):
        mean = x.mean(-1, keepdims=True)
        deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12)
        return (x - mean) / deviation * self.weights[path + "/gamma"] + self.weights[path + "/beta"]

    def _masked_lm_loss(self, batch, outputs):
        """Returns the mean over the predictions with weight 1."""
        labels = batch["masked_lm_ids"][..., None]
        nll = -np.take_along_axis(_log_softmax(outputs["masked_lm_logits"]), labels, -1)[..., 0]
        return (nll * batch["masked_lm_weights"]).sum() / batch["masked_lm_weights"].sum()

    def _next_sentence_loss(self, batch, outputs):
        labels = batch["next_sentence_labels"][:, None]
        return -np.take_along_axis(_log_softmax(outputs["next_sentence_logits"]), labels, -1).mean()


def _log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
