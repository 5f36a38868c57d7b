"""Real English text from CPython, as a corpus and as a labeled task.

The text is the language reference in `pydoc_data.topics` and the docstrings of the standard library.
The task is to find the sentences whose words are scrambled. The train and dev sets have no common module, and
pre-training never reads a dev module.
"""

import ast
import dataclasses
import hashlib
import pathlib
import random
import re
import sysconfig
from collections.abc import Iterator

RIGHT, SCRAMBLED = "right", "scrambled"
_DEV_SHARE = 0.2
# The task uses sentences of this many words; in shorter sentences, several orders of the words can be right.
_WORDS = range(8, 25)
_PLAIN = re.compile(r"[A-Z][A-Za-z ,']+\.")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(])")


@dataclasses.dataclass(frozen=True)
class Module:
    """One source of text: a module of the standard library, or a topic of the reference.

    Attributes:
      name: dotted name.
      package: top-level package of the module; "" for topics and single-file modules.
      paragraphs: English paragraphs, each on one line.
      is_dev: whether the module belongs to the held-out data.
    """

    name: str
    package: str
    paragraphs: list[str]
    is_dev: bool = False


def read_modules() -> list[Module]:
    """Reads topics and modules in a fixed order, and removes repeated paragraphs."""
    seen: set[str] = set()
    modules = []
    for module in (*_topics(), *_library()):
        fresh = []
        for paragraph in module.paragraphs:
            key = re.sub(r"\W+", " ", paragraph).lower()
            if key not in seen:
                seen.add(key)
                fresh.append(paragraph)
        if fresh:
            modules.append(dataclasses.replace(module, paragraphs=fresh))
    return _hold_out(modules)


def _hold_out(modules: list[Module]) -> list[Module]:
    """Holds out modules with up to `_DEV_SHARE` of each package's paragraphs; the choice depends only on names."""
    held_out: set[str] = set()
    for package in {module.package for module in modules}:
        members = [module for module in modules if module.package == package]
        left = _DEV_SHARE * sum(len(module.paragraphs) for module in members)
        for module in sorted(members, key=lambda m: hashlib.sha256(m.name.encode()).digest()):
            if len(module.paragraphs) <= left:
                held_out.add(module.name)
                left -= len(module.paragraphs)
    return [dataclasses.replace(module, is_dev=module.name in held_out) for module in modules]


def _topics() -> Iterator[Module]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield Module(f"topic.{name}", "", list(english_paragraphs(topics[name])))


def _library() -> Iterator[Module]:
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "site-packages" in parts or "test" in parts or "tests" in parts:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
        paragraphs = [p for text in docstrings if text for p in english_paragraphs(text)]
        yield Module(".".join(parts), parts[0] if len(parts) > 1 else "", paragraphs)


def english_paragraphs(text: str) -> Iterator[str]:
    """Yields the prose paragraphs of a text, without code, tables and lists of names."""
    for block in re.split(r"\n\s*\n", text):
        if re.search(r">>>|\.\. |::=|\|\s|={4}|-{4}|__\w+__ =", block):
            continue
        paragraph = " ".join(block.split())
        words = re.findall(r"[A-Za-z']+", paragraph)
        letters = sum(map(len, words)) + len(words)
        if len(words) >= 6 and letters >= 0.85 * len(paragraph):
            yield paragraph


def sentences(paragraph: str) -> list[str]:
    """Splits a paragraph after full stops, question marks and exclamation marks."""
    return _SENTENCE_END.split(paragraph)


def write_corpus(modules: list[Module], path: pathlib.Path, dev: bool) -> int:
    """Writes one document per module and one sentence per line; returns the number of sentences."""
    lines: list[str] = []
    for module in modules:
        if module.is_dev == dev:
            lines += [s for paragraph in module.paragraphs for s in sentences(paragraph)]
            lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return sum(1 for line in lines if line)


def scramble(sentence: str) -> str:
    """Returns a sentence with its words in a random order, which depends only on the sentence; the full stop stays."""
    words = sentence.removesuffix(".").split()
    random.Random(sentence).shuffle(words)
    return " ".join(words) + "."


def write_task(modules: list[Module], folder: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
    """Writes train.tsv and dev.tsv with the columns text and label.

    train.tsv has each sentence both as it is and scrambled; in dev.tsv, every other sentence is scrambled.

    Returns:
      The (text, label) rows of "train" and "dev".
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        split: {s for m in modules if m.is_dev == (split == "dev") for text in m.paragraphs for s in sentences(text)}
        for split in ("train", "dev")
    }
    texts["dev"] -= texts["train"]
    rows = {}
    for split, found in texts.items():
        chosen = [s for s in found if len(s.split()) in _WORDS and _PLAIN.fullmatch(s)]
        ordered = sorted(chosen, key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
        right, scrambled = ordered[::2], ordered[1::2]
        if split == "train":
            right = scrambled = ordered
        rows[split] = [(s, RIGHT) for s in right] + [(scramble(s), SCRAMBLED) for s in scrambled]
        text = "text\tlabel\n" + "".join(f"{t}\t{label}\n" for t, label in rows[split])
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    return rows
