"""Finds unclear phrases in documentation, docstrings, comments and messages.

python .ci/check_prose.py [FILE ...]    (default: all Python, Markdown and flag files that git tracks)

For each phrase, the script prints a line with the file, the line number and a better phrase. If the script finds a
phrase, it exits with code 1. ALLOWED lists sentences in which such a phrase is right.
"""

import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from typing import NamedTuple


class Rule(NamedTuple):
    """A phrase to avoid.

    Attributes:
      phrase: a regular expression; case is ignored.
      instead: the advice, or a better phrase.
    """

    phrase: str
    instead: str


class Allowed(NamedTuple):
    """A sentence that is right although a rule finds a phrase in it.

    Attributes:
      path: path of the file that contains the sentence.
      text: a part of the sentence's line.
      reason: why the sentence is right.
    """

    path: str
    text: str
    reason: str


# A word that starts a noun phrase. Before such a word, "that of" only replaces a noun.
_NOUN = r"(an?|the|its|their|all|each|any|another|one|some|which|what)"
RULES = (
    Rule(rf"\b(that|those) of {_NOUN}\b(?! time)", "repeat the noun that 'that' or 'those' replaces"),
    Rule(r"\b(as|so) far as\b(?! possible)", "say what exactly"),
    Rule(r"\bso (many|much|few) (?!that\b|as\b|faster\b|slower\b)[a-z]+", "say how many, or 'this many'"),
    Rule(r"\bmend(s|ed|ing)?\b", "fix"),
    Rule(r"(?<!there )(?<!if )\b(is|are|was|were|be) no (?!longer\b|more\b|such\b)[a-z]+", "is not a, are not"),
    Rule(r"\bstands? (in|there|beside|for|at|below|above|alone)\b", "is, or means"),
    Rule(r"\b(anew|thereof|therein|likewise|therefrom)\b", "again, of it, also"),
    Rule(r"\bbesides\b(?! (the|an?|this|that)\b)", "also"),
    Rule(r"\bgo(es)? on\b", "continue"),
    Rule(r"\bof nothing\b", "without"),
    Rule(r"\b(has|have|had) (it|them) not\b|\b(has|have) not (an?|the|any)\b", "lacks"),
    Rule(r"\b(whatever (the|they|it|an?|else)|however (many|much))\b", "for any"),
    Rule(r"\bat (most|least) so\b", "at most this many"),
    Rule(r"\btest_\w{46,}", "a name of at most 50 characters"),
)
ALLOWED: tuple[Allowed, ...] = (
    Allowed("tests/data_gen/test_documents.py", "Five goes on", "text of a document in a test"),
    Allowed("tests/data_gen/test_wikitext.py", "behind the switch goes on", "text of an article in a test"),
)
_ENDS = (".py", ".md", ".flags")
_TEXT_TOKENS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def lines_of_python(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the line numbers and lines of comments and strings, and the names of tests."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in _TEXT_TOKENS or token.string.startswith("test_"):
                yield from enumerate(token.string.splitlines(), token.start[0])


def lines_of_markdown(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the line numbers and lines that are not code."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    "):
            yield number, line


def lines_of_flags(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the line numbers and lines of comments."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return ((number, line) for number, line in lines if line.startswith("#"))


def findings(path: pathlib.Path) -> Iterator[str]:
    """Yields a message for each phrase in a file."""
    read = {".py": lines_of_python, ".md": lines_of_markdown, ".flags": lines_of_flags}[path.suffix]
    for number, line in read(path):
        for rule in RULES:
            found = re.search(rule.phrase, line, re.IGNORECASE)
            if found and not any(path.match(each.path) and each.text in line for each in ALLOWED):
                yield f"{path}:{number}: {found[0]!r}: {rule.instead}: {line.strip()[:120]}"


def main(names: list[str]) -> int:
    """Checks files; returns the exit code."""
    if not names:
        listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
        names = [name for name in listed.stdout.splitlines() if name.endswith(_ENDS)]
    paths = [path for path in map(pathlib.Path, names) if path.exists() and path != pathlib.Path(".ci/check_prose.py")]
    found = [line for path in paths for line in findings(path)]
    print("\n".join([*found, f"{len(found)} phrases to reword in {len(paths)} files"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
