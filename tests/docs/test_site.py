"""The generated pages of the documentation site: nothing that a user can set is missing."""

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


def commands_in(path: pathlib.Path, names) -> list[list[str]]:
    """Returns the words of each command of ours in the blocks of code of a page."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.split("\n") if line.startswith("    ") or not line.startswith((" ", "`"))]
    return [words for words in lines if words and words[0] in names]


def test_documented_commands_have_existing_flags(generate):
    scripts = {script.name: script for script in generate.scripts()}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = [(page, words) for page in pages for words in commands_in(page, scripts)]
    assert len(commands) > 50
    for page, (name, *words) in commands:
        members = [flag for group in scripts[name].groups.values() for flag in group]
        known = {"flagfile", "help", "helpfull"} | {flag.name for flag in members} | {flag.alias for flag in members}
        known |= {f"no{flag.name}" for flag in members if flag.is_boolean}
        given = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
        assert [f"{page.name}: {name} --{flag}" for flag in given if flag not in known] == []


def test_the_reference_needs_no_tensorflow():
    code = "import sys; sys.modules['tensorflow'] = None; sys.path.insert(0, 'docs'); import generate; generate.pages()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)
