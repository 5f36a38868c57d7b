"""Side by side with the peers that are installed, in one run: make bench.

Every row is the best of several rounds, the rounds of ours and the peer's taking turns, so that noise of the
machine falls on both. Ratios are what counts; absolute rates hold for this machine and moment only.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[1]

import numpy as np
import tensorflow as tf
import tf_keras as keras
from official.modeling.optimization.legacy_adamw import AdamWeightDecay as OfficialAdamW
from official.nlp.modeling import layers, models, networks

from bert_tf import optimization
from bert_tf.config import BertConfig
from bert_tf.pretraining import BertPretrainer, PretrainingObjective

ROUNDS = 3
# L, H, A, V, B, S, P of the step: small enough for a laptop, large enough that matrices rule
STEP = {"small, S=128": (4, 512, 8, 30522, 8, 128, 20), "tiny, S=128": (2, 128, 2, 30522, 32, 128, 20)}


def best_seconds(*candidates: Callable[[], None]) -> list[float]:
    """The best time of each candidate; rounds take turns; the first round only warms up."""
    best = [float("inf")] * len(candidates)
    for round_number in range(ROUNDS + 1):
        for index, candidate in enumerate(candidates):
            started = time.perf_counter()
            candidate()
            if round_number:
                best[index] = min(best[index], time.perf_counter() - started)
    return best


def step_rows(shape: tuple[int, ...]) -> list[tuple[str, str, float]]:
    """Sequences a second of a whole pre-training step, float32, dropout on."""
    num_layers, hidden, heads, vocabulary, batch_size, length, predictions = shape
    config = BertConfig(vocabulary, hidden, num_layers, heads, 4 * hidden, type_vocab_size=2)
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(0, vocabulary, (batch_size, length)),
        "input_mask": np.ones((batch_size, length)),
        "segment_ids": np.zeros((batch_size, length)),
        "masked_lm_positions": np.tile(np.arange(predictions), (batch_size, 1)),
        "masked_lm_ids": rng.integers(0, vocabulary, (batch_size, predictions)),
        "next_sentence_labels": rng.integers(0, 2, batch_size),
    }
    batch = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    batch["masked_lm_weights"] = tf.ones([batch_size, predictions])
    seconds = best_seconds(our_step(config, batch), official_step(config, batch))
    return [
        ("bert_tf", "sequences/s", batch_size / seconds[0]),
        ("tf-models-official BertPretrainerV2", "sequences/s", batch_size / seconds[1]),
    ]


def our_step(config: BertConfig, batch) -> Callable[[], None]:
    """A step of our model with our optimizer."""
    model = BertPretrainer(config)
    objective = PretrainingObjective(model)
    optimizer = optimization.AdamWeightDecay(1e-4)

    def loss(seed):
        return tf.add_n([a / b for a, b in objective.losses(batch, training=True, seed=seed)["loss"].values()])

    return _step(model, loss, optimizer)


def official_step(config: BertConfig, batch) -> Callable[[], None]:
    """The same step of tf-models-official's model with its optimizer."""
    encoder = networks.BertEncoderV2(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        inner_dim=config.intermediate_size,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=2,
    )
    head = layers.ClassificationHead(inner_dim=config.hidden_size, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(encoder, mlm_activation=keras.activations.gelu, classification_heads=[head])
    optimizer = OfficialAdamW(1e-4, weight_decay_rate=0.01)
    inputs = {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
        "masked_lm_positions": batch["masked_lm_positions"],
    }
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    def loss(seed):
        outputs = model(inputs, training=True)
        words = tf.reduce_mean(cross_entropy(batch["masked_lm_ids"], outputs["mlm_logits"]))
        order = tf.reduce_mean(cross_entropy(batch["next_sentence_labels"], outputs["next_sentence"]))
        return words + order

    return _step(model, loss, optimizer)


def _step(model, loss, optimizer) -> Callable[[], None]:
    count = tf.Variable(0, dtype=tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(tf.stack([0, count.assign_add(1)]))
        variables = model.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(value, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    def run():
        for _ in range(3):
            step()

    return run


def show(title: str, rows: list[tuple[str, str, float]]) -> None:
    """Prints rows with their ratio to the last one, the peer."""
    print(f"\n{title}")
    for name, unit, rate in rows:
        print(f"  {name:<50} {rate:>12,.1f} {unit:<12} {rate / rows[-1][2]:>6.2f} x")


def main() -> None:
    """Prints every table."""
    tf.get_logger().setLevel("ERROR")  # the peer's pooler is not in its loss, and it says so each time
    # bound to one core, so in a process of its own
    subprocess.run([sys.executable, str(ROOT / "benchmarks/tokenizer.py")], check=True)
    subprocess.run([sys.executable, str(ROOT / "benchmarks/generator.py")], check=True)
    subprocess.run([sys.executable, str(ROOT / "benchmarks/input_pipeline.py")], check=True)
    for name, shape in STEP.items():
        rows = [(peer, unit, 3 * rate) for peer, unit, rate in step_rows(shape)]  # three steps a round
        show(f"Pre-training step, {name}, B={shape[4]}, float32, dropout on", rows)


if __name__ == "__main__":
    main()
