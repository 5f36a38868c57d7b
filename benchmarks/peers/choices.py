"""Fine-tunes a model that chooses one of several texts, with Hugging Face's Trainer: the peer of ../finetuning.py.

The recipe follows Hugging Face's run_swag example: dynamic padding, and AdamW with linear warm-up and decay.
"""

import csv
import json
import pathlib

from training_options import argument_parser, training_options

ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def main() -> None:
    """Trains, and writes the accuracy on the dev data into a folder."""
    parser = argument_parser()
    parser.add_argument("--train", required=True, type=pathlib.Path)
    parser.add_argument("--dev", required=True, type=pathlib.Path)
    args = parser.parse_args()

    import numpy as np
    import torch
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
