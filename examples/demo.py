"""The complete workflow from real text to a served model, in a few minutes on two cores.

  make demo

The text comes with every installation of CPython (see demo_text.py). The stages print and run commands of this project,
which also work on other text.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import demo_text

OUT = pathlib.Path("demo_output")
SEEDS = (1, 2)
PRETRAIN_STEPS = 2400
MODEL = {
    "vocab_size": 2500,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    # A model this narrow learns sooner with larger initial weights than the paper's 0.02.
    "initializer_range": 0.08,
}
SENTENCES = (
    "The widget is drawn again whenever the window changes its size.",
    "Is the changes window its widget drawn size whenever again the.",
    "Cancel the task and wait until the other thread has finished.",
    "Until task and the other has wait thread cancel the finished.",
    "If the file does not exist, this function creates a new file.",
    "File the not this if does creates a exist new, function file.",
)


# Printed at the end.
TRY = f"""
Ask about sentences of your own, of 8 words or more:

  .venv/bin/python -m export.serve --model_name=demo --model_base_path={OUT}/model --rest_api_port=8501
  curl -d '{{"inputs": ["Your own sentence."]}}' http://127.0.0.1:8501/v1/models/demo:predict"""


@dataclasses.dataclass
class Stage:
    """One row of the final table: the stage, its duration and its result."""

    name: str
    seconds: float = 0.0
    result: str = ""


def main() -> None:
    """Runs every stage, then prints the table and writes the report."""
    started = time.monotonic()
    if (OUT / "demo.json").exists():  # an earlier demo wrote the folder
        shutil.rmtree(OUT)
    OUT.mkdir(exist_ok=False)
    (OUT / "demo.json").write_text("{}\n")
    stages: list[Stage] = []
    rows = run_stage(stages, "text", collect_text)
    run_stage(stages, "vocabulary", learn_vocabulary)
    run_stage(stages, "examples", create_examples)
    evaluations = run_stage(stages, "pre-training", pretrain)
    scores = run_stage(stages, "fine-tuning", lambda: finetune(rows))
    run_stage(stages, "export", export)
    answers = run_stage(stages, "serving", serve)

    print("\nAnswers of the exported model over HTTP: are the words in the right order?\n")
    for sentence, label, probabilities in zip(SENTENCES, answers["label"], answers["probabilities"], strict=True):
        print(f"  {label:<10} {max(probabilities):.2f}  {sentence}")
    print(TRY)
    stages.append(Stage("all", time.monotonic() - started, "report: demo_output/report.html"))
    print("\n" + table(stages))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import demo_report  # imported last, because it imports TensorFlow

    served = list(zip(SENTENCES, answers["label"], map(max, answers["probabilities"]), strict=True))
    report = demo_report.render(stages, evaluations, scores, served)
    (OUT / "report.html").write_text(report, encoding="utf-8")


def run_stage(stages: list[Stage], name: str, work):
    """Runs one stage and returns its value for later stages.

    Args:
      stages: the rows of the table; the function appends the stage.
      name: name of the stage.
      work: function that runs the stage; returns its result for the table, and its value for later stages.
    """
    print(f"\n== {name}", flush=True)
    started = time.monotonic()
    result, value = work()
    stages.append(Stage(name, time.monotonic() - started, result))
    print(f"   {result}", flush=True)
    return value


def command(*words: str, show: bool = True, side_by_side: bool = False) -> subprocess.Popen:
    """Prints and starts one of the project's commands.

    Args:
      *words: the command and its flags.
      show: whether to print the command.
      side_by_side: whether another command runs at the same time. If so, this command uses one thread and shows no
        progress.
    """
    if show:
        print("$ " + " ".join(words), flush=True)
    program = pathlib.Path(sys.executable).parent / words[0]
    environment = os.environ | ({"TF_NUM_INTRAOP_THREADS": "1"} if side_by_side else {})
    output = subprocess.PIPE if side_by_side else None
    return subprocess.Popen([str(program), *words[1:]], env=environment, stderr=output, text=True)


def finish(process: subprocess.Popen) -> None:
    """Waits for a command; if the command fails, ends the demo with the command's error output."""
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"{errors or ''}the demo stops: {' '.join(process.args)} ended with exit code {process.returncode}")


def collect_text():
    """Writes the training and held-out documents, and the data of the classification task, from CPython's text."""
    modules = demo_text.read_modules()
    train = demo_text.write_corpus(modules, OUT / "train.txt", dev=False)
    dev = demo_text.write_corpus(modules, OUT / "dev.txt", dev=True)
    rows = demo_text.write_task(modules, OUT / "task")
    result = (
        f"{train} sentences for training, {dev} held out; task: are the words of a sentence in the right order? "
        f"{len(rows['train'])} train and {len(rows['dev'])} dev sentences"
    )
    return result, rows


def learn_vocabulary():
    """Learns a vocabulary from the training documents only, and writes model configurations for this vocabulary."""
    flags = [f"--input_file={OUT}/train.txt", f"--output_file={OUT}/vocab.txt", f"--vocab_size={MODEL['vocab_size']}"]
    finish(command("learn_vocab", *flags))
    for name, dropout in (("bert_config", 0.0), ("finetuning_config", 0.1)):
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        (OUT / f"{name}.json").write_text(json.dumps(MODEL | rates, indent=2) + "\n")
    return f"{len((OUT / 'vocab.txt').read_text().splitlines())} tokens", None


ROW_FLAGS = ("--max_seq_length=32", "--max_predictions_per_seq=6")


def create_examples():
    """Creates masked rows in ten passes over the training documents and one pass over the held-out documents."""
    for split, dupes in (("train", 10), ("dev", 1)):
        process = command(
            "create_pretraining_data",
            f"--input_file={OUT}/{split}.txt",
            f"--output_file={OUT}/{split}.tfrecord",
            f"--vocab_file={OUT}/vocab.txt",
            "--masked_lm_prob=0.2",
            f"--dupe_factor={dupes}",
            *ROW_FLAGS,
        )
        finish(process)
    train, dev = (sum(shard["examples"] for shard in read_manifest(split)["shards"]) for split in ("train", "dev"))
    return f"{train} for training, {dev} held out", None


def read_manifest(split: str) -> dict:
    """Returns the manifest that create_pretraining_data wrote."""
    return json.loads((OUT / f"{split}.tfrecord.manifest.json").read_text())


def pretrain():
    """Pre-trains a model, and evaluates every checkpoint on held-out documents."""
    process = command(
        "run_pretraining",
        f"--bert_config_file={OUT}/bert_config.json",
        f"--input_file={OUT}/train.tfrecord",
        f"--eval_input_file={OUT}/dev.tfrecord",
        f"--output_dir={OUT}/pretrained",
        "--do_train",
        "--do_eval",
        "--train_batch_size=64",
        "--eval_batch_size=64",
        "--max_eval_steps=30",
        f"--num_train_steps={PRETRAIN_STEPS}",
        f"--num_warmup_steps={PRETRAIN_STEPS // 10}",
        "--learning_rate=1e-3",
        f"--save_checkpoints_steps={PRETRAIN_STEPS // 8}",
        *ROW_FLAGS,
    )
    finish(process)
    values = read_metrics(OUT / "pretrained")
    evaluations = [entry for entry in values if entry["split"] == "eval"]
    first, last = evaluations[0], evaluations[-1]
    random_next = read_manifest("dev")["random_next_share"]
    result = (
        f"held out: masked-LM accuracy {first['masked_lm_accuracy']:.3f} -> {last['masked_lm_accuracy']:.3f}, "
        f"loss {first['masked_lm_loss']:.2f} -> {last['masked_lm_loss']:.2f}, "
        f"NSP accuracy {first['next_sentence_accuracy']:.3f} -> {last['next_sentence_accuracy']:.3f} "
        f"(majority {max(random_next, 1 - random_next):.3f})"
    )
    return result, values


def read_metrics(folder: pathlib.Path) -> list[dict]:
    """Returns the metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def finetune(rows):
    """Fine-tunes two models per seed side by side, one with and one without pre-training."""
    accuracies: dict[str, list[float]] = {"pretrained": [], "scratch": []}
    for seed in SEEDS:
        processes = [
            command(
                "run_classifier",
                "--task_name=own",
                f"--data_dir={OUT}/task",
                f"--vocab_file={OUT}/vocab.txt",
                f"--bert_config_file={OUT}/finetuning_config.json",
                f"--output_dir={OUT}/{kind}-{seed}",
                "--max_seq_length=32",
                "--do_train",
                "--do_eval",
                "--train_batch_size=32",
                "--eval_batch_size=64",
                "--learning_rate=5e-4",
                "--num_train_epochs=3",
                "--pack_sequences",
                f"--random_seed={seed}",
                *([f"--init_checkpoint={OUT}/pretrained"] if kind == "pretrained" else []),
                show=seed == SEEDS[0],
                side_by_side=True,
            )
            for kind in accuracies
        ]
        for kind, process in zip(accuracies, processes, strict=True):
            finish(process)
            accuracies[kind].append(read_metrics(OUT / f"{kind}-{seed}")[-1]["accuracy"])
        print(
            f"seed {seed}: " + ", ".join(f"{kind} {values[-1]:.3f}" for kind, values in accuracies.items()), flush=True
        )
    labels = [label for _, label in rows["dev"]]
    majority = max(labels.count(label) for label in set(labels)) / len(labels)
    result = (
        f"dev accuracy over {len(SEEDS)} seeds: {spread(accuracies['pretrained'])} pre-trained, "
        f"{spread(accuracies['scratch'])} without; majority class {majority:.3f}"
    )
    return result, accuracies | {"majority": [majority]}


def spread(values: list[float]) -> str:
    """Returns the mean and the range of values as text."""
    return f"{sum(values) / len(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def export():
    """Exports the first seed's classifier."""
    flags = [f"--checkpoint_dir={OUT}/pretrained-{SEEDS[0]}", f"--export_dir={OUT}/model/1"]
    finish(command("export_saved_model", *flags))
    size = sum(path.stat().st_size for path in (OUT / "model").rglob("*") if path.is_file())
    return f"demo_output/model/1, {size / 1e6:.0f} MB", None


def serve():
    """Serves the exported model with the local server, and sends a request over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--model_name=demo", f"--model_base_path={OUT}/model", f"--rest_api_port={port}", "--port=0"]
    server = command("python", "-m", "export.serve", *flags)
    try:
        url = f"http://127.0.0.1:{port}/v1/models/demo"
        wait_for(url, server)
        print(f"""$ curl -d '{{"inputs": ["{SENTENCES[0]}", ...]}}' {url}:predict""", flush=True)
        with urllib.request.urlopen(f"{url}:predict", json.dumps({"inputs": SENTENCES}).encode(), timeout=60) as answer:
            outputs = json.load(answer)["outputs"]
    finally:
        server.terminate()
        server.wait(60)
    return f"{len(SENTENCES)} raw strings answered over HTTP", outputs


def wait_for(url: str, server: subprocess.Popen) -> None:
    """Waits until a server answers; ends the demo if the server ends first."""
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if server.poll() is not None:
                sys.exit(f"the demo stops: the server ended with exit code {server.returncode}")
            time.sleep(0.2)


def table(stages: list[Stage]) -> str:
    """Returns the final table."""
    lines = [f"{'stage':<13} {'seconds':>7}  result", "-" * 100]
    return "\n".join(lines + [f"{s.name:<13} {s.seconds:>7.1f}  {s.result}" for s in stages])


if __name__ == "__main__":
    main()
