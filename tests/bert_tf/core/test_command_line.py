import dataclasses
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import typing

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from bert_tf import checkpoints, core
from bert_tf.core import command_line, help_text
from bert_tf.core.errors import InputError
from bert_tf.settings import (
    ConversionSettings,
    PretrainingSettings,
)
from bert_tf.tasks.classification import class_weights
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions.settings import SquadSettings
from data_gen.settings import GeneratorSettings, VocabularySettings
from tests import kit
from tests.kit import refused

GENERATE = ["--input_file=i", "--output_file=o", "--vocab_file=v"]
PRETRAIN = ["--bert_config_file=b", "--input_file=i", "--output_dir=o"]
CLASSIFY = ["--data_dir=d", "--bert_config_file=b", "--task_name=t", "--vocab_file=v", "--output_dir=o"]
LEARN = ["--input_file=i", "--output_file=o"]
SCRIPTS = (
    "run_classifier run_ner run_squad run_swag run_embeddings mine_negatives run_pretraining extract_features "
    "score_text convert_checkpoint glue_submission data_gen.create_pretraining_data data_gen.learn_vocab "
    "export.export_saved_model export.serve.__main__ benchmarks.compile_check.__main__"
)
ALL_SETTINGS = [kit.script_parts(script)[0] for script in SCRIPTS.split()]

# google-research/bert's TPU flags; a default of None there is "" here
DEVICE_DEFAULTS = {"use_tpu": False, "tpu_name": "", "tpu_zone": "", "gcp_project": "", "num_tpu_cores": 8}
TRAINING_DEFAULTS = {
    "init_checkpoint": "", "max_seq_length": 128, "train_batch_size": 32, "eval_batch_size": 8, "learning_rate": 5e-5,
    "save_checkpoints_steps": 1000, "iterations_per_loop": 1000, **DEVICE_DEFAULTS,
}  # fmt: skip
# None: true, unless the vocabulary is cased
GENERATOR_DEFAULTS = {
    "do_lower_case": None, "do_whole_word_mask": False, "max_seq_length": 128, "max_predictions_per_seq": 20,
    "random_seed": 12345, "dupe_factor": 10, "masked_lm_prob": 0.15, "short_seq_prob": 0.1,
}  # fmt: skip
# None: 20, the original's default, if the manifest does not give it, see `pretraining_data.inspect`
PRETRAINING_DEFAULTS = TRAINING_DEFAULTS | {
    "max_predictions_per_seq": None, "do_eval": False, "num_train_steps": 100000, "num_warmup_steps": 10000,
    "max_eval_steps": 100,
}  # fmt: skip
# None: true and 128, the original's defaults, unless a checkpoint or the run's folder says otherwise
CLASSIFIER_DEFAULTS = TRAINING_DEFAULTS | {
    "do_lower_case": None, "max_seq_length": None, "do_eval": False, "do_predict": False, "predict_batch_size": 8,
    "num_train_epochs": 3.0, "warmup_proportion": 0.1,
}  # fmt: skip


@pytest.mark.parametrize(
    "settings_class, arguments, expected",
    [
        (GeneratorSettings, GENERATE, GENERATOR_DEFAULTS),
        (PretrainingSettings, [*PRETRAIN, "--do_train"], PRETRAINING_DEFAULTS),
        (PretrainingSettings, [*PRETRAIN, "--do_eval"], {"do_train": False}),
        (ClassifierSettings, [*CLASSIFY, "--do_train"], CLASSIFIER_DEFAULTS),
        (ClassifierSettings, [*CLASSIFY, "--do_predict"], {"do_train": False}),
    ],
)
def test_defaults_are_those_of_google_research_bert(settings_class, arguments, expected):
    parsed = dataclasses.asdict(command_line.parse(settings_class, arguments))
    assert {name: parsed[name] for name in expected} == expected


@pytest.mark.parametrize(
    "settings_class, arguments",
    [(ClassifierSettings, ["--output_dir=o"]), (ConversionSettings, ["--input=i", "--output=o", "--format=tf1"])],
)
def test_every_flag_without_a_default_is_required(settings_class, arguments):
    for left_out in arguments:
        name = left_out[2:].split("=")[0]
        with pytest.raises(InputError, match=rf"^give --{name} \("):
            command_line.parse(settings_class, [word for word in arguments if word != left_out])
        with pytest.raises(InputError, match=f"^--{name} is empty; give a value$|--format=: value should be one of"):
            command_line.parse(settings_class, [*arguments, f"--{name}="])


@pytest.mark.parametrize(
    "settings_class, arguments, files",
    [
        (PretrainingSettings, [*PRETRAIN, "--do_train"], ["bert_config_file"]),
        (ClassifierSettings, [*CLASSIFY, "--do_train"], ["bert_config_file", "vocab_file"]),
    ],
)
def test_model_files_may_be_beside_the_checkpoint(settings_class, arguments, files):
    alone = dataclasses.replace(command_line.parse(settings_class, arguments), **dict.fromkeys(files, ""))
    message = (
        "--bert_config_file is missing" if len(files) == 1 else "^no model is given; give --init_checkpoint=FOLDER"
    )
    refused(message, checkpoints.model_files, alone, *files)
    with pytest.raises(InputError, match="^o: no such folder; give a folder where training has saved a checkpoint"):
        checkpoints.model_files(dataclasses.replace(alone, do_train=False, do_eval=True), *files)
    for file in files:
        rest = [word for word in arguments if not word.startswith(f"--{file}=")]
        parsed = command_line.parse(settings_class, rest)
        with pytest.raises(InputError, match=f"--{file} is missing; give it, or an --init_checkpoint whose folder has"):
            checkpoints.model_files(parsed, *files)
        parsed = dataclasses.replace(parsed, init_checkpoint="no-such-folder")
        refused("no-such-folder: no such checkpoint", checkpoints.model_files, parsed, *files)


def test_words_become_values_of_the_fields_types():
    parsed = command_line.parse(
        ClassifierSettings,
        [*CLASSIFY, "--do_train", "--nodo_lower_case", "--max_seq_length", "64", "--learning_rate=2e-5",
         "--do_predict=true", "--distribution_strategy=mirrored", "--num_train_epochs=2"],
    )  # fmt: skip
    assert (parsed.data_dir, parsed.task_name, parsed.output_dir) == ("d", "t", "o")
    assert (parsed.do_train, parsed.do_predict, parsed.do_lower_case) == (True, True, False)
    assert (parsed.max_seq_length, parsed.learning_rate, parsed.num_train_epochs) == (64, 2e-5, 2.0)
    assert parsed.distribution_strategy == "mirrored"


@pytest.mark.parametrize(
    "words, named",
    [
        (["--dtype=float8"], "--dtype=float8: value should be one of <float32|bfloat16|float16>"),
        (["--max_seq_length=many"], "--max_seq_length=many: invalid literal for int"),
        (["--no_such_flag=1"], "^--no_such_flag: no such flag$"),
        (["--batch_size=1"], "^--batch_size: no such flag; did you mean .*--train_batch_size"),
        (["--learning-rate=1"], "^--learning-rate: no such flag; did you mean --learning_rate?"),
        (["--epochs=1"], "^--epochs: no such flag; did you mean .*--num_train_epochs"),
        (["--init_checkpoint"], "Missing value for flag --init_checkpoint"),
        (["--do_train", "false"], "^unexpected argument 'false'; write flags as --name=value$"),
        (["--flagfile=nothing.flags"], "Unable to open flagfile: .*nothing.flags"),
    ],
)
def test_refuses_unknown_flags_and_invalid_values(words, named):
    refused(named, command_line.parse, ClassifierSettings, [*CLASSIFY, "--do_train", *words])


@pytest.mark.parametrize(
    "settings_class, arguments, message",
    [
        (VocabularySettings, [*LEARN, "--vocab_size=100", "--num_unused=91"], "at least 10 more than --num_unused=91"),
        (GeneratorSettings, [*GENERATE, "--input_file="], "--input_file is missing"),
        (GeneratorSettings, [*GENERATE, "--vocab_file="], "--vocab_file is missing"),
        (GeneratorSettings, [*GENERATE, "--max_predictions_per_seq=129"], "=129: must be at most --max_seq_length=128"),
        (GeneratorSettings, [*GENERATE, "--mask_fraction=0.7"], "they must add up to 1"),
        (GeneratorSettings, [*GENERATE, "--language=pt-BR"], "=pt-BR: is not a language code .*; give .* de"),
        (GeneratorSettings, [*GENERATE, "--language=german"], "--language=german: is not a language code"),
        (PretrainingSettings, PRETRAIN, "nothing to do: give --do_train, --do_eval"),
        (
            PretrainingSettings,
            [*PRETRAIN, "--do_train", "--num_train_steps=9", "--num_schedule_steps=8"],
            "--num_schedule_steps=8: .* 0 before training ends at --num_train_steps=9; give at least --num_schedule",
        ),
        (
            PretrainingSettings,
            [*PRETRAIN, "--do_train", "--num_train_steps=7", "--num_warmup_steps=9", "--num_schedule_steps=8"],
            "--num_warmup_steps=9: the learning-rate schedule ends earlier, at step 8",
        ),
        (ClassifierSettings, CLASSIFY, "nothing to do: give --do_train, --do_eval, --do_predict"),
        (ClassifierSettings, [*CLASSIFY, "--do_train", "--num_train_epochs=1e400"], "--num_train_epochs=inf.* finite"),
        (PretrainingSettings, [*PRETRAIN, "--do_train", "--num_gpus=2"], "needs --distribution_strategy=mirrored"),
    ],
)  # fmt: skip
def test_settings_that_contradict_name_the_flag(settings_class, arguments, message):
    refused(message, command_line.parse, settings_class, arguments)


@pytest.mark.parametrize("settings_class", ALL_SETTINGS)
def test_a_number_out_of_its_bounds_is_refused(settings_class):
    fields = dataclasses.fields(settings_class)
    for name, bounds in ((field.name, field.metadata["bounds"]) for field in fields):
        for bound, limit in bounds.items():
            beyond = {"above": limit, "below": limit, "at_least": limit - 1, "at_most": limit + 1}[bound]
            with pytest.raises(InputError, match=f"--{name}={beyond}: must be .*{bound.replace('_', ' ')} {limit}"):
                settings_class(**_given(settings_class) | {name: beyond})


def _given(settings_class, *names):
    """Returns the required flags, and other flags with a value that is not their default."""
    values = {}
    for field in dataclasses.fields(settings_class):
        kind = command_line._plain(typing.get_type_hints(settings_class)[field.name])
        others = {bool: [True, False], int: [1, 2], float: [0.5, 0.25], str: field.metadata["choices"] or ["x"]}[kind]
        if field.default is dataclasses.MISSING or field.name in names:
            values[field.name] = next(v for v in others if v not in (field.default, field.metadata["new_run"]))
    return values


@pytest.mark.parametrize("settings_class", ALL_SETTINGS)
def test_flags_need_and_exclude_what_they_declare(settings_class):
    fields = {field.name: field for field in dataclasses.fields(settings_class)}
    for name, field in fields.items():
        needed, contrary = field.metadata["only_with"], field.metadata["not_with"]
        values = _given(settings_class, name)
        if needed:
            wanted = dict(re.findall(r"(\w+)=(\w+)", needed))
            others = {flag: next(c for c in fields[flag].metadata["choices"] if c != wanted[flag]) for flag in wanted}
            refused(f"^--{name} needs --(.*); add --\\1, or drop --{name}$", settings_class, **others | values)
            assert field.metadata["help"].startswith(f"with --{needed.split()[0]}")
        for other, _, value in (flag.partition("=") for flag in contrary):
            kind = command_line._plain(typing.get_type_hints(settings_class)[other])
            both = values | ({other: kind(value)} if value else _given(settings_class, other))
            with pytest.raises(InputError, match=f"^--{name} contradicts --{other}.*; drop one of them$"):
                settings_class(**both, **{flag: True for flag in needed.split(" and ") if flag})


SCRIPT = """
import dataclasses, os, signal, sys, time
from bert_tf.core import command_line
from bert_tf.core.errors import InputError

@dataclasses.dataclass(frozen=True)
class Settings:
    what: str = command_line.setting("what goes wrong")
    times: int = command_line.setting("how often", 3, alias="count")
    def __post_init__(self):
        command_line.require(self.times > 0, f"--times={self.times}: must be above 0")

def main(settings):
    match settings.what:
        case "input":
            raise InputError("a.txt, line 3:\\n  is bad;  fix it")
        case "disk":
            raise FileNotFoundError(2, "No such file or directory", "b.txt")
        case "scheme":
            from bert_tf import checkpoints
            checkpoints.tf.io.gfile.exists("https://host/a.txt")
        case "keras":
            print(os.environ["TF_USE_LEGACY_KERAS"])
        case "interrupt":
            raise KeyboardInterrupt
        case "terminate":
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            except Exception:
                print("passed over")
            finally:
                print("cleaned up")
        case "defect":
            raise RuntimeError("our own mistake")
    print(f"done {settings.times}")

command_line.run(Settings, main, "Says what it does.")
"""


ROOT = str(pathlib.Path(command_line.__file__).parents[2])


@pytest.fixture
def script(tmp_path):
    """Runs the script with arguments; returns its exit code and its output."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def call(*words, environment=os.environ):
        return subprocess.run(
            [sys.executable, "script.py", *words], env={**environment, "PYTHONPATH": ROOT}, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return call


@pytest.mark.parametrize("given", ["", "0"])
def test_scripts_load_no_second_keras(script, given):
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = script("--what=keras", environment=environment | ({"TF_USE_LEGACY_KERAS": given} if given else {}))
    assert done.stdout.splitlines()[0] == f"{given or 1}"


@pytest.mark.parametrize(
    "words, code, out, error",
    [
        (["--what=nothing", "--times=5"], 0, "done 5\n", ""),
        (["--what=input"], 1, "", "error: a.txt, line 3: is bad; fix it\n"),
        (["--what=disk"], 1, "", "error: [Errno 2] No such file or directory: 'b.txt'\n"),
        (["--what=scheme"], 1, "", "error: File system scheme 'https' not implemented (file: 'https://host/a.txt') "
                                   "(--debug shows the full traceback)\n"),
        (["--what=nothing", "--times=0"], 1, "", "error: --times=0: must be above 0\n"),
        (["--what=interrupt"], 130, "", "stopped; run the same command again to continue\n"),
        (["--what=terminate"], 143, "cleaned up\n", "stopped; run the same command again to continue\n"),
    ],
)  # fmt: skip
def test_what_a_script_prints_and_its_exit_code(script, words, code, out, error):
    done = script(*words)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, error)


def test_a_flag_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "bad").write_bytes(b"--times=\xff\n")
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("bad", "bad: is not a file of flags .*; save it as UTF-8"), ("pipe", "not a regular file")):
        refused(reason, command_line.parse, ClassifierSettings, [f"--flagfile={tmp_path}/{name}"])


@pytest.mark.parametrize("words", [["--what=defect"], ["--what=input", "--debug"]])
def test_a_defect_or_debug_shows_the_traceback(script, words):
    done = script(*words)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("kind", ["--help", "-h", "-help", "--helpshort", "--helpfull", "--helpful"])
def test_help_says_what_the_script_does_and_its_flags(script, kind):
    done = script("--times=no", kind)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, lines[0]) == (0, "", "Says what it does.")
    assert {"--what what goes wrong (required)", "--times how often (default: 3; also --count)"} <= set(lines)


def test_help_shows_first_flags_and_helpfull_shows_all():
    groups = command_line.flag_groups(SquadSettings)
    short, full = (help_text.text("Does it.", groups, is_full, 80) for is_full in (False, True))
    titles = [line for line in short.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Data:", "Model:", "Run:", "Training:", "Evaluation:"]
    assert "--train_file" in short and "--tpu_zone" not in short
    assert "--helpfull shows" in short and "sweep, devices." in short
    names = [field.name for field in dataclasses.fields(SquadSettings)]
    assert all(f"--{name}" in full or f"--[no]{name}" in full for name in names)
    assert max(map(len, full.splitlines())) <= 80


def test_the_home_folder_is_expanded_after_a_flag(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    words = ["--input_file=~/a, ~/b,c~/d,~x", "--output_file=~", "--vocab_file=v/~"]
    parsed = command_line.parse(GeneratorSettings, words)
    assert (parsed.input_file, parsed.output_file) == ("/home/me/a, /home/me/b,c~/d,~x", "/home/me")
    assert parsed.vocab_file == "v/~"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pooling": "sum"}, "--pooling='sum': must be one of cls, mean, max"),
        ({"eval_strategy": "epochs"}, "--eval_strategy='epochs': must be one of no, epoch, steps"),
        ({"learning_rate": "big"}, "--learning_rate='big': must be a number"),
        ({"train_batch_size": 2.5}, "--train_batch_size=2.5: must be an integer"),
        ({"train_batch_size": True}, "--train_batch_size=True: must be an integer"),
        ({"do_eval": 1}, "--do_eval=1: must be true or false"),
        ({"sweep_batch_sizes": {8, 16}}, "must be a string, a path, a number, or a list of these"),
        ({"sweep_batch_sizes": [8, True]}, "--sweep_batch_sizes=True: must be a string"),
    ],
)
def test_settings_from_python_are_checked_like_flags(values, message):
    given = {"task_name": "MRPC", "data_dir": "d", "output_dir": "o", "do_train": True}
    ClassifierSettings(**given, num_train_epochs=3, pooling=None)
    refused(re.escape(message), ClassifierSettings, **given, **values)


def test_values_of_python_become_flags_or_defaults():
    given = {
        "task_name": "MRPC", "data_dir": pathlib.Path("d"), "output_dir": "o", "do_train": True, "do_eval": True,
        "sweep": True, "sweep_learning_rates": [1e-3, np.float32(0.5)], "sweep_epochs": 2, "num_train_epochs": None,
        "class_weights": {"x": np.float32(2), 1: 0.5}, "teacher": [pathlib.Path("a"), "b"], "label_file": None,
    }  # fmt: skip
    found = command_line.of_keywords(ClassifierSettings, given)
    assert found.grid["learning_rate"] == (1e-3, 0.5) and found.grid["num_train_epochs"] == (2.0,)
    assert (found.data_dir, found.teacher, found.num_train_epochs, found.label_file) == ("d", "a,b", 3.0, "")
    assert class_weights.of_classes(found.class_weights, ["x", "1"], [1, 1]) == pytest.approx((1.6, 0.4))


def test_core_imports_no_large_library():
    modules = [f"bert_tf.core.{module.name}" for module in pkgutil.iter_modules(core.__path__)]
    program = f"import sys, {', '.join(modules)}; print({{'tensorflow', 'pyarrow'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_a_notebook_shows_one_line(capsys):
    cell = "from bert_tf.core.errors import InputError\nraise InputError('a.tsv: no such file')"
    InteractiveShell().run_cell(cell)
    assert capsys.readouterr().out == "InputError: a.tsv: no such file\n"
