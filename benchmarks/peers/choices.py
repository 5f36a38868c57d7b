"""Fine-tunes a model that chooses one of several texts, with Hugging Face's Trainer: the peer of ../finetuning.py.

The recipe follows Hugging Face's run_swag example: dynamic padding, and AdamW with linear warm-up and decay.
"""

import argparse
import csv
import json
import pathlib

ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def main() -> None:
    """Trains, and writes the accuracy on the dev data into a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--train", required=True, type=pathlib.Path)
    parser.add_argument("--dev", required=True, type=pathlib.Path)
    parser.add_argument("--output_dir", required=True, type=pathlib.Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()

    import numpy as np
    import torch
    from training_options import training_options
    from transformers import (
        AutoModelForMultipleChoice,
        AutoTokenizer,
        DataCollatorForMultipleChoice,
        Trainer,
        set_seed,
    )

    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForMultipleChoice.from_pretrained(args.model, dtype=torch.float32)

    def dataset(path):
        rows = []
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                seconds = [f"{row['sent2']} {row[ending]}".strip() for ending in ENDINGS]
                encoded = tokenizer([row["sent1"]] * len(ENDINGS), seconds, truncation=True, max_length=128)
                rows.append({**encoded, "labels": int(row["label"])})
        return rows

    trainer = Trainer(
        model=model,
        args=training_options(args),
        train_dataset=dataset(args.train),
        data_collator=DataCollatorForMultipleChoice(tokenizer),
        processing_class=tokenizer,
    )
    args.output_dir.mkdir(parents=True, exist_ok=True)
    trainer.train()
    result = trainer.predict(dataset(args.dev))
    accuracy = float(np.mean(result.predictions.argmax(1) == result.label_ids))
    (args.output_dir / "result.json").write_text(json.dumps({"score": accuracy}) + "\n")


if __name__ == "__main__":
    main()
