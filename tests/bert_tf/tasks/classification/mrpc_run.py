"""A small run of MRPC: its files and its settings."""

from bert_tf.core.command_line import parse
from bert_tf.run_classifier import main
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.small_configs import small_config

ROWS = [("the man said " + "well " * (i % 3), "he was there" if i % 2 else "all of you", str(i % 2)) for i in range(24)]


def write_inputs(folder) -> None:
    """Writes MRPC files in GLUE's layout, and a configuration."""
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    body = "".join(f"{label}\t1\t2\t{a}\t{b}\n" for a, b, label in ROWS)
    (folder / "train.tsv").write_text(head + body, encoding="utf-8")
    (folder / "dev.tsv").write_text(head + body, encoding="utf-8")
    test = "".join(f"{i}\t1\t2\t{a}\t{b}\n" for i, (a, b, _) in enumerate(ROWS[:5]))
    (folder / "test.tsv").write_text("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + test, encoding="utf-8")
    config = small_config(dropout=0.0, initializer_range=0.1)
    (folder / "config.json").write_text(config.to_json_string())


def settings(inputs, vocab_file, output_dir, *more: str) -> ClassifierSettings:
    return parse(
        ClassifierSettings,
        [
            f"--data_dir={inputs}", f"--bert_config_file={inputs}/config.json", "--task_name=mrpc",
            f"--vocab_file={vocab_file}", f"--output_dir={output_dir}", "--max_seq_length=24",
            "--train_batch_size=8", "--num_train_epochs=20", "--learning_rate=3e-3", *more,
        ],
    )  # fmt: skip


def train(inputs, vocab_file, output_dir, *more: str) -> dict[str, float]:
    """Runs the script with the flags of `settings`; returns the metrics of the evaluation."""
    return main(settings(inputs, vocab_file, output_dir, *more))
