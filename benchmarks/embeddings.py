"""Compares the training of vectors of texts with sentence-transformers' trainer, and measures what training brings.

    BERT_TF_DATA=path/to/data python benchmarks/embeddings.py --seeds=3 --checkpoints=minilm,path/to/own/checkpoint

The parts are: `sts`, scored pairs of STS-B; `retrieval`, XQuAD's questions with their paragraphs, then with mined
negatives; `simcse`, single sentences; and `memory`, large batches with and without cached gradients. Both peers start
from the same checkpoint, and use the same data, batch size, epochs, learning rate and precision. Times are for whole
processes, which end with the evaluation.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine
from finetuning import ROOT, checkpoint, our_score, peer_score, report, timed

PEER = pathlib.Path(__file__).with_name("peers") / "embeddings.py"
SENTENCES = 8_000
# Fewer than 200 characters of a line of English text give up to 64 tokens, so all rows are full.
MEMORY_PAIRS, MEMORY_LENGTH = 4_096, 64


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The data and the hyperparameters of a comparison."""

    name: str
    metric: str
    max_seq_length: int
    epochs: int = 1
    batch_size: int = 32


STS = Recipe("STS-B", "spearman", 128)
RETRIEVAL = Recipe("XQuAD retrieval", "ndcg@10", 256, epochs=2)
SIMCSE = Recipe("SimCSE", "spearman", 64, batch_size=64)


@dataclasses.dataclass(frozen=True)
class Start:
    """A checkpoint from which all commands train.

    Attributes:
      folder: the checkpoint.
      of_peer: the same weights in a format that the peer reads.
      learning_rate: learning rate; a checkpoint that was never trained for similarity needs a higher one.
      positions: highest number of tokens in a row.
    """

    name: str
    folder: str
    of_peer: str
    learning_rate: float
    positions: int


def start(name: str, folder: pathlib.Path) -> Start:
    """Returns the start `minilm`, or the start from one of our checkpoints, which is converted for the peer."""
    if name == "minilm":
        return Start("MiniLM", checkpoint(), checkpoint(), 2e-5, 512)
    target = folder / "own"
    command = [sys.executable, "-m", "bert_tf.convert_checkpoint", f"--input={name}", f"--output={target}"]
    timed([*command, "--format=hugging_face"], folder / "convert.log")
    config = json.loads((target / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # SimCSE's positives need dropout
    (target / "config.json").write_text(json.dumps(config))
    return Start(pathlib.Path(name).name, str(target), str(target), 1e-4, config["max_position_embeddings"])


def write_rows(path: pathlib.Path, rows: list[dict]) -> None:
    """Writes JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def scored_pairs(data: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes STS-B's training and dev pairs; their test labels are not published in GLUE's files."""
    files = []
    for split in ("train", "dev"):
        lines = [line.split("\t") for line in (data / "glue" / "STS-B" / f"{split}.tsv").read_text().splitlines()[1:]]
        rows = [{"sentence1": line[7], "sentence2": line[8], "score": float(line[9])} for line in lines]
        files.append(folder / f"sts-{split}.jsonl")
        write_rows(files[-1], rows)
    return files[0], files[1]


def questions(data: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes XQuAD's training questions as pairs, and a collection: the dev questions and all paragraphs."""
    collection, pairs, documents, queries, relevant = folder / "collection", [], [], [], []
    for split in ("train", "dev"):
        for article in json.loads((data / "squad" / f"xquad-en-{split}-v1.1.json").read_text())["data"]:
            for paragraph in article["paragraphs"]:
                documents.append({"_id": f"p{len(documents)}", "text": paragraph["context"]})
                for question in paragraph["qas"]:
                    if split == "train":
                        pairs.append({"anchor": question["question"], "positive": paragraph["context"]})
                    else:
                        queries.append({"_id": question["id"], "text": question["question"]})
                        relevant.append(f"{question['id']}\t{documents[-1]['_id']}\t1\n")
    (collection / "qrels").mkdir(parents=True)
    write_rows(folder / "pairs.jsonl", pairs)
    write_rows(collection / "corpus.jsonl", documents)
    write_rows(collection / "queries.jsonl", queries)
    (collection / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(relevant))
    return folder / "pairs.jsonl", collection


def our_command(recipe: Recipe, init: str, dev: pathlib.Path, output: pathlib.Path, dtype: str) -> list[str]:
    """Returns our command without training; `our_training` adds the training."""
    return [
        sys.executable, "-m", "bert_tf.run_embeddings", f"--init_checkpoint={init}", f"--eval_data_path={dev}",
        f"--output_dir={output}", f"--max_seq_length={recipe.max_seq_length}", "--do_eval", "--eval_batch_size=32",
        f"--dtype={dtype}",
    ]  # fmt: skip


def our_training(recipe: Recipe, train: pathlib.Path, learning_rate: float, seed: int, epochs: int) -> list[str]:
    """Returns the flags of training."""
    return [
        "--do_train", f"--train_data_path={train}", f"--learning_rate={learning_rate}", f"--random_seed={seed}",
        f"--num_train_epochs={epochs}", f"--train_batch_size={recipe.batch_size}",
    ]  # fmt: skip


def before(recipe: Recipe, begin: Start, dev: pathlib.Path, folder: pathlib.Path, dtype: str) -> float:
    """Returns the score without training."""
    output = folder / f"before-{recipe.name}-{begin.name}"
    timed(our_command(recipe, begin.folder, dev, output, dtype), folder / f"{output.name}.log")
    return our_score(output, recipe.metric)


def train_once(
    recipe: Recipe, begin: Start, files: tuple[pathlib.Path, pathlib.Path], folder: pathlib.Path, args, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Trains each peer with one seed; maps each peer to (wall-clock seconds, processor seconds, score)."""
    train, dev = files
    results = {}
    for peer in args.peers.split(","):
        output = folder / f"{recipe.name}-{begin.name}-{seed}-{peer}"
        if peer == "peer":
            command = [
                sys.executable, str(PEER), f"--model={begin.of_peer}", f"--train={train}", f"--dev={dev}",
                f"--output_dir={output}", f"--max_seq_length={recipe.max_seq_length}", f"--dtype={args.dtype}",
                f"--epochs={recipe.epochs}", f"--learning_rate={begin.learning_rate}", f"--seed={seed}",
                f"--batch_size={recipe.batch_size}",
            ]  # fmt: skip
        else:
            command = our_command(recipe, begin.folder, dev, output, args.dtype)
            command += our_training(recipe, train, begin.learning_rate, seed, recipe.epochs)
        seconds = timed(command, folder / f"{output.name}.log")
        score = peer_score(output) if peer == "peer" else our_score(output, recipe.metric)
        results[peer] = (*seconds, score)
        print(f"  {recipe.name} {begin.name} seed {seed} {peer}: {seconds[0]:.1f} s, {seconds[1]:.1f} processor-s, "
              f"{recipe.metric} {score:.4f}", flush=True)  # fmt: skip
    return results


def mined_once(
    recipe: Recipe, begin: Start, files: tuple[pathlib.Path, pathlib.Path], folder: pathlib.Path, dtype: str, seed: int
) -> dict[str, float]:
    """Trains the model of `train_once` for one more epoch; returns the scores with the pairs, and with negatives."""
    pairs, collection = files
    model = folder / f"{recipe.name}-{begin.name}-{seed}-bert_tf"
    mined = folder / f"mined-{begin.name}-{seed}.jsonl"
    command = [
        sys.executable, "-m", "bert_tf.mine_negatives", f"--init_checkpoint={model}", f"--input_file={pairs}",
        f"--corpus_file={collection / 'corpus.jsonl'}", f"--output_file={mined}", "--max_rank=20",
        f"--random_seed={seed}", f"--max_seq_length={recipe.max_seq_length}",
    ]  # fmt: skip
    timed(command, folder / "mine.log")
    scores = {}
    for name, train in (("pairs", pairs), ("mined", mined)):
        output = folder / f"second-{name}-{begin.name}-{seed}"
        command = our_command(recipe, str(model), collection, output, dtype)
        command += our_training(recipe, train, begin.learning_rate, seed, epochs=1)
        timed(command, folder / f"{output.name}.log")
        scores[name] = our_score(output, recipe.metric)
    print(f"  {begin.name} seed {seed}: one more epoch of pairs {scores['pairs']:.4f}, of mined negatives "
          f"{scores['mined']:.4f}", flush=True)  # fmt: skip
    return scores


def english(data: pathlib.Path) -> list[str]:
    """Returns the lines of the English text with at least five words."""
    lines = (data / "corpus" / "english.txt").read_text().splitlines()
    return [line for line in lines if len(line.split()) >= 5]


def memory(data: pathlib.Path, folder: pathlib.Path, dtype: str) -> None:
    """Prints the highest memory of one epoch with MiniLM, for micro-batches and for whole batches."""
    lines = english(data)[: 2 * MEMORY_PAIRS]
    train = folder / "memory.jsonl"
    write_rows(train, [{"anchor": a, "positive": b} for a, b in zip(lines[::2], lines[1::2], strict=True)])
    recipe = dataclasses.replace(STS, max_seq_length=MEMORY_LENGTH)
    for batch, parts in ((32, 1), (1024, 32), (1024, 1)):
        output = folder / f"memory-{batch}-{parts}"
        command = our_command(recipe, checkpoint(), train, output, dtype)
        command.remove("--do_eval")
        sized = dataclasses.replace(recipe, batch_size=batch)
        command += [*our_training(sized, train, 2e-5, 0, 1), f"--gradient_accumulation_steps={parts}"]
        with open(folder / f"{output.name}.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            _, status, usage = os.wait4(process.pid, 0)
        peak = f"{usage.ru_maxrss / 2**20:.2f} GiB" if status == 0 else "failed"
        print(f"batch {batch:5} in {parts:2} micro-batches: {peak} at most", flush=True)


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="sts,retrieval,simcse,memory")
    parser.add_argument(
        "--checkpoints", default="minilm", help="minilm, or folders of our checkpoints; comma-separated"
    )
    parser.add_argument("--peers", default="bert_tf,peer", help="comma-separated, from bert_tf, peer")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--logs", type=pathlib.Path, help="folder that receives the logs of all commands")
    args = parser.parse_args()
    if "BERT_TF_DATA" not in os.environ:
        print("vectors of texts are not compared; set BERT_TF_DATA to the folder of the real data")
        return
    data, parts = pathlib.Path(os.environ["BERT_TF_DATA"]).resolve(), args.parts.split(",")
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            scored, asked = scored_pairs(data, folder), questions(data, folder)
            texts = folder / "texts.jsonl"
            lines = english(data)
            write_rows(texts, [{"text": line} for line in lines[:: len(lines) // SENTENCES][:SENTENCES]])
            for begin in [start(name, folder) for name in args.checkpoints.split(",")]:
                measure(begin, scored, asked, texts, folder, args, parts)
            if "memory" in parts:
                memory(data, folder, args.dtype)
        finally:
            if args.logs:
                args.logs.mkdir(parents=True, exist_ok=True)
                for log in folder.glob("*.log"):
                    shutil.copy(log, args.logs)


def measure(begin: Start, scored, asked, texts: pathlib.Path, folder: pathlib.Path, args, parts: list[str]) -> None:
    """Prints the results of all parts for one checkpoint."""
    seeds = range(args.seeds)
    for part, recipe, files in (
        ("sts", STS, scored),
        ("retrieval", RETRIEVAL, asked),
        ("simcse", SIMCSE, (texts, scored[1])),
    ):
        if part not in parts:
            continue
        recipe = dataclasses.replace(recipe, max_seq_length=min(recipe.max_seq_length, begin.positions))
        print(f"{recipe.name} {begin.name}: {recipe.metric} before training "
              f"{before(recipe, begin, files[1], folder, args.dtype):.4f}", flush=True)  # fmt: skip
        rounds = [train_once(recipe, begin, files, folder, args, seed) for seed in seeds]
        report(f"{recipe.name} {begin.name}", rounds, recipe.metric)
        if part == "retrieval":
            more = [mined_once(recipe, begin, files, folder, args.dtype, seed) for seed in seeds]
            for name in ("pairs", "mined"):
                print(f"one more epoch of {name}: {statistics.mean(scores[name] for scores in more):.4f}", flush=True)


if __name__ == "__main__":
    main()
