"""Compares our whole pre-training step with the steps of tf-models-official and Hugging Face.

    python benchmarks/step.py --shapes=base,base_512,medium_384
    python benchmarks/step.py --shapes=base_gpu,base_512_gpu,large_gpu --peers=bert_tf,compiled    # with a GPU

All steps do the same work: masked LM and next sentence prediction, dropout, bfloat16 with float32 weights, gradients
clipped by their global norm, and AdamW. Each peer has its own process, and waits while another process is timed. Rounds
alternate, so that other load on the machine affects all peers. The table also shows the FLOP rate, as a share of the
rate of a bfloat16 matrix product. The matrix product is measured in the same run.

A machine with a GPU needs TensorFlow's and PyTorch's libraries for it: `pip install '.[gpu,bench]'`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import machine

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROUNDS = 4
# Maps names to L layers, H hidden size, A heads, V vocabulary size, B rows, S sequence length, P predictions per row.
SHAPES = {
    "base": (12, 768, 12, 30522, 16, 128, 20),
    "base_256": (12, 768, 12, 30522, 8, 256, 38),
    "base_512": (12, 768, 12, 30522, 4, 512, 76),
    "medium_384": (6, 384, 6, 30522, 32, 128, 20),
    "small": (4, 512, 8, 30522, 8, 128, 20),
    "small_64": (4, 512, 8, 30522, 64, 64, 10),
    "base_gpu": (12, 768, 12, 30522, 256, 128, 20),
    "base_512_gpu": (12, 768, 12, 30522, 64, 512, 80),
    "large_gpu": (24, 1024, 16, 30522, 128, 128, 20),
}
OURS, PACKED, PRODUCT = "bert_tf", "packed", "product"
PRODUCT_SIZE = {"CPU": 2048, "GPU": 8192}
# A GPU runs the steps of a call one after another while the program already returns; these steps are timed together.
STEPS_PER_CALL = {"CPU": 1, "GPU": 20}
PEERS = {
    OURS: "bert_tf",
    PACKED: "bert_tf, rows of two examples of half the length",
    "official": "tf-models-official BertPretrainerV2",
    "eager": "Hugging Face BertForPreTraining, PyTorch",
    "compiled": "the same with torch.compile",
}


def numpy_batch(shape: tuple[int, ...]) -> dict:
    """Returns a batch of rows without padding. Each row has two segments and random masked positions."""
    import numpy as np

    _, _, _, vocabulary, batch_size, length, predictions = shape
    rng = np.random.default_rng(0)
    positions = np.stack([np.sort(rng.permutation(length)[:predictions]) for _ in range(batch_size)])
    return {
        "input_ids": rng.integers(0, vocabulary, (batch_size, length)),
        "input_mask": np.ones((batch_size, length), int),
        "segment_ids": np.arange(length)[None].repeat(batch_size, 0) // (length // 2),
        "masked_lm_positions": positions,
        "masked_lm_ids": rng.integers(0, vocabulary, (batch_size, predictions)),
        "next_sentence_labels": rng.integers(0, 2, batch_size),
    }


def model_config(shape: tuple[int, ...]):
    """Returns our configuration for a shape."""
    from bert_tf.config import BertConfig

    num_layers, hidden, heads, vocabulary, *_ = shape
    return BertConfig(vocabulary, hidden, num_layers, heads, 4 * hidden, type_vocab_size=2)


def tensorflow_batch(shape: tuple[int, ...]) -> dict:
    """Returns the batch of `numpy_batch` as tensors; adds `masked_lm_weights`."""
    import tensorflow as tf

    batch = {name: tf.constant(values, tf.int32) for name, values in numpy_batch(shape).items()}
    return batch | {"masked_lm_weights": tf.ones(batch["masked_lm_ids"].shape)}


def packed_batch(shape: tuple[int, ...]) -> dict:
    """Returns a batch like `tensorflow_batch`, but each row contains two examples of half the length."""
    import numpy as np
    import tensorflow as tf

    batch, half = tensorflow_batch(shape), shape[5] // 2
    rows = (shape[4], 1)
    columns = {
        "segment_ids": np.arange(2 * half) % half // (half // 2),
        "position_ids": np.arange(2 * half) % half,
        "sequence_ids": np.arange(2 * half) // half + 1,
        "cls_positions": np.array([0, half]),
        "next_sentence_labels": np.array([0, 1]),
    }
    columns = {name: tf.constant(np.tile(values, rows), tf.int32) for name, values in columns.items()}
    return batch | columns | {"next_sentence_weights": tf.ones([shape[4], 2])}


def our_parts(shape: tuple[int, ...]) -> int:
    """Returns the number of parts in which `run_pretraining` computes a batch of this shape, and sets the threads."""
    from bert_tf.pretraining import engine
    from bert_tf.settings import PretrainingSettings

    options = {"train_batch_size": shape[4], "max_seq_length": shape[5]}
    return engine.parts_of(PretrainingSettings(input_file="-", output_dir="-", do_train=True, **options))


def device_kind() -> str:
    """Returns "GPU" if TensorFlow finds a GPU, and "CPU" otherwise."""
    import tensorflow as tf

    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def our_gpu_step(shape: tuple[int, ...], packed: bool = False) -> Callable[[], object]:
    """Returns a function that runs a step as `run_pretraining` does on a GPU."""
    import tensorflow as tf

    from bert_tf.distributed import strategies
    from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
    from bert_tf.settings import DeviceSettings
    from bert_tf.training.trainer import Trainer, make_optimizer

    settings = strategies.with_devices(DeviceSettings(dtype="bfloat16"))
    strategy = strategies.make_strategy(settings)
    rows = tf.data.Dataset.from_tensors(packed_batch(shape) if packed else tensorflow_batch(shape)).repeat()
    with strategy.scope():
        trainer = Trainer(
            PretrainingObjective(BertPretrainer(model_config(shape))), strategy,
            optimizer=make_optimizer(settings, 1e-4, 100_000, 100), compiles=settings.enable_xla,
            train_dataset=strategies.distribute(strategy, lambda context: rows),
        )  # fmt: skip
    batches, run = iter(trainer.train_dataset), tf.function(trainer.train_step)

    def step():
        run(batches)
        return trainer.global_step

    return step


def our_step(shape: tuple[int, ...], packed: bool = False) -> Callable[[], object]:
    """Returns a function that runs a step of our model with our optimizer."""
    import tensorflow as tf

    from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
    from bert_tf.training import gradients, optimization

    parts, model = our_parts(shape), BertPretrainer(model_config(shape))
    objective = PretrainingObjective(model)
    optimizer = optimization.AdamWeightDecay(1e-4)
    batch, count = packed_batch(shape) if packed else tensorflow_batch(shape), tf.Variable(0)

    @tf.function
    def step():
        seed, variables = tf.stack([0, count.assign_add(1)]), model.trainable_variables
        total = objective.denominators(batch)["loss"]
        derived, numerators = gradients.accumulate(objective, (), variables, batch, seed, total, parts=parts)
        return optimization.clipped_update(optimizer, derived, variables), numerators

    return step


def official_step(shape: tuple[int, ...]) -> Callable[[], object]:
    """Returns a function that runs the same step of tf-models-official's model with its optimizer."""
    import tensorflow as tf
    import tf_keras as keras
    from official.modeling.optimization.legacy_adamw import AdamWeightDecay
    from official.nlp.modeling import layers, models, networks

    config, batch = model_config(shape), tensorflow_batch(shape)
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
    optimizer = AdamWeightDecay(1e-4, weight_decay_rate=0.01)
    inputs = {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
        "masked_lm_positions": batch["masked_lm_positions"],
    }
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            logits = [tf.cast(outputs[name], tf.float32) for name in ("mlm_logits", "next_sentence")]
            labels = batch["masked_lm_ids"], batch["next_sentence_labels"]
            loss = tf.add_n([tf.reduce_mean(cross_entropy(*pair)) for pair in zip(labels, logits, strict=True)])
        # The encoder's own pooler does not affect the loss, so its weights have no gradient.
        variables = [v for v in model.trainable_variables if "pooler_transform" not in v.name]
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return step


def hugging_face_step(shape: tuple[int, ...], compiled: bool) -> Callable[[], object]:
    """Returns a function that runs the same step of Hugging Face's model with fused AdamW, under bfloat16 autocast."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    num_layers, hidden, heads, vocabulary, *_ = shape
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_act="gelu_new",
    )
    model = transformers.BertForPreTraining(config).train().to(device)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    batch = {name: torch.tensor(values, device=device) for name, values in numpy_batch(shape).items()}
    labels = torch.full_like(batch["input_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = forward(
                input_ids=batch["input_ids"],
                attention_mask=batch["input_mask"],
                token_type_ids=batch["segment_ids"],
                labels=labels,
                next_sentence_label=batch["next_sentence_labels"],
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def product() -> Callable[[], object]:
    """Returns a function that computes a large matrix product, for measuring the peak rate under the current load."""
    import tensorflow as tf

    size = PRODUCT_SIZE[device_kind()]
    x = tf.Variable(tf.cast(tf.random.stateless_normal([size, size], [0, 1]), tf.bfloat16))
    return tf.function(lambda: tf.reduce_sum(tf.matmul(x, x)))


def work(peer: str, shape: tuple[int, ...]) -> None:
    """Runs in a peer's process: sets up a step, then runs and times the step once for each line of the input."""
    if peer == PRODUCT:
        step = product()
    elif peer in ("eager", "compiled"):
        step = hugging_face_step(shape, peer == "compiled")
    else:
        import tf_keras as keras

        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        ours = our_gpu_step if device_kind() == "GPU" else our_step
        step = official_step(shape) if peer == "official" else ours(shape, peer == PACKED)
    for _ in range(2):
        _wait(step())
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, count = [], int(line)
        for _ in range(20 if peer == PRODUCT else 1):
            started = time.perf_counter()
            for _ in range(count):
                result = step()
            _wait(result)
            seconds.append((time.perf_counter() - started) / count)
        print(min(seconds), flush=True)


def _wait(result) -> None:
    """Waits until a step has finished, by reading its first result."""
    while isinstance(result, tuple):
        result = result[0]
    float(result)


def best_seconds(name: str, peers: list[str]) -> dict[str, float]:
    """Returns each peer's best time of a step in seconds, from alternating rounds."""
    command = [sys.executable, __file__, f"--shapes={name}", "--work"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # the peers share the GPU's memory
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    workers = {}
    best = dict.fromkeys(peers, float("inf"))
    try:
        for peer in peers:  # sequentially, because each setup uses all cores
            workers[peer] = subprocess.Popen([*command, peer], env=environment, **pipes)
            while (line := workers[peer].stdout.readline()) != "ready\n":
                if not line:
                    sys.exit(f"{PEERS.get(peer, peer)} cannot run; for the error, run {' '.join(command)} {peer}")
        for _ in range(ROUNDS):
            for peer, worker in workers.items():
                worker.stdin.write(f"{STEPS_PER_CALL[device_kind()]}\n")
                worker.stdin.flush()
                best[peer] = min(best[peer], float(worker.stdout.readline()))
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return best


def main() -> None:
    """Prints one table per shape."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="base,base_512,medium_384", help=f"comma-separated: {', '.join(SHAPES)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated, from " + ", ".join(PEERS))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.shapes.split(",")
    if arguments.work:
        work(arguments.work, SHAPES[names[0]])
        return
    from bert_tf.training import flops

    print(machine.describe())
    for name in names:
        shape = SHAPES[name]
        num_layers, hidden, heads, _, batch_size, length, predictions = shape
        best = best_seconds(name, [*arguments.peers.split(","), PRODUCT])
        peak = 2 * PRODUCT_SIZE[device_kind()] ** 3 / best.pop(PRODUCT)
        config = model_config(shape)
        counted = flops.training_flops(config, length, predictions, 2) * batch_size
        spared = flops.unread_position_flops(config, length, predictions + 1) * batch_size
        print(f"\nPre-training step, L={num_layers} H={hidden} A={heads} B={batch_size} S={length} P={predictions}")
        print(f"  {counted / 1e12:.2f} TFLOP, of which our step skips {spared / 1e12:.2f}")
        print(
            f"  a large bfloat16 product runs at {peak / 1e12:.2f} TFLOP/s; shares count only FLOPs actually computed"
        )
        ours = best.get(OURS, float("nan"))
        for peer, seconds in best.items():
            share = (counted - (spared if peer in (OURS, PACKED) else 0)) / seconds / peak
            sequences = batch_size * (2 if peer == PACKED else 1) / seconds
            ratio = f"{seconds / ours:5.2f} times ours"
            print(f"  {PEERS[peer]:<50} {seconds:6.3f} s  {sequences:6.2f} sequences/s  {share:4.0%}  {ratio}")


if __name__ == "__main__":
    main()
