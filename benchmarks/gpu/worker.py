"""The process of one peer: sets up one step, then runs and times rounds of this step on request.

After the setup, the process writes a line of JSON. Then the process reads lines from its input, each with a number of
steps. For each line, the process runs the steps, and writes a line of JSON. Each peer has its own process, so that the
memory of one peer does not affect the measurements of another peer.
"""

import argparse
import json
import pathlib
import sys
import time

from benchmarks.gpu import bundle

OURS, EAGER, COMPILED = "bert_tf", "eager", "compiled"
# Products of square matrices measure the speed of the device. The first map gives the size of the matrices on each
# platform, and the second map gives the number of products.
_PRODUCT_SIZE, _PRODUCTS = {"cuda": 8192, "cpu": 1024}, {"cuda": 50, "cpu": 2}


class OutOfMemory(Exception):
    """The step does not fit into the device's memory.

    Attributes:
      needed: number of bytes that the step needs; 0 if unknown.
    """

    def __init__(self, needed: int = 0):
        super().__init__()
        self.needed = needed


class Ours:
    """Our step in JAX, with the same attributes and methods as `PyTorch`."""

    def __init__(self, found: bundle.Bundle, batch_size: int, peer: str):
        import jax

        from benchmarks.gpu.program import Steps

        self.jax, self.device = jax, jax.devices()[0]
        self.kind = "cuda" if self.device.platform == "gpu" else self.device.platform
        self.name = f"jax {jax.__version__}, {self.device.device_kind}"
        self.limit = (self.device.memory_stats() or {}).get("bytes_limit", 0)
        self._steps, self.compiler_total = Steps(found, batch_size), 0
        try:
            self._set_up()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise OutOfMemory(self.compiler_total) from error

    def _set_up(self) -> None:
        self._columns = self._steps.columns(range(4))
        self._compiled = self._steps.compiled(self._columns)
        self.compiler_total = _total(self._compiled.memory_analysis())
        if self.limit and self.compiler_total > self.limit:
            raise OutOfMemory(self.compiler_total)
        self._state = self._steps.initial_state()
        self.run(1)

    def run(self, count: int) -> None:
        """Runs steps, and waits for them."""
        self._state = self._compiled(self.jax.numpy.int32(count), self._state, self._columns)
        self.jax.block_until_ready(self._state)

    def loss(self) -> float:
        """Returns the mean masked-LM loss of all steps."""
        return self._steps.metrics(self._state)["masked_lm_loss"]

    def peak_memory(self) -> int:
        """Returns the device's peak memory in bytes. If JAX reports no peak, returns the compiler's estimate."""
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use", self.compiler_total)

    def product_rate(self) -> float:
        """Returns the rate of a large bfloat16 matrix product in FLOP/s."""
        jnp, size, count = self.jax.numpy, _PRODUCT_SIZE[self.kind], _PRODUCTS[self.kind]
        factors = self.jax.random.normal(self.jax.random.key(0), (2, size, size), jnp.bfloat16)

        multiply = self.jax.jit(jnp.matmul)
        self.jax.block_until_ready(multiply(*factors))
        started = time.perf_counter()
        for _ in range(count):
            product = multiply(*factors)
        product.block_until_ready()
        return 2 * size**3 * count / (time.perf_counter() - started)


class PyTorch:
    """The same step of Hugging Face's BertForPreTraining with PyTorch's fused AdamW, under bfloat16 autocast.

    Args:
      found: the bundle with the shapes.
      batch_size: B.
      peer: EAGER or COMPILED.

    Attributes:
      name: names of the framework and the device.
      kind: "cuda" or "cpu".
      limit: size of the device's memory in bytes; 0 if unknown.
    """

    def __init__(self, found: bundle.Bundle, batch_size: int, peer: str):
        import torch
        import transformers

        from benchmarks.gpu import cases

        case = found.case
        self.torch, self.kind = torch, "cuda" if torch.cuda.is_available() else "cpu"
        cuda = self.kind == "cuda"
        where = torch.cuda.get_device_name() if cuda else "cpu"
        self.name = f"torch {torch.__version__}, transformers {transformers.__version__}, {where}"
        self.limit = torch.cuda.get_device_properties(0).total_memory if cuda else 0
        config = transformers.BertConfig(
            vocab_size=case.vocabulary, hidden_size=case.hidden, num_hidden_layers=case.layers,
            num_attention_heads=case.heads, intermediate_size=4 * case.hidden, hidden_act="gelu_new",
            max_position_embeddings=max(case.length, 64),
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        with torch.device(self.kind):
            self._model = transformers.BertForPreTraining(config).train()
        self._forward = torch.compile(self._model) if peer == COMPILED else self._model
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4, weight_decay=0.01, fused=True)
        drawn = [cases.batch(case, batch_size, seed) for seed in range(4)]
        self._batches, self._next = [self._inputs(columns) for columns in drawn], 0
        try:
            self.run(2)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory from error

    def _inputs(self, columns) -> dict:
        tensors = {
            name: self.torch.tensor(values, dtype=self.torch.long, device=self.kind) for name, values in columns.items()
        }
        labels = self.torch.full_like(tensors["input_ids"], -100)
        labels.scatter_(1, tensors["masked_lm_positions"], tensors["masked_lm_ids"])
        return {
            "input_ids": tensors["input_ids"],
            "attention_mask": tensors["input_mask"],
            "token_type_ids": tensors["segment_ids"],
            "labels": labels,
            "next_sentence_label": tensors["next_sentence_labels"],
        }

    def run(self, count: int) -> None:
        """Runs steps, and waits for them."""
        for _ in range(count):
            inputs = self._batches[self._next % len(self._batches)]
            self._next += 1
            with self.torch.autocast(self.kind, self.torch.bfloat16):
                self._loss = self._forward(**inputs).loss
            self._loss.backward()
            self.torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()
        if self.kind == "cuda":
            self.torch.cuda.synchronize()

    def loss(self) -> float:
        """Returns the loss of the last step."""
        return float(self._loss.detach())

    def peak_memory(self) -> int:
        """Returns the peak of the device's reserved memory in bytes; 0 if unknown."""
        return self.torch.cuda.max_memory_reserved() if self.kind == "cuda" else 0

    def product_rate(self) -> float:
        """Returns the rate of a large bfloat16 matrix product in FLOP/s."""
        size, count = _PRODUCT_SIZE[self.kind], _PRODUCTS[self.kind]
        factors = self.torch.randn(2, size, size, dtype=self.torch.bfloat16, device=self.kind)
        wait = self.torch.cuda.synchronize if self.kind == "cuda" else lambda: None
        self.torch.matmul(*factors)
        wait()
        started = time.perf_counter()
        for _ in range(count):
            self.torch.matmul(*factors)
        wait()
        return 2 * size**3 * count / (time.perf_counter() - started)


def _total(memory) -> int:
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
    )


def main() -> None:
    """Sets up the step, then answers requests. For the peer "check", only compares steps with TensorFlow's."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("case")
    parser.add_argument("peer", choices=(OURS, EAGER, COMPILED, "check"))
    parser.add_argument("batch_size", type=int)
    arguments = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # frameworks may print to stdout

    def answer(**facts):
        print(json.dumps(facts), file=answers, flush=True)

    if arguments.peer == "check":
        from benchmarks.gpu.check import differences

        answer(**differences(arguments.folder, arguments.case))
        return
    started = time.perf_counter()
    make = Ours if arguments.peer == OURS else PyTorch
    try:
        step = make(bundle.read(arguments.folder, arguments.case), arguments.batch_size, arguments.peer)
    except OutOfMemory as error:
        answer(out_of_memory=True, needed=error.needed)
        return
    answer(name=step.name, limit=step.limit, setup=time.perf_counter() - started, memory=step.peak_memory())
    for line in sys.stdin:
        count = json.loads(line)
        rate = step.product_rate()
        started = time.perf_counter()
        step.run(count)
        seconds = (time.perf_counter() - started) / count
        answer(seconds=seconds, product_rate=rate, loss=step.loss())


if __name__ == "__main__":
    main()
