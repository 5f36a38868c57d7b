"""Fine-tunes a question-answering model with Hugging Face's Trainer: the peer of ../finetuning.py for SQuAD.

The recipe follows Hugging Face's run_qa example. Windows come from the fast tokenizer's overflowing tokens. Rows are
padded to the full length (or, with --no-pad_to_max_length, to the longest row of a batch). The optimizer is AdamW with
linear warm-up and decay. The answer is the best pair of a start among the 20 highest starts and an end among the 20
highest ends.
"""

import argparse
import collections
import json
import pathlib

from training_options import argument_parser, training_options


def questions_of(path: pathlib.Path) -> list[dict]:
    """Returns the questions of a file with their contexts and answers."""
    data = json.loads(path.read_text("utf-8"))["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    return [{**question, "context": entry["context"]} for entry in paragraphs for question in entry["qas"]]


def encode(tokenizer, questions: list[dict], args, labels: bool) -> list[dict]:
    """Returns a row for each window; a row includes the character range of each token."""
    rows = []
    for number, question in enumerate(questions):
        asked = tokenizer(question["question"], truncation=True, max_length=64, add_special_tokens=False)["input_ids"]
        # This gives the same windows as in our program. Our stride is the distance between the starts of two windows;
        # the tokenizer's stride is the number of tokens that two windows share.
        room = args.max_seq_length - len(asked) - 3
        encoded = tokenizer(
            tokenizer.decode(asked) if len(asked) == 64 else question["question"], question["context"],
            truncation="only_second", max_length=args.max_seq_length, stride=max(0, room - args.doc_stride),
            return_overflowing_tokens=True, return_offsets_mapping=True,
            padding="max_length" if args.pad_to_max_length else False,
        )  # fmt: skip
        for window, offsets in enumerate(encoded["offset_mapping"]):
            of_context = [part == 1 for part in encoded.sequence_ids(window)]
            row = {name: encoded[name][window] for name in ("input_ids", "token_type_ids", "attention_mask")}
            if labels:
                row |= positions(question["answers"][0], offsets, of_context)
            rows.append(row | {"question": number, "offsets": offsets, "of_context": of_context})
    return rows


def positions(answer: dict, offsets: list, of_context: list[bool]) -> dict[str, int]:
    """Returns the positions of an answer's first and last token; 0 ([CLS]) if the window lacks the answer."""
    first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    starts = [i for i, (begin, end) in enumerate(offsets) if of_context[i] and begin <= first < end]
    ends = [i for i, (begin, end) in enumerate(offsets) if of_context[i] and begin < last <= end]
    found = (starts[0], ends[0]) if starts and ends else (0, 0)
    return {"start_positions": found[0], "end_positions": found[1]}


def answers(questions: list[dict], rows: list[dict], logits) -> dict[str, str]:
    """Returns the best answer to each question."""
    best: dict[int, tuple[float, str]] = collections.defaultdict(lambda: (float("-inf"), ""))
    for row, start, end in zip(rows, *logits, strict=True):
        number, context = row["question"], questions[row["question"]]["context"]
        length = len(row["of_context"])
        tops = [[i for i in (-side[:length]).argsort()[:20] if row["of_context"][i]] for side in (start, end)]
        for i in tops[0]:
            for j in tops[1]:
                if i <= j < i + 30 and start[i] + end[j] > best[number][0]:
                    best[number] = (start[i] + end[j], context[row["offsets"][i][0] : row["offsets"][j][1]])
    return {question["id"]: best[number][1] for number, question in enumerate(questions)}


def main() -> None:
    """Trains, and writes the answers for the dev data into a folder."""
    parser = argument_parser()
    parser.add_argument("--train_file", required=True, type=pathlib.Path)
    parser.add_argument("--predict_file", required=True, type=pathlib.Path)
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--pad_to_max_length", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()

    import torch
    from transformers import (
        AutoModelForQuestionAnswering,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        set_seed,
    )

    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForQuestionAnswering.from_pretrained(args.model, dtype=torch.float32)
    train = encode(tokenizer, questions_of(args.train_file), args, labels=True)
    dev_questions = questions_of(args.predict_file)
    dev = encode(tokenizer, dev_questions, args, labels=False)

    def columns(rows):
        kept = ("input_ids", "token_type_ids", "attention_mask", "start_positions", "end_positions")
        return [{name: row[name] for name in kept if name in row} for row in rows]

    options = training_options(args)
    collator = DataCollatorWithPadding(tokenizer)
    trainer = Trainer(model=model, args=options, train_dataset=columns(train), data_collator=collator)
    trainer.train()
    trainer.save_model()
    start, end = trainer.predict(columns(dev)).predictions[:2]
    (args.output_dir / "predictions.json").write_text(json.dumps(answers(dev_questions, dev, (start, end))))


if __name__ == "__main__":
    main()
