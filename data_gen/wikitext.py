"""Wikitext to its passages of running text.

Paper: section 3.1, pre-training data: "we extract only the text passages and ignore lists, tables, and headers."

Two steps. A pass of linear time takes out what holds no prose or can nest: templates, tables, references, files. What
is left of a paragraph, mwparserfromhell reads: links, tags, marks. On whole pages its time grows with the square of the
marks left open (10,000 "{{a|" take it 40 s), and most of what it would read there is thrown away.
"""

import html
import re
from collections import Counter

from data_gen.libraries import load

# Elements whose contents are no wikitext, and those with wikitext in them: both go with all they hold, but for nowiki,
# whose contents are text.
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

# Links to pages of these namespaces show a file or file the page; the names are canonical, so every wiki knows the
# first line, and the large ones their own words besides.
_NAMESPACES = frozenset(
    """file image media category
    datei bild kategorie fichier catégorie archivo imagen categoría ficheiro imagem categoria immagine bestand
    afbeelding plik grafika kategoria fil файл изображение категория 文件 图像 分类 ファイル 画像 カテゴリ""".split()
)
_INTERWIKI = re.compile(r"^\s*(?:\[\[\s*[a-z-]{2,12}:[^][|]*\]\]\s*)+$")
# Templates that stand in the midst of sentences: name -> the text a reader sees of its arguments.
_SHOWN = {
    "nowrap": lambda values: values[0],
    "nobr": lambda values: values[0],
    "lang": lambda values: values[1],
    "transliteration": lambda values: values[-1],
    "convert": lambda values: f"{values[0]} {values[1]}",
    "cvt": lambda values: f"{values[0]} {values[1]}",
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

_HEADING = re.compile(r"(={1,6})(.+?)(={1,6})\s*$")
_NO_PROSE = ("*", "#", ";", ":", "|", "!", "----")
# A section of this name and all below it hold references and lists.
_END_SECTIONS = frozenset(
    """see also|references|external links|further reading|notes|bibliography|footnotes|citations|sources|notes and
    references|references and notes|works cited|literature|external link""".replace("\n    ", " ").split("|")
)
_SWITCH = re.compile(r"__[A-Z]+__")
# What mwparserfromhell gets to read at most: its time grows with the square of the marks left open.
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


def passages(wikitext: str) -> list[str]:
    """The paragraphs of running text of a page.

    Lists, tables, headings, templates, references, comments, formulas, files, galleries, categories and the sections
    behind the article proper (See also, References, ...) are left out, and paragraphs of fewer than three words. Links,
    tags and marks become the text a reader sees. Templates are not expanded, but for a few that stand in the midst of
    sentences.

    Args:
        wikitext: str, any text; broken wikitext loses what is broken, and never raises.

    Returns:
        list of str, one a paragraph, on one line each.

    Raises:
        InputError: mwparserfromhell is not installed.
    """
    found = (_visible_text(paragraph) for paragraph in _paragraphs(_without_nesting(wikitext)))
    return [text for text in found if len(_WORD.findall(text)) >= _FEWEST_WORDS]


def _without_nesting(wikitext: str) -> str:
    """The text without comments, templates, tables, dropped elements and file links, in linear time.

    One walk with a stack of what is open. A closing mark closes the nearest open one of its kind and drops what was
    opened since; marks without their other half vanish, and what they would have held stays.
    """
    kept: list[str] = []
    opened: list[tuple[str, int]] = []  # kind, and the length of `kept` where it was opened
    count: Counter[str] = Counter()  # of the kinds in `opened`, so that a search for one always finds it
    unclosed: set[str] = set()  # raw elements that no end tag follows any more
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
            kept[start:] = _shown(kind, kept[start:])
    kept.append(wikitext[position:])
    return "".join(kept)


def _kind(token: re.Match[str]) -> tuple[str | None, bool]:
    """What a token opens or closes, and whether it closes; no kind for what just vanishes."""
    if mark := token["mark"]:
        return _CLOSES.get(mark, mark), mark in _CLOSES
    if token["table"] or token["table_end"]:
        return "{|", token["table"] is None
    if token["tag"] and not (token["rest"] or "").endswith("/"):
        return token["tag"].lower(), token["slash"] == "/"
    return None, False


def _shown(kind: str, pieces: list[str]) -> list[str]:
    """What stays of something closed, given what it holds."""
    if kind == "[[":
        content = "".join(pieces)
        target, bar, label = content.partition("|")
        namespace, colon, _ = target.partition(":")
        if colon and namespace.strip().lower() in _NAMESPACES:
            return []
        # links do not nest, so the inner one counts
        return [label if bar else content] if "[[" in content else ["[[", content, "]]"]
    if kind == "{{":
        content = "".join(pieces)
        show = _SHOWN.get(content.partition("|")[0].strip().lower()) if len(content) <= _LONGEST_SHOWN else None
        values = [value.strip() for value in _ARGUMENT_BOUNDARY.split(content)[1:]] if show else []
        try:
            return [show([value for value in values if not _NAMED.match(value)])] if show else []
        except IndexError:  # it lacks the argument
            return []
    return []


def _paragraphs(text: str) -> list[str]:
    """Paragraphs of prose: lines between blank lines, headings, and lines of lists and tables."""
    paragraphs: list[list[str]] = [[]]
    skipped_level = 0  # of the heading whose section is passed over; 0: none
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
    """What a reader sees of a paragraph; nothing of one that no person wrote."""
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
    """The visible text of parsed wikitext, entities as they stand."""
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
