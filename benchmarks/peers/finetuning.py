"""Fine-tunes and predicts with Hugging Face's Trainer: the peer of ../finetuning.py.

The recipe follows Hugging Face's run_glue example: dynamic padding, batches of similar length, AdamW with linear
warm-up and decay.
"""

import argparse
import csv
import json
import pathlib

from training_options import argument_parser, training_options


def read(path: pathlib.Path, args: argparse.Namespace) -> tuple[list[list[str]], list[float]]:
    """Returns the texts of each line of a GLUE file, and the label of each line; 0 if a line has no label."""
    columns, number = args.columns.split(",") if args.columns else None, float if args.metric == "pearson" else int
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, columns, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [[row[name] for name in args.texts.split(",")] for row in rows]
    return texts, [number(row.get(args.label) or 0) for row in rows]


def main() -> None:
    """Trains and writes the score on the dev data, or predicts and writes the logits."""
    parser = argument_parser()
    parser.add_argument("--data_dir", required=True, type=pathlib.Path)
    parser.add_argument("--texts", required=True, help="comma-separated names of columns")
    parser.add_argument("--label", required=True)
    parser.add_argument("--columns", default="", help="comma-separated names for files without a header")
    parser.add_argument("--metric", default="accuracy", help="accuracy, matthews, or pearson for a regression")
    parser.add_argument("--predict", action="store_true")
    args = parser.parse_args()

    import numpy as np
    import torch
    from sklearn.metrics import matthews_corrcoef
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        set_seed,
    )

    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    outputs = 1 if args.metric == "pearson" else 2  # one output means regression
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=outputs, dtype=torch.float32)

    def dataset(split):
        texts, labels = read(args.data_dir / f"{split}.tsv", args)
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
    labels, likeliest = result.label_ids, result.predictions.argmax(1)
    scores = {
        "accuracy": lambda: np.mean(likeliest == labels),
        "matthews": lambda: matthews_corrcoef(labels, likeliest),
        "pearson": lambda: np.corrcoef(labels, result.predictions[:, 0])[0, 1],
    }
    (args.output_dir / "result.json").write_text(json.dumps({"score": float(scores[args.metric]())}) + "\n")


if __name__ == "__main__":
    main()
