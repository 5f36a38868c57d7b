"""Trains and evaluates vectors of texts with sentence-transformers' trainer: the peer of ../embeddings.py.

The losses are the ones that its documentation recommends: CoSENTLoss for scored pairs, and MultipleNegativesRankingLoss
for pairs, in batches without equal texts. Single texts are their own positives (SimCSE).
"""

import json
import pathlib

from training_options import argument_parser, training_options


def rows_of(path: pathlib.Path) -> list[dict]:
    """Returns the objects of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts_of(path: pathlib.Path) -> dict[str, str]:
    """Returns the texts of a collection's file by their ids."""
    return {row["_id"]: row["text"] for row in rows_of(path)}


def evaluator(path: pathlib.Path, batch_size: int):
    """Returns the evaluation of a file of scored pairs or of a folder with a collection, and its metric's name."""
    from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator

    if path.is_file():
        columns = zip(*((row["sentence1"], row["sentence2"], row["score"]) for row in rows_of(path)), strict=True)
        found = EmbeddingSimilarityEvaluator(*map(list, columns), batch_size=batch_size, write_csv=False)
        return found, "spearman_cosine"
    relevant: dict[str, set[str]] = {}
    for line in (path / "qrels" / "dev.tsv").read_text().splitlines()[1:]:
        query, document, _ = line.split("\t")
        relevant.setdefault(query, set()).add(document)
    queries, corpus = texts_of(path / "queries.jsonl"), texts_of(path / "corpus.jsonl")
    found = InformationRetrievalEvaluator(queries, corpus, relevant, batch_size=batch_size, write_csv=False)
    return found, "cosine_ndcg@10"


def main() -> None:
    """Trains, evaluates, and writes the score."""
    parser = argument_parser()
    parser.add_argument("--train", required=True, type=pathlib.Path, help="JSON Lines; a column score means CoSENT")
    parser.add_argument("--dev", required=True, type=pathlib.Path)
    parser.add_argument("--max_seq_length", type=int, required=True)
    args = parser.parse_args()

    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
    from sentence_transformers.training_args import BatchSamplers

    model = SentenceTransformer(args.model, device="cpu")
    model.max_seq_length = args.max_seq_length
    rows = rows_of(args.train)
    if "text" in rows[0]:  # SimCSE: dropout makes two different vectors of a text
        rows = [{"anchor": row["text"], "positive": row["text"]} for row in rows]
    data = Dataset.from_list(rows)
    is_scored = "score" in data.column_names
    batches = BatchSamplers.BATCH_SAMPLER if is_scored else BatchSamplers.NO_DUPLICATES
    trainer = SentenceTransformerTrainer(
        model=model,
        args=training_options(args, SentenceTransformerTrainingArguments, batch_sampler=batches),
        train_dataset=data,
        loss=CoSENTLoss(model) if is_scored else MultipleNegativesRankingLoss(model),
    )
    trainer.train()
    model.save_pretrained(str(args.output_dir))
    evaluate, metric = evaluator(args.dev, args.batch_size)
    score = evaluate(model)[metric]
    (args.output_dir / "result.json").write_text(json.dumps({"score": float(score)}) + "\n")


if __name__ == "__main__":
    main()
