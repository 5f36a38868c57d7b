"""The arguments of all peers, and the options of Hugging Face's Trainer."""

import argparse
import pathlib
from typing import Any

import torch
from transformers import TrainingArguments


def argument_parser() -> argparse.ArgumentParser:
    """Returns a parser with the arguments that all peers have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--output_dir", required=True, type=pathlib.Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=32)
    return parser


def training_options(
    args: argparse.Namespace, kind: type[TrainingArguments] = TrainingArguments, **more: Any
) -> TrainingArguments:
    """Returns the Trainer's options, of the class `kind`, for a peer's arguments; `more` are this peer's options."""
    return kind(
        output_dir=str(args.output_dir),
        use_cpu=not torch.cuda.is_available(),
        bf16=args.dtype == "bfloat16",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        save_strategy="no",
        logging_steps=50,
        report_to=[],
        seed=args.seed,
        disable_tqdm=True,
        **more,
    )
