"""Fine-tunes and predicts with Hugging Face's Trainer: the peer of ../finetuning.py.

The recipe is that of its run_glue example: dynamic padding, batches of like length, AdamW with
linear warm-up and decay.
"""

import argparse
import csv
import json
import pathlib


def read(path: pathlib.Path, texts: list[str], label: str) -> tuple[list[list[str]], list[float]]:
    """Returns the texts of each line of a GLUE file, and its label; 0 without a label."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [[row[name] for name in texts] for row in rows], [int(row.get(label) or 0) for row in rows]


def main() -> None:
    """Trains or predicts, and writes the dev accuracy or the logits into a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data_dir", required=True, type=pathlib.Path)
    parser.add_argument("--output_dir", required=True, type=pathlib.Path)
    parser.add_argument("--texts", required=True, help="comma-separated names of columns")
    parser.add_argument("--label", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--predict", action="store_true")
    args = parser.parse_args()

    import numpy as np
    import torch
    from training_options import training_options
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        set_seed,
    )

    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2, dtype=torch.float32)

    def dataset(split):
        texts, labels = read(args.data_dir / f"{split}.tsv", args.texts.split(","), args.label)
        encoded = tokenizer(*map(list, zip(*texts, strict=True)), truncation=True, max_length=128)
        names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in encoded]
        return [{**{n: encoded[n][i] for n in names}, "labels": label} for i, label in enumerate(labels)]

    options = training_options(args, train_sampling_strategy="group_by_length")
    trainer = Trainer(
        model=model,
        args=options,
        train_dataset=None if args.predict else dataset("train"),
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    args.output_dir.mkdir(parents=True, exist_ok=True)
    if args.predict:
        np.save(args.output_dir / "logits.npy", trainer.predict(dataset("test")).predictions)
        return
    trainer.train()
    trainer.save_model()
    result = trainer.predict(dataset("dev"))
    accuracy = float(np.mean(result.predictions.argmax(1) == result.label_ids))
    (args.output_dir / "result.json").write_text(json.dumps({"accuracy": accuracy}) + "\n")


if __name__ == "__main__":
    main()
