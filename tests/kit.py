"""What most tests need: files of rows, scripts that run in this process, trained runs, and one-line refusals."""

import dataclasses
import importlib
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pandas
import pytest

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from tests.bert_tf.tasks import small_runs
from tests.small_configs import small_config

# Flags of training scripts that a test does not give.
TINY = {"max_seq_length": 24, "train_batch_size": 8, "learning_rate": 3e-3}
SCRIPTS_OF_KINDS = {
    "classification": "run_classifier", "regression": "run_classifier", "questions": "run_squad",
    "tagging": "run_ner", "tagging_bilstm": "run_ner", "choice": "run_swag", "embeddings": "run_embeddings",
}  # fmt: skip


def refused(match: str, call: Callable, /, *args, **kwargs) -> str:
    """Calls a function that refuses its input; returns the message, which is one line in which `match` is found."""
    with pytest.raises(InputError, match=match) as error:
        call(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message, message
    return message


def write(path: pathlib.Path, content) -> pathlib.Path:
    """Writes a file and its folders; returns the path.

    `content`: text, bytes, or rows as a list of dicts or a DataFrame. The file's extension selects the form of rows:
      .jsonl, .json, .csv, .tsv or .parquet. Rows of JSON may have different keys.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    elif path.suffix in (".jsonl", ".json") and not isinstance(content, pandas.DataFrame):
        rows = [json.dumps(row) for row in content]
        text = "".join(f"{row}\n" for row in rows) if path.suffix == ".jsonl" else f"[{', '.join(rows)}]"
        path.write_text(text, encoding="utf-8")
    else:
        _write_table(path, pandas.DataFrame(content))
    return path


def _write_table(path: pathlib.Path, table: pandas.DataFrame) -> None:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix in (".jsonl", ".json"):
        table.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


def read_jsonl(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def script_parts(script: str) -> tuple[type, Callable]:
    """Returns the settings class and the main function of a script, such as "run_ner" or "export.export_saved_model";
    scripts without a package are those of `bert_tf`."""
    module = importlib.import_module(script if "." in script else f"bert_tf.{script}")
    return module.run.args[:2]


def as_flags(**named: Any) -> list[str]:
    """Returns flags in the command line's form; True and False are --name and --noname."""
    return [
        (f"--{name}" if value else f"--no{name}") if isinstance(value, bool) else f"--{name}={value}"
        for name, value in named.items()
    ]


def settings(script: str, *flags: str, **named: Any):
    """Returns the parsed flags of a script; of equal flags, the last one counts."""
    return parse(script_parts(script)[0], [*flags, *as_flags(**named)])


def run(script: str, *flags: str, **named: Any):
    """Runs a script in this process; returns what its main function returns."""
    return script_parts(script)[1](settings(script, *flags, **named))


@dataclasses.dataclass(frozen=True)
class Project:
    """A folder with files and runs of a tiny model."""

    folder: pathlib.Path
    vocab_file: str
    shared: pathlib.Path  # the folder of the runs that all tests of a process share

    def config_file(self) -> pathlib.Path:
        """Returns `config.json` in the folder; writes a tiny configuration unless a test has written another."""
        path = self.folder / "config.json"
        return path if path.exists() else write(path, small_config().to_json_string())

    def flags(self, script: str, *flags: str, **named: Any) -> list[str]:
        """Returns flags of a script; for a training script, flags of a tiny model and a short run precede them.

        The folder of the run is "run" in the project's folder.
        """
        names = [field.name for field in dataclasses.fields(script_parts(script)[0])]
        defaults = {}
        if "do_train" in names:
            files = {"bert_config_file": self.config_file(), "vocab_file": self.vocab_file}
            defaults = files | {"output_dir": self.folder / "run", "num_train_epochs": 1} | TINY
        given = as_flags(**{name: value for name, value in defaults.items() if name in names})
        return [*given, *flags, *as_flags(**named)]

    def settings(self, script: str, *flags: str, **named: Any):
        return settings(script, *self.flags(script, *flags, **named))

    def run(self, script: str, *flags: str, **named: Any):
        return run(script, *self.flags(script, *flags, **named))

    def run_kind(self, kind: str, output_dir: pathlib.Path, *flags: str, **named: Any) -> dict[str, float]:
        """Runs the script of a kind in `small_runs` on data of the kind, which is the same in all splits."""
        data = self.shared / "data"
        if not data.exists():
            small_runs.write_data(data)
        script, own = SCRIPTS_OF_KINDS[kind], [flag.format(data) for flag in small_runs.KINDS[kind][2]]
        path = next(flag.partition("=")[2] for flag in own if flag.startswith("--train_"))
        splits = dict.fromkeys(script_parts(script)[0].path_flags.values(), path)
        shape = {"bert_config_file": data / "config.json", "output_dir": output_dir, "max_seq_length": 32}
        return self.run(script, *own, *flags, **splits, **shape, **named)

    def trained(self, kind: str) -> pathlib.Path:
        """Returns the folder of a run of a kind that has learned, evaluated and predicted its data.

        Tests must not change it; see `copy_of_trained`.
        """
        folder = self.shared / kind
        if not folder.exists():
            do = ("--do_train", "--do_eval", "--do_predict")
            self.run_kind(kind, folder, *do, num_train_epochs=20, learning_rate=5e-3)
        return folder

    def copy_of_trained(self, kind: str) -> pathlib.Path:
        """Returns a copy of `trained` in the project's folder, which a test may change."""
        return shutil.copytree(self.trained(kind), self.folder / f"trained_{kind}")
