"""Measures what a teacher brings to a model with fewer layers, and how fast the two models answer.

    BERT_TF_DATA=path/to/data python benchmarks/distillation.py --tasks=SST-2,MRPC --layers=2,3 --seeds=3

The teacher is the published checkpoint after fine-tuning with one seed. The students are its lowest layers. Each
student is trained alone, and with the teacher; for SST-2, also with the teacher and the texts of the other training
lines, without their labels; and for vectors, also with single sentences. For classes of single texts, the exports of
the teacher and of one student are then served, and clients ask both servers in turn.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

import machine
from embeddings import scored_pairs, write_rows
from finetuning import FILE_TASKS, FIRST_LINES, METRICS, TASKS, checkpoint, data_folder, our_score, timed
from serving import BATCHING, ask, free_port, read_sentences, started

CLIENTS, ROUNDS = (1, 32), 2
SENTENCES = 30_000  # single sentences for the teacher of vectors


@dataclasses.dataclass(frozen=True)
class Kind:
    """A task to distill.

    Attributes:
      script: name of the script.
      data: flags with the data.
      metric: name of the main metric.
      unlabeled: flags with more texts; empty without more texts.
      rate: learning rate of the teacher. Students need a higher one, twice as high here.
    """

    script: str
    data: tuple[str, ...]
    metric: str
    unlabeled: tuple[str, ...] = ()
    rate: float = 5e-5


def kind_of(name: str, data: pathlib.Path, folder: pathlib.Path) -> Kind:
    """Returns a task by the name that `--tasks` gives."""
    if name == "vectors":
        (train, dev), more = scored_pairs(data, folder), folder / "sentences.jsonl"
        write_rows(more, [{"text": text} for text in single_sentences(data)])
        files = (f"--train_data_path={train}", f"--eval_data_path={dev}")
        return Kind("run_embeddings", files, "spearman", (f"--unlabeled_data_path={more}",))
    if name in FILE_TASKS:
        task = FILE_TASKS[name]
        return Kind(task.script, (f"--train_data_path={data / task.train}", f"--eval_data_path={data / task.dev}"),
                    task.metric, rate=task.learning_rate)  # fmt: skip
    task = TASKS[name]
    flags = (f"--task_name={name}", f"--data_dir={data_folder(task, data, folder)}", "--max_seq_length=128")
    more = ()
    if task.lines:
        lines = (data / "glue" / name / "train.tsv").read_text("utf-8-sig").splitlines(keepends=True)
        (folder / "more.tsv").write_text("".join([lines[0], *lines[FIRST_LINES + 1 :]]))
        more = (f"--unlabeled_data_path={folder / 'more.tsv'}", f"--text_a_column={task.texts}")
    return Kind("run_classifier", flags, METRICS[task.metric], more)


def single_sentences(data: pathlib.Path) -> list[str]:
    """Returns the sentences of MRPC's training data, and random short lines of the English corpus."""
    pairs = (data / "glue" / "MRPC" / "train.tsv").read_text("utf-8-sig").splitlines()[1:]
    corpus = (data / "corpus" / "english.txt").read_text().split("\n")
    lines = [line.strip() for line in corpus if 20 <= len(line) < 149]
    random.Random(0).shuffle(lines)
    return list(dict.fromkeys([text for pair in pairs for text in pair.split("\t")[3:5]] + lines))[:SENTENCES]


def train(kind: Kind, output: pathlib.Path, rate: float, seed: int, *more: str) -> float:
    """Trains for three epochs; returns the dev score."""
    command = [
        sys.executable, "-m", f"bert_tf.{kind.script}", *kind.data, f"--init_checkpoint={checkpoint()}",
        f"--output_dir={output}", "--do_train", "--do_eval", "--eval_batch_size=32", f"--learning_rate={rate}",
        f"--random_seed={seed}", *more,
    ]  # fmt: skip
    seconds, _ = timed(command, output.with_name(f"{output.name}.log"))
    score = our_score(output, kind.metric)
    print(f"  {output.name}: {kind.metric} {score:.4f}, {seconds:.0f} s", flush=True)
    return score


def measure(name: str, kind: Kind, folder: pathlib.Path, args) -> list[pathlib.Path]:
    """Prints the scores of a task; returns the folders of the teacher and of the last kind of student, with seed 0."""
    teacher = folder / f"{name}-teacher"
    dtype = f"--dtype={args.dtype}"
    scores = {"teacher": [train(kind, teacher, kind.rate, 0, dtype)]}
    for layers in map(int, args.layers.split(",")):
        config = folder / f"{layers}.json"
        whole = json.loads((pathlib.Path(checkpoint()) / "config.json").read_text())
        config.write_text(json.dumps(whole | {"num_hidden_layers": layers}))
        student = (f"--transfer_layers={layers}", f"--bert_config_file={config}", dtype)
        ways = {"alone": (), "taught": (f"--teacher={teacher}",)}
        if kind.unlabeled and args.unlabeled:
            ways["more texts"] = (f"--teacher={teacher}", *kind.unlabeled)
        for way, flags in ways.items():
            last = folder / f"{name}-{layers}-{way.replace(' ', '-')}"
            for seed in range(args.seeds):
                found = train(kind, last.with_name(f"{last.name}-{seed}"), 2 * kind.rate, seed, *student, *flags)
                scores.setdefault(f"{layers} layers, {way}", []).append(found)
    for way, values in scores.items():
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name:12} {way:24} {kind.metric} {statistics.mean(values):.4f} +- {deviation:.4f} "
              f"({len(values)} seeds)", flush=True)  # fmt: skip
    return [teacher, last.with_name(f"{last.name}-0")]


def serve(runs: list[pathlib.Path], folder: pathlib.Path, args) -> None:
    """Exports runs, and prints their sizes and the speed of their servers, which clients ask in turn."""
    sentences, port = read_sentences(os.environ["BERT_TF_DATA"]), free_port()
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for run in runs:
        export = [sys.executable, "-m", "export.export_saved_model", f"--checkpoint_dir={run}"]
        timed([*export, f"--export_dir={folder}/served/{run.name}"], folder / "export.log")
        files = (folder / "served" / run.name).rglob("*")
        print(
            f"{run.name}: SavedModel of {sum(f.stat().st_size for f in files if f.is_file()) / 1e6:.0f} MB", flush=True
        )
    for _ in range(ROUNDS):
        for run in runs:
            command = [
                sys.executable, "-m", "export.serve", f"--model_base_path={folder}/served/{run.name}",
                f"--rest_api_port={port}", "--port=0", *BATCHING,
            ]  # fmt: skip
            with started(command, port):
                asyncio.run(ask(port, sentences, 32, 2))
                for clients in CLIENTS:
                    found.setdefault((run.name, clients), []).append(
                        asyncio.run(ask(port, sentences, clients, args.seconds))
                    )
    for clients in CLIENTS:
        for run in runs:
            rate, median, _ = max(found[run.name, clients])
            print(f"{run.name:28} {clients:3} clients {rate:8.1f} requests/s, p50 {median:6.1f} ms", flush=True)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="SST-2", help="comma-separated: SST-2, MRPC, CoLA, STS-B, WNUT-17, vectors")
    parser.add_argument("--layers", default="2", help="numbers of the students' layers, comma-separated")
    parser.add_argument("--dtype", default="float32", help="compute dtype of the training")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of each student")
    parser.add_argument("--unlabeled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seconds", type=float, default=5, help="how long the clients ask; 0: no server is measured")
    parser.add_argument("--runs", help="folders of finished runs to serve instead of training, comma-separated")
    args = parser.parse_args()
    if "BERT_TF_DATA" not in os.environ:
        print("distillation is not measured; set BERT_TF_DATA to the folder of the real data")
        return
    print(machine.describe(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder, data = pathlib.Path(made), pathlib.Path(os.environ["BERT_TF_DATA"]).resolve()
        if args.runs:
            serve([pathlib.Path(run).resolve() for run in args.runs.split(",")], folder, args)
            return
        for name in args.tasks.split(","):
            runs = measure(name, kind_of(name, data, folder), folder, args)
            if args.seconds and name in TASKS and "," not in TASKS[name].texts:  # the clients send single texts
                serve(runs, folder, args)


if __name__ == "__main__":
    main()
