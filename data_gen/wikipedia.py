"""Extracts the articles of a MediaWiki XML export or of a part of an export.

Paper: section 3.1, pre-training data: only the text passages of Wikipedia.
"""

import html
import re
from typing import NamedTuple
from xml.etree import ElementTree

from bert_tf.core.errors import InputError
from data_gen.compressed import open_binary
from data_gen.sentences import ENGLISH, split_sentences
from data_gen.wikitext import namespace_key, passages

_ROOT, _ROOT_END = b"<mediawiki>", b"</mediawiki>"
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
_LANGUAGE = re.compile(r"""<(?:\w+:)?mediawiki\s[^>]*\bxml:lang=["']([\w-]+)""")
_NAMESPACE = re.compile(r"""<(?:\w+:)?namespace\s[^/>]*\bkey=["'](?:-2|6|14)["'][^/>]*>([^<]+)<""")


class Header(NamedTuple):
    """What the header of a dump says about the wiki. The defaults are for parts of a dump, which have no header."""

    language: str = ENGLISH
    local_names: frozenset[str] = frozenset()  # of the namespaces of files, media and categories


def header(path: str) -> Header:
    with open_binary(path) as file:
        start = file.read(1 << 16).decode("utf-8", errors="ignore")
    language = _LANGUAGE.search(start)
    names = frozenset(namespace_key(html.unescape(name)) for name in _NAMESPACE.findall(start))
    return Header(language[1].lower() if language else ENGLISH, names)


def articles(text: bytes, source: str, start: int, header: Header) -> list[list[str]]:
    """Returns the articles of an export: pages of namespace 0 that contain text and are not redirects.
    `text`: a whole MediaWiki XML export of schema 0.6 or newer, or a part that starts at a `<page>` and ends after a
      `</page>` or after the export's `</mediawiki>`. The first bytes distinguish an export from a part.
    `source`: the file's name, for messages.
    `start`: the byte offset of the text in the file, for messages.
    `header`: the header of the file."""
    head = text.removeprefix(b"\xef\xbb\xbf").strip()
    if not head:
        return []
    if re.match(rb"<(?:\w+:)?page[\s>]", head):
        head = _ROOT + head.removesuffix(_ROOT_END) + _ROOT_END
    elif re.match(rb"<\?xml\s|<(?:\w+:)?mediawiki[\s>]|<!--", head) is None:
        raise InputError(
            f"{source}: at byte {start}: expected a MediaWiki XML export (<mediawiki ...>) or a part of an export that "
            f"starts at <page>, found {head[:40]!r}; decompress the file first if it is compressed"
        )
    try:
        root = ElementTree.fromstring(head)
    except ElementTree.ParseError as error:
        raise InputError(
            f"{source}: damaged XML at or after byte {start} ({error}); download the file again, or give its undamaged "
            "pages"
        ) from error
    texts = (_wikitext(page, source) for page in root.iterfind("{*}page"))
    language, names = header
    documents = ([s for passage in passages(text, names) for s in split_sentences(passage, language)] for text in texts)
    return list(filter(None, documents))


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _wikitext(page: ElementTree.Element, source: str) -> str:
    """Returns the text of an article's newest revision in the export; "" for a redirect and for other pages."""
    fields = {_name(child): child for child in page}  # the last revision is the newest, and replaces the others
    texts = [child.text for child in fields.get("revision", ()) if _name(child) == "text"]
    namespace = page.findtext("{*}ns", "missing")  # schemas before 0.6 (2012) lack <ns>
    if not namespace.strip().lstrip("-").isdecimal():
        title = page.findtext("{*}title") or ""
        raise InputError(f"{source}: page {title!r}: its namespace <ns> is {namespace!r}, expected a number")
    wikitext = (texts and texts[0]) or ""
    return "" if int(namespace) or "redirect" in fields or _REDIRECT.match(wikitext) else wikitext
