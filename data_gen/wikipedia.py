"""Extracts the articles of a MediaWiki XML export or of a part of an export.

Paper: section 3.1, pre-training data: only the text passages of Wikipedia.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from bert_tf.core.errors import InputError
from data_gen.sentences import split_sentences
from data_gen.wikitext import passages

_CHUNK = 1 << 18
_ROOT, _ROOT_END = b"<mediawiki>", b"</mediawiki>"
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Page:
    """One page of a wiki, with the text of the newest revision in the export.

    Attributes:
        title: str, the title of the page.
        namespace: int, 0 for articles.
        is_redirect: bool, whether the page is a redirect.
        wikitext: str, empty for a deleted page.
    """

    title: str
    namespace: int
    is_redirect: bool
    wikitext: str


def pages(stream: BinaryIO, source: str = "the dump", start: int = 0) -> Iterator[Page]:
    """Yields the pages of a MediaWiki XML export of schema 0.6 or newer, in constant memory.

    Args:
        stream: BinaryIO, a whole export, or a part that starts at a `<page>` and ends after a `</page>` or after the
            export's `</mediawiki>`. The first bytes distinguish an export from a part. An empty stream has no pages.
        source: str, the file's name, for messages.
        start: int, the byte offset of the stream in the file, for messages.

    Yields:
        Page.

    Raises:
        InputError: The stream is not an export, is damaged, or ends too early (the message names the byte), or a
            page's namespace is not a number (the message names the page).
    """
    chunk = stream.read(_CHUNK)
    head = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_part = re.match(rb"<(?:\w+:)?page[\s>]", head) is not None
    if not head:
        return
    if not is_part and re.match(rb"<\?xml\s|<(?:\w+:)?mediawiki[\s>]|<!--", head) is None:
        raise InputError(
            f"{source}: at byte {start}: expected a MediaWiki XML export (<mediawiki ...>) or a part of an export that "
            f"starts at <page>, found {head[:40]!r}; decompress the file first if it is compressed"
        )
    parser, root, size = ElementTree.XMLPullParser(["start", "end"]), None, start
    try:
        if is_part:
            parser.feed(_ROOT)
            chunk = head
        while chunk:
            parser.feed(chunk)
            for event, element in parser.read_events():
                if root is None:
                    root = element
                elif event == "end" and _name(element) == "page":
                    yield _page(element, source)
                    root.clear()
                elif event == "end" and element is root:
                    is_part = False
            size += len(chunk)
            chunk = stream.read(_CHUNK)
        if is_part:
            parser.feed(_ROOT_END)
        parser.close()
    except ElementTree.ParseError as error:
        raise InputError(
            f"{source}: damaged XML at or after byte {size} ({error}); download the file again, or give its undamaged "
            "pages"
        ) from error


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _page(element: ElementTree.Element, source: str) -> Page:
    fields = {_name(child): child for child in element}  # the last revision is the newest, and replaces the others
    texts = [child.text for child in fields.get("revision", ()) if _name(child) == "text"]
    title, wikitext = element.findtext("{*}title") or "", (texts and texts[0]) or ""
    namespace = element.findtext("{*}ns", "missing")  # schemas before 0.6 (2012) lack <ns>
    if not namespace.strip().lstrip("-").isdecimal():
        raise InputError(f"{source}: page {title!r}: its namespace <ns> is {namespace!r}, expected a number")
    return Page(title, int(namespace), "redirect" in fields or bool(_REDIRECT.match(wikitext)), wikitext)


def articles(stream: BinaryIO, source: str = "the dump", start: int = 0) -> Iterator[list[str]]:
    """Yields the articles of an export: pages of namespace 0 that contain text and are not redirects.

    The arguments are those of `pages`.

    Yields:
        list of str, the sentences of one article.

    Raises:
        InputError: As in `pages`, or a library of the extra `text` is not installed.
    """
    for page in pages(stream, source, start):
        if page.namespace == 0 and not page.is_redirect:
            sentences = [sentence for passage in passages(page.wikitext) for sentence in split_sentences(passage)]
            if sentences:
                yield sentences
