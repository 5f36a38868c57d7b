"""Compares the encoders of several families with transformers on PyTorch, in tokens per second of inference.

The weights are random, because the speed does not depend on them: rows of 128 tokens, in batches of 16, in float32.
"""

import argparse
import os
import tempfile
import time

import machine

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch
import transformers

from bert_tf import checkpoints
from bert_tf.modeling.halves import HalvedOperations

ROWS, LENGTH, ROUNDS = 16, 128, 5
_SMALL = {"hidden_size": 384, "intermediate_size": 1536}
# The published model of the size, and the configuration of transformers.
MODELS = {
    "bert-base": ("BertConfig", {}),
    "distilbert-base": ("DistilBertConfig", {}),
    "all-MiniLM-L6": ("BertConfig", _SMALL | {"num_hidden_layers": 6}),
    "electra-small": ("ElectraConfig", {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}),
    "all-mpnet-base": ("MPNetConfig", {"max_position_embeddings": 514}),
    "multilingual MiniLM-L12": ("BertConfig", _SMALL | {"vocab_size": 250037}),
    "xlm-roberta-base": ("XLMRobertaConfig", {"vocab_size": 250002, "max_position_embeddings": 514}),
}


def rate(compute, tokens: int) -> float:
    """Returns the tokens per second of the fastest round."""
    compute()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        compute()
        times.append(time.perf_counter() - start)
    return tokens / min(times)


def rates(name: str) -> tuple[float, float, float]:
    """Returns our rate, the rate of transformers, and the number of weights in millions."""
    cls, values = MODELS[name]
    config = getattr(transformers, cls)(**values)
    model = transformers.AutoModel.from_config(config).eval()
    ids = np.random.default_rng(0).integers(5, config.vocab_size, [ROWS, LENGTH])
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        encoder = checkpoints.load_encoder(folder)
    encoder.inference_operations = HalvedOperations(encoder)
    ours = tf.function(lambda ids: encoder({"input_ids": ids})["sequence_output"])
    batch, theirs = tf.constant(ids, tf.int32), torch.from_numpy(ids)

    def run_theirs():
        with torch.inference_mode():
            model(theirs)

    weights = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    return rate(lambda: ours(batch).numpy(), ids.size), rate(run_theirs, ids.size), weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS), help="sizes to measure")
    chosen = parser.parse_args().models
    print(machine.describe())
    first = 0.0
    for name in chosen:
        ours, theirs, weights = rates(name)
        first = first or ours
        print(
            f"{name:24} {weights:5.0f} M weights  {ours:8,.0f} tokens/s  {ours / first:5.2f} of {chosen[0]}  "
            f"{ours / theirs:5.2f} of transformers",
            flush=True,
        )


if __name__ == "__main__":
    main()
