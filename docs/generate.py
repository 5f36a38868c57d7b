"""Generates the pages of the site that are not in docs/: the references of flags and of Python, and the home page.

MkDocs calls the functions whose names start with `on_`; see `hooks` in mkdocs.yml. The other functions only build text,
and need neither MkDocs nor TensorFlow, so that a test can call them.
"""

import ast
import configparser
import functools
import gc
import importlib
import logging
import os
import pathlib
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from unittest import mock

from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The reference describes this checkout, even if another version is installed.
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from site_markdown import with_site_links, with_wide_lists  # noqa: E402

from bert_tf.core import help_text  # noqa: E402

PACKAGES = ("bert_tf", "data_gen", "tfrecords", "export")
# Maps files outside of docs/ to their pages.
COPIED = {
    "README.md": "index.md",
    "CHANGELOG.md": "background/changelog.md",
    "CONTRIBUTING.md": "background/contributing.md",
}
# The public Python API: maps modules to the names in them.
PYTHON_NAMES = {
    "bert_tf.classifier": ("TextClassifier",),
    "bert_tf.embedder": ("TextEmbedder",),
    "bert_tf.finished_run": ("FinishedRun",),
    "bert_tf.preprocessing": ("BertPreprocessor",),
    "bert_tf.features.extractor": ("FeatureExtractor", "TokenFeatures"),
    "bert_tf.encoder": ("BertEncoder",),
    "bert_tf.config": ("BertConfig",),
    "bert_tf.tokenization": ("BertTokenizer", "load_vocabulary"),
    "bert_tf.text.packing": ("pack",),
    "bert_tf.checkpoints": ("load_encoder", "open_checkpoint", "initialize"),
    "bert_tf.conversion": ("convert_checkpoint",),
    "bert_tf.core.errors": ("InputError",),
}

_log = logging.getLogger("mkdocs.hooks.generate")

# Finds flags, files and names in plain text, without the punctuation after them.
_NAMES_IN_TEXT = re.compile(
    r"--\w+(?:=[^\s;,)]*[\w/])?|\b[\w/.-]*\w_(?:[\w/-]*\w)?(?:\.\w+)*"
    r"|\b[\w/.-]*\w\.(?:csv|flags|html|json|jsonl|npz|parquet|tflite|tsv|txt)\b"
)
# Find in HTML: inline code; a flag in inline code; and the name of a script, with or without one of its flags.
_INLINE_CODE = re.compile(r"(?<!</span>)<code>([^<]+)</code>")
_FLAG_IN_CODE, _NO_WRAP = re.compile(r"(?<!\S)--?[A-Za-z]+"), r'<span class="no-wrap">\g<0></span>'
_FLAG_OF_SCRIPT = re.compile(r"(?:<code>--(?P<flag>\w+)</code>\s+of\s+)?<code>(?P<script>[a-z_]+)</code>")


class Script(NamedTuple):
    """The contents of a script's `--helpfull`.

    Attributes:
      name: name of the command.
      doc: the script's docstring: a description, and an example of its command.
      groups: maps the title of each group to the flags in the group.
      kinds: maps each flag to the type of its value, such as "an integer"; "" if the flag has choices.
    """

    name: str
    doc: str
    groups: Mapping[str, Sequence[help_text.FlagHelp]]
    kinds: Mapping[str, str]


@functools.cache
def console_scripts() -> dict[str, str]:
    """Maps the name of each installed command to its `module:function`."""
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parsed["options.entry_points"]["console_scripts"].split("\n")
    pairs = (line.partition("=") for line in lines if line)
    return {name.strip(): target.strip() for name, _, target in pairs}


@functools.cache
def scripts() -> tuple[Script, ...]:
    """Returns all commands."""
    return tuple(_describe(name, _function(target)) for name, target in console_scripts().items())


def _function(target: str) -> Callable[[], None]:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _describe(name: str, start: Callable[[], None]) -> Script:
    """Starts a script, stops it before it parses its flags, and returns the flags that it has defined."""
    passed, values, thresholds = {}, flags.FlagValues(), gc.get_threshold()

    def stop(main, *, flags_parser):
        passed.update(flags_parser.keywords)

    with (
        mock.patch.object(app, "run", stop),
        mock.patch.object(flags, "FLAGS", values),
        mock.patch.object(sys, "argv", [name]),
        mock.patch.dict(os.environ),
    ):
        start()
    gc.set_threshold(*thresholds)
    groups = passed.get("groups") or help_text.of_module(values, name)
    members = [flag for group in groups.values() for flag in group]
    kinds = {flag.name: "true or false" if flag.is_boolean else _kind(values[flag.name]) for flag in members}
    return Script(name, passed["doc"], groups, kinds)


def _kind(flag: flags.Flag) -> str:
    """Returns the type of a flag's value as text; "" if the flag has choices."""
    return "" if getattr(flag.parser, "enum_values", ()) else flag.parser.syntactic_help or "a string"


def script_page(script: Script) -> str:
    """Returns the page of a script: its description, and its flags in the groups of `--helpfull`."""
    parts = [f"# {script.name}", *_paragraphs(script.doc)]
    for title, members in script.groups.items():
        parts += [f"## {title}", *(_flag(flag, script.kinds[flag.name]) for flag in members)]
    return "\n\n".join(parts) + "\n"


def _flag(flag: help_text.FlagHelp, kind: str) -> str:
    remarks = [", ".join(filter(None, (kind, flag.bounds)))]
    if flag.is_required:
        remarks.append("required")
    elif flag.default is False or flag.default not in (None, ""):
        remarks.append(f"default: `{help_text.value_text(flag.default)}`")
    if flag.choices:
        remarks.append("one of " + ", ".join(f"`{choice}`" for choice in flag.choices if choice))
    if flag.alias:
        remarks.append(f"also `--{flag.alias}`")
    remark = "; ".join(filter(None, remarks))
    heading = f"### `--{flag.name}` {{ #{flag.name} }}"
    return "\n\n".join(filter(None, (heading, in_markdown(flag.help), remark and f"{remark}\n{{ .remarks }}")))


def _paragraphs(doc: str) -> Iterator[str]:
    """Converts a script's docstring to Markdown paragraphs; commands become code blocks."""
    for paragraph in help_text.text(doc, {}, is_full=True, columns=90).split("\n\n"):
        yield _block(paragraph) or in_markdown(paragraph)


def _block(paragraph: str) -> str:
    """Returns a code block if the paragraph is a command; "" if it is text."""
    is_command = paragraph.split()[0] in console_scripts()
    return f"```sh\n{paragraph}\n```" if is_command else ""


def in_markdown(text: str) -> str:
    """Converts plain text to Markdown with the same content, in which names of flags and files are code."""
    parts = []
    for index, part in enumerate(re.split(r"(`[^`]+`)", text)):
        if index % 2:
            parts.append(part)
            continue
        end = 0
        for name in _NAMES_IN_TEXT.finditer(part):
            parts += [_escaped(part[end : name.start()]), f"`{name[0]}`"]
            end = name.end()
        parts.append(_escaped(part[end:]))
    return "".join(parts)


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]<>{}#|])", r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")


def scripts_index() -> str:
    """Returns the page that lists the scripts."""
    rows = []
    for script in scripts():
        first = " ".join(script.doc.strip().partition("\n\n")[0].split())
        rows.append(f"| [`{script.name}`]({script.name}.md) | {in_markdown(first)} |")
    return "\n".join(
        [
            "# Scripts",
            "",
            "Each page has all flags of a script, in the groups of its `--help`. `--help` shows the most important "
            "flags, and `--helpfull` shows all flags.",
            "",
            "- `--name=value` sets a flag. `--name` and `--noname` set a boolean flag to true or false.",
            "- `--flagfile=FILE` reads flags from a file, one per line. The last value of a flag counts.",
            "- `--version` prints the version of the package.",
            "- Invalid input ends in a one-line error that says what is wrong, with exit code 1.",
            "",
            "| script | what it does |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def python_page(module: str) -> str:
    """Returns the page of a module: its docstring, and for each name a line that mkdocstrings replaces."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    paragraphs = (_block(paragraph) or paragraph for paragraph in doc.split("\n\n"))
    return "\n\n".join([f"# {module}", *paragraphs, *(f"::: {module}.{name}" for name in PYTHON_NAMES[module])]) + "\n"


def pages() -> dict[str, str]:
    """Maps the path of each generated page in the site to its text."""
    found = {"reference/scripts/index.md": scripts_index()}
    found |= {f"reference/scripts/{script.name}.md": script_page(script) for script in scripts()}
    found |= {f"reference/python/{module}.md": python_page(module) for module in PYTHON_NAMES}
    return found


def undocumented() -> Iterator[str]:
    """Finds names of `PYTHON_NAMES`, and public members of these classes, that no docstring describes."""
    import griffe

    options = {"docstring_parser": "google", "docstring_options": {"warn_missing_types": False}}
    packages = {package: griffe.load(package, search_paths=[ROOT], **options) for package in PACKAGES}
    for module, names in PYTHON_NAMES.items():
        package, _, rest = module.partition(".")
        for name in names:
            yield from _undocumented(packages[package][f"{rest}.{name}"])


def _undocumented(named) -> Iterator[str]:
    """Finds what no docstring describes in a function or a class."""
    if not named.has_docstring:
        yield named.path
    described = _described(named) if named.is_class else set()
    for name, member in named.members.items() if named.is_class else ():
        if name.startswith("_") or member.is_alias or member.has_docstring:
            continue
        if name not in described if member.is_attribute else not _overrides(named, name):
            yield member.path


def _overrides(owner, name: str) -> bool:
    """Returns whether a class's method has the docstring of a base class; bases of other packages count as such."""
    if not owner.is_class or not owner.bases:
        return False
    known = owner.mro()
    return not known or any(name in base.members for base in known)


def _described(owner) -> set[str]:
    """Returns the names of the attributes and parameters that a class's docstring describes."""
    sections = [section for section in owner.docstring.parsed if section.kind.value in ("attributes", "parameters")]
    names = (item.name for section in sections for item in section.value)
    return {name.strip() for joined in names for name in joined.split(",")}


def on_config(config):
    """Checks the docstrings before the pages are built; with `--strict` a warning fails the build."""
    for path in undocumented():
        _log.warning("%s is public and has no documentation; write its docstring", path)
    if config.repo_url:
        # With `repo_url`, the theme would load the number of stars from the repository's host; a link loads nothing.
        config.extra |= {
            "repository": config.repo_url,
            "social": [{"icon": "fontawesome/brands/git-alt", "link": config.repo_url, "name": "Repository"}],
        }
        config.repo_url = None
    return config


def on_files(files, config):
    """Adds the generated pages and the files outside of docs/, and expands the folders in the navigation."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    for source, path in COPIED.items():
        files.append(File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8")))
    config.nav = navigation(config.nav, [file.src_uri for file in files.documentation_pages()])
    return files


def navigation(entries: Sequence, paths: Sequence[str]) -> list:
    """Replaces each folder in `nav` by its pages that no other entry lists.

    Args:
      entries: `nav` of mkdocs.yml.
      paths: all pages of the site, in the order in which a folder shows them; its `index.md` is always first.
    """
    listed = set(_leaves(entries))
    folders = sorted((leaf for leaf in listed if leaf.endswith("/")), key=len, reverse=True)
    members: dict[str, list[str]] = {}
    for path in sorted(paths, key=lambda path: not path.endswith("/index.md")):
        if path not in listed:
            members.setdefault(next(filter(path.startswith, folders), ""), []).append(path)

    def expanded(value) -> list:
        if isinstance(value, str):
            return members.get(value, []) if value.endswith("/") else [value]
        if isinstance(value, dict):
            return [{title: expanded(inner) for title, inner in value.items()}]
        return [entry for inner in value for entry in expanded(inner)]

    return expanded(entries)


def _leaves(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)


def on_page_markdown(markdown, page, config, files):
    """Rewrites links and lists of handwritten pages."""
    path = page.file.src_uri
    sources = {copy: source for source, copy in COPIED.items()}
    source = sources.get(path) or ("" if page.file.generated_by else f"docs/{path}")
    if not source:
        return markdown
    return with_site_links(with_wide_lists(markdown), source, path, COPIED, config.extra.get("repository", ""))


def on_page_content(html, page, config, files):
    """Keeps names of flags on one line, and turns names of scripts and flags in docstrings into links."""
    path = page.file.src_uri
    if path.startswith("reference/python/"):
        html = _FLAG_OF_SCRIPT.sub(functools.partial(_linked, path), html)
    return _INLINE_CODE.sub(lambda code: f"<code>{_FLAG_IN_CODE.sub(_NO_WRAP, code[1])}</code>", html)


def _linked(page: str, found: re.Match) -> str:
    flag, name = found["flag"], found["script"]
    script = next((script for script in scripts() if script.name == name), None)
    if not script:
        return found[0]
    if flag and flag not in script.kinds:
        _log.warning("%s: %s has no flag --%s, which a docstring names", page, name, flag)
    address = posixpath.relpath(f"reference/scripts/{name}.html", posixpath.dirname(page))
    return f'<a href="{address}{"#" if flag else ""}{flag or ""}">{found[0]}</a>'
