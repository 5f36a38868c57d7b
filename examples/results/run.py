"""The experiment of docs/background/results.md: bidirectional attention and the next-sentence task, at a small size.

  make setup && .venv/bin/python examples/results/run.py --data=path/to/data

The data folder must contain `corpus/english.txt` (one sentence per line, a blank line between documents) and `glue/`.
The experiment takes about two hours on two cores. If it is interrupted, the same command resumes. All output goes to
`results_output/`; docs/background/results.md shows table.md and curves.png.

Paper: section 5.1, table 5.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import matplotlib

OUT = pathlib.Path("results_output")
RECIPES = pathlib.Path("examples/results")
# For each model, the name of its recipe and folder, and its title in the table.
PRETRAINED = (
    ("bert", "masked LM + next sentence"),
    ("no_nsp", "masked LM (No NSP)"),
    ("ltr", "left to right (LTR & No NSP)"),
)
# For each task, its name, its metric in the table, and the number of epochs.
TASKS = (("MRPC", "f1", 3.0), ("SST-2", "accuracy", 0.15))
SEEDS = (1, 2, 3)
HELD_OUT_CHARACTERS = 400_000
SIDE_BY_SIDE = 2


def main() -> None:
    """Generates the data, pre-trains and fine-tunes all models, and writes the table and the curves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with corpus/english.txt and glue/")
    data = parser.parse_args().data
    for needed in (data / "corpus/english.txt", *(data / "glue" / task / "dev.tsv" for task, _, _ in TASKS)):
        if not needed.exists():
            sys.exit(f"error: {needed}: no such file; give its folder with --data")
    OUT.mkdir(exist_ok=True)
    make_data(data / "corpus/english.txt")
    run_all([(f"pretrain {name}", pretraining(name)) for name, _ in PRETRAINED])
    run_all([(f"finetune {folder}", words) for folder, words in finetuning(data).items()])
    (OUT / "table.md").write_text(table())
    draw_curves()
    print(table())


def make_data(corpus: pathlib.Path) -> None:
    """Holds out some documents, learns a vocabulary from the others, and generates masked and unmasked pairs."""
    documents = [text.strip() for text in corpus.read_text(encoding="utf-8").split("\n\n") if text.strip()]
    random.Random(0).shuffle(documents)
    held_out, size = [], 0
    while size < HELD_OUT_CHARACTERS:
        held_out.append(documents.pop())
        size += len(held_out[-1])
    for split, texts in (("train", documents), ("dev", held_out)):
        path = OUT / f"{split}.txt"
        text = "\n\n".join(texts) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    if not (OUT / "vocab.txt").exists():
        flags = [f"--input_file={OUT}/train.txt", f"--output_file={OUT}/vocab.txt", "--vocab_size=8000"]
        run_all([("vocabulary", ["learn_vocab", *flags])])
    for split, dupes in (("train", 10), ("dev", 1)):
        for name, masking in (("pairs", "static"), ("unmasked", "dynamic")):
            flags = [f"--flagfile={RECIPES}/data.flags", f"--input_file={OUT}/{split}.txt", f"--masking={masking}",
                     f"--output_file={OUT}/{name}_{split}.tfrecord", f"--dupe_factor={dupes}"]  # fmt: skip
            run_all([(f"{name} {split}", ["create_pretraining_data", *flags])])


def pretraining(name: str) -> list[str]:
    """Returns the command of one pre-training run."""
    return ["run_pretraining", f"--flagfile={RECIPES}/{name}.flags"]


def finetuning(data: pathlib.Path) -> dict[str, list[str]]:
    """Maps the folder of each unfinished fine-tuning run to its command."""
    commands = {}
    for task, _, epochs in TASKS:
        for seed in SEEDS:
            for name, _ in PRETRAINED:
                folder = f"{task}-{name}-{seed}"
                looks = "ltr" if name == "ltr" else "bidi"
                words = [
                    "run_classifier", f"--flagfile={RECIPES}/finetune.flags", f"--task_name={task}",
                    f"--data_dir={data}/glue/{task}", f"--num_train_epochs={epochs}", f"--random_seed={seed}",
                    f"--bert_config_file={RECIPES}/finetune_{looks}.json", f"--output_dir={OUT}/{folder}",
                    f"--init_checkpoint={OUT}/{name}",
                ]  # fmt: skip
                if not (OUT / folder / "eval_results.txt").exists():
                    commands[folder] = words
    return commands


def run_all(jobs: list[tuple[str, list[str]]]) -> None:
    """Runs `SIDE_BY_SIDE` commands at a time, with their output in log files; exits if a command fails."""
    waiting, running = collections.deque(jobs), {}
    environment = os.environ | {"TF_NUM_INTRAOP_THREADS": str(max(1, (os.cpu_count() or 1) // SIDE_BY_SIDE))}
    while waiting or running:
        while waiting and len(running) < SIDE_BY_SIDE:
            name, words = waiting.popleft()
            log = OUT / f"{name.replace(' ', '-')}.log"
            program = pathlib.Path(sys.executable).parent / words[0]
            print(f"{time.strftime('%H:%M:%S')} {name} (log: {log})", flush=True)
            with open(log, "w") as file:
                running[subprocess.Popen([program, *words[1:]], env=environment, stderr=file)] = log
        time.sleep(0.5)
        for process in [process for process in running if process.poll() is not None]:
            log = running.pop(process)
            if process.returncode:
                for other in running:
                    other.terminate()
                sys.exit(f"{log.read_text()}\nthe experiment stops; see {log}")


def metrics(folder: str, split: str) -> list[dict]:
    """Returns the metrics of one split of a run."""
    lines = (OUT / folder / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["split"] == split]


def table() -> str:
    """Returns a Markdown table of dev scores, with mean and range over the seeds."""
    heads = [f"{task} ({metric})" for task, metric, _ in TASKS]
    lines = [f"| pre-training | {' | '.join(heads)} | mean |", "|---" * (len(heads) + 2) + "|"]
    for name, title in PRETRAINED:
        cells, means = [], []
        for task, metric, _ in TASKS:
            scores = [100 * metrics(f"{task}-{name}-{seed}", "dev")[-1][metric] for seed in SEEDS]
            means.append(statistics.mean(scores))
            cells.append(f"{means[-1]:.1f} ({min(scores):.1f}-{max(scores):.1f})")
        lines.append(f"| {title} | {' | '.join(cells)} | {statistics.mean(means):.1f} |")
    return "\n".join(lines) + "\n"


def draw_curves() -> None:
    """Plots the loss and accuracy of predictions over the share of the compute, for training and held-out data."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.4))
    panels = (
        ("masked_lm_loss", "loss of predicted tokens (nats)"),
        ("masked_lm_accuracy", "accuracy of predicted tokens"),
        ("next_sentence_accuracy", "next-sentence accuracy"),
    )
    for axis, (metric_name, title) in zip(axes, panels, strict=True):
        for color, (name, label) in zip(("C0", "C1", "C2"), PRETRAINED, strict=True):
            for split, style in (("train", {"alpha": 0.35}), ("eval", {"marker": "o", "markersize": 3})):
                entries = [entry for entry in metrics(name, split) if metric_name in entry]
                if entries:
                    last = metrics(name, "train")[-1]["step"]
                    shares = [entry["step"] / last for entry in entries]
                    values = [entry[metric_name] for entry in entries]
                    axis.plot(shares, values, color=color, label=label if split == "eval" else None, **style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("share of the compute", fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(OUT / "curves.png", dpi=110)


if __name__ == "__main__":
    main()
