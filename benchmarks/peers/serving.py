"""Serves a Hugging Face classifier behind a thin aiohttp server: a peer of ../serving.py.

First, a call with `--prepare` writes a model into a folder, also as an ONNX file. The model is the checkpoint with a
random head or, with `--size=base`, a model of BERT base's size with random weights. Then a call with `--kind=pipeline`
serves this model with Hugging Face's pipeline, and a call with `--kind=onnxruntime` serves the model with ONNX Runtime
and Hugging Face's fast tokenizer.
"""

import argparse
import asyncio
import concurrent.futures
import json
import pathlib
from collections.abc import Callable

LENGTH = 128
ONNX_NAME = "model.onnx"
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}


def prepare(checkpoint: str, folder: pathlib.Path, size: str) -> None:
    """Writes the classifier, the tokenizer and the ONNX file."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    options = {"dtype": torch.float32, "attn_implementation": "eager"}  # the exporter requires these
    if size == "base":
        config = AutoConfig.from_pretrained(checkpoint, num_labels=2, **BASE)
        model = AutoModelForSequenceClassification.from_config(config, **options).eval()
    else:
        model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2, **options).eval()
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.save_pretrained(folder)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tokenizer(["a short text", "a text that is longer than the other"], padding=True, return_tensors="pt")
    model.config.return_dict = False
    torch.onnx.export(
        model,
        tuple(example[name] for name in names),
        str(folder / ONNX_NAME),
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names} | {"logits": {0: "batch"}},
        dynamo=False,
    )


def pipeline_answers(folder: pathlib.Path, dtype: str) -> Callable[[list[str]], list[list[float]]]:
    """Returns a function that computes probabilities of texts with Hugging Face's pipeline."""
    from transformers import pipeline

    options = {"tokenizer": str(folder), "top_k": None, "device": "cpu", "dtype": dtype}
    classify = pipeline("text-classification", model=str(folder), **options)

    def answer(texts):
        scores = classify(texts, truncation=True, max_length=LENGTH, batch_size=len(texts))
        return [[one["score"] for one in sorted(row, key=lambda one: one["label"])] for row in scores]

    return answer


def onnx_answers(folder: pathlib.Path) -> Callable[[list[str]], list[list[float]]]:
    """Returns a function that computes probabilities of texts with ONNX Runtime."""
    import numpy as np
    import onnxruntime
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    session = onnxruntime.InferenceSession(str(folder / ONNX_NAME), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def answer(texts):
        encoded = tokenizer(texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="np")
        logits = session.run(None, {name: encoded[name].astype(np.int64) for name in names})[0]
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (exponents / exponents.sum(axis=1, keepdims=True)).tolist()

    return answer


async def serve(answer: Callable[[list[str]], list[list[float]]], port: int, threads: int) -> None:
    """Runs a server that answers {"instances": [texts]} with {"predictions": [probabilities]}."""
    from aiohttp import web

    pool = concurrent.futures.ThreadPoolExecutor(threads)

    async def handle(request):
        texts = json.loads(await request.read())["instances"]
        predictions = await asyncio.get_running_loop().run_in_executor(pool, answer, texts)
        return web.Response(body=json.dumps({"predictions": predictions}), content_type="application/json")

    application = web.Application()
    application.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Prepares the folder, or serves the model in the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--prepare", metavar="CHECKPOINT")
    parser.add_argument("--size", choices=("small", "base"), default="small")
    parser.add_argument("--kind", choices=("pipeline", "onnxruntime"))
    parser.add_argument("--port", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare, args.folder, args.size)
    else:
        is_pipeline = args.kind == "pipeline"
        answer = pipeline_answers(args.folder, args.dtype) if is_pipeline else onnx_answers(args.folder)
        asyncio.run(serve(answer, args.port, args.threads))


if __name__ == "__main__":
    main()
