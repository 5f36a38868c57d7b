"""Hugging Face's BERT in PyTorch with our weights: an independent implementation for comparisons."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
import torch
import transformers

from bert_tf.config import BertConfig
from tests.bert_tf.checkpoint_formats.models import their_name

# The threads of TensorFlow and PyTorch would compete.
torch.set_num_threads(1)

# Their names for our activations.
HIDDEN_ACT = {"gelu": "gelu_new", "gelu_erf": "gelu"}


def hugging_face(cls, config: BertConfig, weights: dict[str, tf.Variable], attention: str, is_decoder: bool = False):
    """Returns a model of their class, such as `transformers.BertForPreTraining`, with our weights.

    Args:
      cls: the class; `transformers.BertModel` takes only the encoder's weights.
      config: our configuration; the same activation of theirs is used.
      weights: our variables by path.
      attention: "eager" or "sdpa".
      is_decoder: whether a position attends only to preceding positions.
    """
    their_config = transformers.BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_act=HIDDEN_ACT[config.hidden_act],
        max_position_embeddings=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        is_decoder=is_decoder,
        use_cache=False,
        # else token 0, which random rows contain like any other, gets no gradient
        pad_token_id=None,
        attn_implementation=attention,
    )
    model = cls(their_config).eval()
    prefix = "bert." if cls is transformers.BertModel else ""
    paths = {their_name(path): path for path in weights}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            path = paths[prefix + name]
            parameter.copy_(torch.from_numpy(transposed(weights[path].numpy(), path)))
    return model


def their_inputs(batch: dict) -> dict[str, torch.Tensor]:
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {theirs: _tensor(batch[ours]) for ours, theirs in names.items() if ours in batch}


def their_labels(batch: dict) -> torch.Tensor:
    """Returns a label for each position [B, S], -100 without a prediction."""
    labels = np.full(batch["input_ids"].shape, -100)
    for row, place in zip(*np.nonzero(batch["masked_lm_weights"].numpy()), strict=True):
        labels[row, batch["masked_lm_positions"][row, place]] = batch["masked_lm_ids"][row, place]
    return torch.from_numpy(labels)


def their_outputs_and_gradients(
    model, batch: dict, weights: Iterable[str], next_sentence: bool = True
) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns outputs by our names, and the gradients of their own loss by our paths.

    Args:
      model: a `BertForPreTraining`; without the next-sentence task, a `BertForMaskedLM`.
      batch: a batch for our pre-trainer.
      weights: paths of our variables.
      next_sentence: whether the loss includes the next-sentence task.
    """
    labels = {"labels": their_labels(batch)}
    if next_sentence:
        labels["next_sentence_label"] = _tensor(batch["next_sentence_labels"])
    results = model(**their_inputs(batch), **labels, output_hidden_states=True)
    model.zero_grad()
    results.loss.backward()
    paths = {their_name(path): path for path in weights}
    gradients = {paths[name]: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    logits = results.prediction_logits if next_sentence else results.logits
    rows = torch.arange(len(logits))[:, None]
    outputs = _states(results) | {
        "masked_lm_logits": logits[rows, _tensor(batch["masked_lm_positions"])],
        "loss": results.loss,
    }
    if next_sentence:
        outputs["next_sentence_logits"] = results.seq_relationship_logits
    return _arrays(outputs), {path: transposed(g, path) for path, g in gradients.items()}


def their_states(model, batch: dict) -> dict:
    """Returns the outputs of a `BertModel` by our names."""
    with torch.no_grad():
        results = model(**their_inputs(batch), output_hidden_states=True)
    return _arrays(_states(results) | {"pooled_output": results.pooler_output})


def _states(results) -> dict:
    embedded, *layers = results.hidden_states
    return {"embedding_output": embedded, "encoder_outputs": layers, "sequence_output": layers[-1]}


def transposed(value: np.ndarray, path: str) -> np.ndarray:
    """Converts a tensor between their layout and ours: PyTorch's kernels are [outputs, inputs]."""
    return value.T if path.endswith("kernel") else value


def _tensor(value: tf.Tensor) -> torch.Tensor:
    return torch.from_numpy(value.numpy().astype(np.int64))


def _arrays(outputs: dict) -> dict:
    return {
        name: [part.detach().numpy() for part in value] if isinstance(value, list) else value.detach().numpy()
        for name, value in outputs.items()
    }
