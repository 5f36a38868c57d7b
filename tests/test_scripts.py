"""The scripts through their real command lines."""

import os
import pathlib
import subprocess
import sys

import pytest

import bert_tf

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = {
    "data_gen.learn_vocab": "--vocab_size",
    "data_gen.create_pretraining_data": "--dupe_factor",
    "bert_tf.run_pretraining": "--max_predictions_per_seq",
    "bert_tf.run_classifier": "--num_train_epochs",
    "bert_tf.run_swag": "--train_data_path",
    "bert_tf.extract_features": "--sentence_vectors",
    "bert_tf.run_squad": "--doc_stride",
    "bert_tf.run_ner": "--test_data_path",
    "bert_tf.convert_checkpoint": "--extended_vocab_file",
    "bert_tf.score_text": "--num_guesses",
    "export.export_saved_model": "--export_dir",
    "bert_tf.glue_submission": "--run_dirs",
}
# Scripts that google-research/bert has too, whose users start them by their paths.
BY_PATH = [
    "data_gen.create_pretraining_data",
    *(f"bert_tf.{name}" for name in ("run_pretraining", "run_classifier", "run_squad", "extract_features")),
]
# Modules whose command has another name.
COMMANDS = {
    "data_gen.show": ("show_tfrecords", "--num_examples"),
    "export.serve": ("serve_saved_model", "--model_base_path"),
    "export.check": ("check_saved_model", "models/reviews/1"),
    "bert_tf.config": ("bert_config", "--vocab_size"),
    "bert_tf.report": ("bert_report", "Several folders"),
}
MODULES = {module: (module.split(".")[1], text) for module, text in SCRIPTS.items()} | COMMANDS


def run(*command, cwd=None) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("module", MODULES)
def test_help_shows_flags_without_tensorflow_import(module, tmp_path):
    by_module = run(sys.executable, "-X", "importtime", "-m", module, "--help", cwd=tmp_path)
    assert by_module.returncode == 0
    command, text = MODULES[module]
    assert text in by_module.stdout and f"\n{command} " in by_module.stdout
    assert "tensorflow" not in by_module.stderr and "numpy" not in by_module.stderr


# the flush at the end fails, or the first write
@pytest.mark.parametrize(
    "module, unbuffered", [("bert_tf.run_pretraining", ""), ("bert_tf.run_pretraining", "1"), ("bert_tf.report", "1")]
)
def test_help_that_nobody_reads_to_its_end_is_no_error(module, unbuffered, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)  # like head after its last line
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"], stdout=output, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, cwd=tmp_path, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--no_such_flag=1"], ["--vocab_size=many"], ["--flagfile=nothing"], []])
def test_a_wrong_flag_is_one_line_and_exit_code_1(words, tmp_path):
    done = run(sys.executable, "-m", "data_gen.learn_vocab", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and done.stderr.endswith(" (--help lists the flags)\n")
    assert done.stderr.count("\n") == 1


def test_a_script_tells_its_version(tmp_path):
    done = run(sys.executable, "-m", "bert_tf.run_classifier", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bert_tf {bert_tf.__version__}\n", "")


@pytest.mark.parametrize("module", [*COMMANDS, *BY_PATH])
def test_module_path_and_console_command_are_the_same(module, tmp_path):
    name, text = MODULES[module]
    command = run(pathlib.Path(sys.executable).parent / name, "--help", cwd=tmp_path)
    assert (command.returncode, command.stderr) == (0, "") and text in command.stdout
    if module in BY_PATH:
        by_path = run(sys.executable, ROOT / (module.replace(".", "/") + ".py"), "--help", cwd=tmp_path)
        of_flags = [
            [line for line in done.stdout.splitlines() if line.startswith("  -")] for done in (by_path, command)
        ]
        assert of_flags[0] == of_flags[1] != []


def test_flags_are_checked_before_tensorflow_import(tmp_path):
    done = run(
        sys.executable, "-X", "importtime", "-m", "bert_tf.run_pretraining", "--bert_config_file=a", "--input_file=b",
        "--output_dir=c", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: nothing to do: give --do_train, --do_eval or both" in done.stderr
    assert "tensorflow" not in done.stderr


def test_a_package_has_the_files_beside_its_code(tmp_path):
    done = run(sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_py", "--build-lib", tmp_path,
               cwd=ROOT)  # fmt: skip
    assert done.returncode == 0, done.stderr
    installed = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    packages = {path.parts[0] for path in installed}
    here = [path.relative_to(ROOT) for package in packages for path in (ROOT / package).rglob("*") if path.is_file()]
    assert "bert_tf" in packages
    assert {path for path in here if path.suffix != ".pyc"} == set(installed)
