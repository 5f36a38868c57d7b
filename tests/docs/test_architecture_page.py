"""The page about the architecture names layers, files and classes that exist."""

import configparser
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
