"""Fine-tunes a tagger with Hugging Face's Trainer. ../finetuning.py compares run_ner with this script.

The recipe follows Hugging Face's run_ner example: labels on the first token of each word, dynamic padding, AdamW with
linear decay. Warm-up, and grouping rows of similar length into batches, are as in the peer finetuning.py.
"""

import json
import pathlib

from training_options import argument_parser, training_options


def read(path: pathlib.Path) -> list[tuple[list[str], list[str]]]:
    """Returns the words and tags of each sentence of a file. A line of the file has a word, a tab and a tag."""
    sentences = [([], [])]
    for line in path.read_text(encoding="utf-8").split("\n"):
        word, _, tag = line.strip().partition("\t")
        if word:
            sentences[-1][0].append(word)
            sentences[-1][1].append(tag.strip())
        elif sentences[-1][0]:
            sentences.append(([], []))
    return [sentence for sentence in sentences if sentence[0]]


def main() -> None:
    """Trains, and writes the F1 on the dev data into a folder."""
    parser = argument_parser()
    parser.add_argument("--train", required=True, type=pathlib.Path)
    parser.add_argument("--dev", required=True, type=pathlib.Path)
    args = parser.parse_args()

    import torch
    from seqeval.metrics import f1_score
    from transformers import (
        AutoModelForTokenClassification,
        AutoTokenizer,
        DataCollatorForTokenClassification,
        Trainer,
        set_seed,
    )

    set_seed(args.seed)
    train, dev = read(args.train), read(args.dev)
    labels = sorted({tag for _, tags in train for tag in tags})
    ids = {label: number for number, label in enumerate(labels)}
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForTokenClassification.from_pretrained(args.model, num_labels=len(labels), dtype=torch.float32)

    def dataset(sentences):
        encoded = tokenizer(
            [words for words, _ in sentences], is_split_into_words=True, truncation=True, max_length=128
        )
        names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in encoded]
        rows = []
        for number, (_, tags) in enumerate(sentences):
            words, before, row = encoded.word_ids(number), None, []
            for word in words:
                row.append(-100 if word is None or word == before else ids[tags[word]])
                before = word
            rows.append({**{name: encoded[name][number] for name in names}, "labels": row})
        return rows

    options = training_options(args, train_sampling_strategy="group_by_length")
    collator = DataCollatorForTokenClassification(tokenizer)
    trainer = Trainer(
        model=model, args=options, train_dataset=dataset(train), data_collator=collator, processing_class=tokenizer
    )
    args.output_dir.mkdir(parents=True, exist_ok=True)
    trainer.train()
    trainer.save_model()
    result = trainer.predict(dataset(dev))
    true, predicted = [], []
    for row, logits in zip(result.label_ids, result.predictions, strict=True):
        kept = row != -100
        true.append([labels[label] for label in row[kept]])
        predicted.append([labels[label] for label in logits[kept].argmax(1)])
    f1 = float(f1_score(true, predicted))
    (args.output_dir / "result.json").write_text(json.dumps({"score": f1}) + "\n")


if __name__ == "__main__":
    main()
