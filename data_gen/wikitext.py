"""Extracts the passages of running text from wikitext.

Paper: section 3.1, pre-training data: "we extract only the text passages and ignore lists, tables, and headers."

There are two steps. The first step removes, in linear time, elements that can nest or are not prose: templates, tables,
references, files. The second step parses links, tags and marks of each remaining paragraph with mwparserfromhell. This
parser is not applied to whole pages, because its time grows with the square of the number of unclosed marks
(10,000 "{{a|" take 40 s), and because most of its result would be dropped.
"""

import html
import re
from collections import Counter
from collections.abc import Sequence

from data_gen.sentences import load

# Elements whose contents are not wikitext (_RAW), and elements that contain wikitext (_DROPPED). Both are removed with
# their contents, except for nowiki: its contents are kept as text.
_RAW = "nowiki pre math chem ce syntaxhighlight source score timeline hiero templatedata graph gallery imagemap"
_DROPPED = "ref references table ul ol dl h1 h2 h3 h4 h5 h6 section mapframe maplink inputbox categorytree"
_RAW_TAGS = frozenset(_RAW.split())
_TOKEN = re.compile(
    rf"""<!--.*?(?:-->|\Z)
    |\{{{{3}}[^{{}}]*\}}{{3}}
    |<(?P<slash>/?)(?P<tag>{"|".join(f"{_RAW} {_DROPPED}".split())})(?P<rest>[\s/][^<>]*)?>
    |^[\ \t:]*(?P<table>\{{\|)
    |^[\ \t]*(?P<table_end>\|\}})(?!\}}(?!\}}))
    |(?P<mark>\{{\{{|\}}\}}|\[\[|\]\])""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_CLOSES = {"}}": "{{", "]]": "[["}
_MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "[]{}|'<>=*:!_-"})

# Links into these namespaces show a file or categorize the page. A dump states only one local name of each namespace.
# So the canonical names, which are valid in every wiki, are here with the Chinese and Japanese aliases of categories.
# The aliases of files need no list: the extension of a file identifies its link.
_NAMESPACES = frozenset("file image media category 分类 分類 カテゴリ".split())
_FILE = re.compile(
    r"[^:]+:[^:]+\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[agv]|opus|flac|mp3|wav|midi?|webm|mpe?g)\s*",
    re.IGNORECASE,
)
_DIRECTIONAL_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")
_INTERWIKI = re.compile(r"^\s*(?:\[\[\s*[a-z-]{2,12}:[^][|]*\]\]\s*)+$")
_RANGES = {"to": " to ", "and": " and ", "or": " or ", "by": " by ", "x": " × ", "-": "–", "–": "–"}


def _measured(values: Sequence[str]) -> str:
    """Returns the text of {{convert}}: a value, a range such as 3|to|5|km, or a compound such as 6|ft|2|in."""
    if values[1] in _RANGES:
        return f"{values[0]}{_RANGES[values[1]]}{values[2]} {values[3]}"
    is_compound = len(values) > 3 and values[2].replace(".", "").isdigit()
    return " ".join(values[: 4 if is_compound else 2])


# Functions for templates that are used within sentences, by the template's name. From the template's arguments, a
# function computes the text that a reader sees.
_SHOWN = {
    "nowrap": lambda values: values[0],
    "nobr": lambda values: values[0],
    "lang": lambda values: values[1],
    "transliteration": lambda values: values[-1],
    "convert": _measured,
    "cvt": _measured,
    "ndash": lambda values: "–",
    "snd": lambda values: " – ",
    "spaced ndash": lambda values: " – ",
    "mdash": lambda values: "—",
    "'": lambda values: "'",
    "'s": lambda values: "'s",
    "nbsp": lambda values: " ",
}
_LONGEST_SHOWN = 1000
_ARGUMENT_BOUNDARY = re.compile(r"\|(?![^\[\]]*\]\])")
_NAMED = re.compile(r"\s*[\w-]+\s*=")
_NUMBERED = re.compile(r"\s*\d+\s*=\s*")

_HEADING = re.compile(r"(={1,6})(.+?)(={1,6})\s*$")
_NO_PROSE = ("*", "#", ";", ":", "|", "!", "----")
# Sections with these names, and their subsections, contain references and lists.
_END_SECTIONS = frozenset(
    """see also|references|external links|further reading|notes|bibliography|footnotes|citations|sources|notes and
    references|references and notes|works cited|literature|external link""".replace("\n    ", " ").split("|")
)
_SWITCH = re.compile(r"__[A-Z]+__")
# Limits for mwparserfromhell, whose time grows with the square of the number of unclosed marks.
_LONGEST, _MOST_MARKS = 50_000, 500
_MARK = re.compile(r"\[+|<|'{2,}")
_HAS_MARKUP = re.compile(r"[\[<{]|''|//")

_OPEN_QUOTES = re.compile("'{2,}")
_EMPTY_BRACKETS = re.compile(r"\(\s*(?:[,;:–-]\s*)*\)|\{\}|\[\]")
_AFTER_BRACKET = re.compile(r"\(\s*(?:[,;:]\s*)+|\(\s+")
_BEFORE_MARK = re.compile(r"\s+([,;.)](?:\s|$))")
_DOUBLED_COMMA = re.compile(r",(?:\s*,)+")
_WORD = re.compile(r"[^\W\d_]+")
_FEWEST_WORDS = 3


def namespace_key(name: str) -> str:
    """Returns a namespace's name in the form in which MediaWiki compares names."""
    return " ".join(_DIRECTIONAL_MARKS.sub("", name).replace("_", " ").split()).lower()


def passages(wikitext: str, local_names: frozenset[str] = frozenset()) -> list[str]:
    """Returns the paragraphs of running text of a page, one line each. Malformed parts may be lost. The function
    removes lists, tables, headings, templates, references, comments, formulas, files, galleries, categories, paragraphs
    of fewer than three words, and the sections at the end of an article that are not prose (See also, References, ...).
    Links, tags and marks become the text that a reader sees. Templates are not expanded, except for a few that are used
    within sentences.
    `local_names`: the wiki's names of the namespaces of files, media and categories, from `namespace_key`."""
    texts = (_visible_text(paragraph) for paragraph in _paragraphs(_without_nesting(wikitext, local_names)))
    return [text for text in texts if len(_WORD.findall(text)) >= _FEWEST_WORDS]


def _without_nesting(wikitext: str, local_names: frozenset[str]) -> str:
    """Removes comments, templates, tables, dropped elements and file links in linear time. One pass keeps a stack of
    open marks. A closing mark closes the nearest open mark of its kind, and discards the open marks that were opened
    after this mark. Unmatched marks are removed, and the text around them is kept."""
    kept: list[str] = []
    opened: list[tuple[str, int]] = []  # kind of each open mark, and the length of `kept` when the mark was opened
    # Number of open marks of each kind. `opened` is searched for a kind only if this number is above 0.
    count: Counter[str] = Counter()
    unclosed: set[str] = set()  # raw elements without an end tag in the rest of the text
    position = 0
    while token := _TOKEN.search(wikitext, position):
        kept.append(wikitext[position : token.start()])
        position = token.end()
        kind, closes = _kind(token)
        if kind in _RAW_TAGS:
            if not closes and kind not in unclosed:
                end = re.compile(rf"</{kind}\s*>", re.IGNORECASE).search(wikitext, position)
                if end is None:
                    unclosed.add(kind)
                else:
                    if kind == "nowiki":
                        kept.append(wikitext[position : end.start()].translate(_MARKUP))
                    position = end.end()
        elif kind and not closes:
            opened.append((kind, len(kept)))
            count[kind] += 1
        elif kind and count[kind]:
            last, start = None, 0
            while last != kind:
                last, start = opened.pop()
                count[last] -= 1
            kept[start:] = _shown(kind, kept[start:], local_names)
    kept.append(wikitext[position:])
    return "".join(kept)


def _kind(token: re.Match[str]) -> tuple[str | None, bool]:
    """Returns the kind of a token (None if the token is only removed), and whether the token is a closing mark."""
    if mark := token["mark"]:
        return _CLOSES.get(mark, mark), mark in _CLOSES
    if token["table"] or token["table_end"]:
        return "{|", token["table"] is None
    if token["tag"] and not (token["rest"] or "").endswith("/"):
        return token["tag"].lower(), token["slash"] == "/"
    return None, False


def _shown(kind: str, contents: list[str], local_names: frozenset[str]) -> list[str]:
    """Returns the text that replaces an element with these contents, as a list of parts."""
    if kind == "[[":
        content = "".join(contents)
        target, bar, label = content.partition("|")
        namespace, colon, _ = target.partition(":")
        if colon and (namespace_key(namespace) in _NAMESPACES | local_names or _FILE.fullmatch(target)):
            return []
        # Links do not nest, so only the inner link is valid.
        return [label if bar else content] if "[[" in content else ["[[", content, "]]"]
    if kind == "{{":
        content = "".join(contents)
        show = _SHOWN.get(content.partition("|")[0].strip().lower()) if len(content) <= _LONGEST_SHOWN else None
        values = _ARGUMENT_BOUNDARY.split(content)[1:] if show else []
        values = [value for value in values if _NUMBERED.match(value) or not _NAMED.match(value)]
        try:
            return [show([_NUMBERED.sub("", value).strip() for value in values])] if show else []
        except IndexError:  # the template lacks the argument
            return []
    return []


def _paragraphs(text: str) -> list[str]:
    """Returns the paragraphs of prose, which end at blank lines, headings, and lines of lists and tables."""
    paragraphs: list[list[str]] = [[]]
    skipped_level = 0  # level of the heading whose section is skipped; 0 if no section is skipped
    for line in text.split("\n"):
        line = line.strip()
        heading = _HEADING.match(line)
        if heading:
            level = min(len(heading[1]), len(heading[3]))
            if not skipped_level or level <= skipped_level:
                skipped_level = level if heading[2].strip(" ='").lower() in _END_SECTIONS else 0
        if heading or not line or line.startswith(_NO_PROSE) or _INTERWIKI.match(line):
            paragraphs.append([])
        elif not skipped_level:
            paragraphs[-1].append(line)
    return [" ".join(lines) for lines in paragraphs if lines]


def _visible_text(paragraph: str) -> str:
    """Returns the visible text of a paragraph; empty if the paragraph has too much markup for prose."""
    text = _SWITCH.sub("", paragraph)
    if _HAS_MARKUP.search(text):
        if len(text) > _LONGEST or len(_MARK.findall(text)) > _MOST_MARKS:
            return ""
        text = _OPEN_QUOTES.sub("", _read(load("mwparserfromhell").parse(text)))
    text = " ".join(html.unescape(text).split())
    text = _EMPTY_BRACKETS.sub("", text)
    text = _AFTER_BRACKET.sub("(", text)
    text = _BEFORE_MARK.sub(r"\1", text)
    return " ".join(_DOUBLED_COMMA.sub(",", text).split())


def _read(wikicode) -> str:
    """Returns the visible text of parsed wikitext, without decoding entities."""
    nodes = load("mwparserfromhell").nodes
    texts = []
    for node in wikicode.nodes:
        if isinstance(node, nodes.Text | nodes.HTMLEntity):
            texts.append(str(node))
        elif isinstance(node, nodes.Wikilink):
            texts.append(_read(node.title).strip().removeprefix(":") if node.text is None else _read(node.text))
        elif isinstance(node, nodes.ExternalLink):
            if node.title is not None:
                texts.append(_read(node.title))
            elif not node.brackets:
                texts.append(str(node.url))
        elif isinstance(node, nodes.Tag):
            if str(node.tag).strip().lower() in ("br", "hr", "p"):
                texts.append(" ")
            if node.contents is not None and node.wiki_markup != "----":
                texts.append(_read(node.contents))
    return "".join(texts)
