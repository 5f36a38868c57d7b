"""The generated pages have all that a user can set; other pages name layers, classes, files and keys that exist."""

import configparser
import dataclasses
import importlib
import importlib.util
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import bert_tf
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.sweep_results import Trial
from bert_tf.runs.evaluations import Evaluations
from bert_tf.runs.run_record import TrainingRecord
from tfrecords.manifest import Shard
from tfrecords.schema import pretraining_features

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generate) -> dict[str, str]:
    return generate.pages()


def settings_classes(packages) -> list[type]:
    """All dataclasses of the packages' settings modules that have flags."""
    found = set()
    for package in packages:
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if "settings" in module.name.split("."):
                for value in vars(importlib.import_module(module.name)).values():
                    if dataclasses.is_dataclass(value) and any("help" in f.metadata for f in dataclasses.fields(value)):
                        found.add(value)
    return sorted(found, key=lambda found: found.__name__)


def test_every_command_has_page_and_index_line(generate, pages):
    commands = generate.console_scripts()
    assert len(commands) > 10
    for name in commands:
        assert f"reference/scripts/{name}.md" in pages
        assert f"[`{name}`]({name}.md)" in pages["reference/scripts/index.md"]


def test_every_settings_flag_is_on_a_page(generate, pages):
    classes = settings_classes(generate.PACKAGES)
    assert {"ClassifierSettings", "GeneratorSettings", "ServeSettings"} <= {found.__name__ for found in classes}
    for found in classes:
        headings = [f"### `--{field.name}` {{" for field in dataclasses.fields(found) if "help" in field.metadata]
        assert any(all(heading in page for heading in headings) for page in pages.values()), found


def test_help_shows_type_bounds_default_and_alias(pages):
    page = pages["reference/scripts/run_classifier.md"]
    group = page[page.index("## Devices") :].split("\n## ")[0]
    flag = group[group.index("### `--iterations_per_loop`") :].split("\n### ")[0]
    assert "an integer, above 0; default: `1000`; also `--steps_per_loop`\n" in flag
    assert "a string; required; also `--model_dir`\n" in page[page.index("### `--output_dir`") :].split("\n### ")[0]
    assert "one of `cls`, `mean`, `max`\n" in page[page.index("### `--pooling`") :].split("\n### ")[0]


def test_the_reference_covers_the_python_page(generate):
    text = (ROOT / "docs/how_to/python.md").read_text(encoding="utf-8")
    imports = re.findall(r"^from (bert_tf\S*) import (.+)$", text, re.MULTILINE)
    assert len(imports) > 3
    shown = {name for names in generate.PYTHON_NAMES.values() for name in names}
    for module, names in imports:
        assert set(names.split(", ")) <= set(generate.PYTHON_NAMES.get(module, shown))


def test_the_package_has_the_names_of_its_modules():
    names = set(dir(bert_tf)) - set(vars(bert_tf))
    assert {"BertConfig", "TextClassifier", "load_encoder"} < names
    assert all(getattr(bert_tf, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="no attribute 'BertTokeniser'"):
        bert_tf.__getattr__("BertTokeniser")


def test_the_reference_needs_no_tensorflow():
    code = "import sys; sys.modules['tensorflow'] = None; sys.path.insert(0, 'docs'); import generate; generate.pages()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)


PAGE = (ROOT / "docs/background/architecture.md").read_text(encoding="utf-8")
FOLDERS = ("bert_tf", "data_gen", "export", "tfrecords", "tests")
FILES = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]


def test_the_diagram_has_all_layers():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    _, *layers = setup["importlinter:contract:rooms"]["layers"].strip().split("\n", 1)  # the first layer is the scripts
    diagram = PAGE.partition("## Layers")[2].partition("`data_gen` imports")[0]
    assert set(re.findall(r"\w+", layers[0])) - set(re.findall(r"\w+", diagram)) == set()


def test_the_names_on_the_page_exist():
    names = re.findall(r"`([\w./]+)`", PAGE)
    paths = [str(path.relative_to(ROOT)) for path in FILES]
    files = {name for name in names if name.endswith(".py") and "KIND" not in name}
    assert [name for name in sorted(files) if not any(f"/{path}".endswith(f"/{name}") for path in paths)] == []
    sources = (path.read_text(encoding="utf-8") for path in FILES if path != pathlib.Path(__file__))
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    classes = {part for name in names for part in name.split(".") if re.fullmatch(r"([A-Z][a-z]+){2,}", part)}
    assert len(classes) > 10 and classes - words == set()


def section(title: str) -> str:
    """Returns the text from a heading of the page of file formats to the next one."""
    text = (ROOT / "docs/reference/file_formats.md").read_text(encoding="utf-8")
    return text[text.index(f" {title}\n") :].split("\n#", 1)[0]


def fields(written: type) -> list[str]:
    return [field.name for field in dataclasses.fields(written)]


@pytest.mark.parametrize(
    "title, names",
    [
        ("Pre-training data", [feature.name for feature in pretraining_features(8, 2)]),
        ("The manifest", fields(Shard)),
        ("`run.json`", [*fields(TrainingRecord), "phases", "saved_step"]),
        ("`task.json`", fields(TaskDescription)),
        # `scores` by step are a list on disk
        ("`evaluations.json`", [*fields(Evaluations), "best_step", "evaluations"]),
        ("Sweeps and ensembles", fields(Trial)),
    ],
)
def test_a_section_names_all_keys(title, names):
    assert [name for name in names if f"`{name}`" not in section(title)] == []
