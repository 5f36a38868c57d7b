"""Extracts the articles of a MediaWiki XML export, or of a part of one.

Paper: section 3.1, pre-training data: only the text passages of Wikipedia.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

from bert_tf.core.errors import InputError
from data_gen.sentences import split_sentences
from data_gen.wikitext import passages

_CHUNK = 1 << 18
_ROOT, _ROOT_END = b"<mediawiki>", b"</mediawiki>"
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
# Namespaces from number -2 on, for exports older than schema 0.6, which do not state the number of a page's namespace.
_NAMESPACES = (
    "Media Special Main Talk User User_talk Project Project_talk File File_talk MediaWiki MediaWiki_talk Template "
    "Template_talk Help Help_talk Category Category_talk"
).split()


@dataclasses.dataclass(frozen=True)
class Page:
    """One page of a wiki, in the newest revision of the export.

    Attributes:
        title: str.
        namespace: int, 0 for articles.
        is_redirect: bool.
        wikitext: str, empty for a deleted page.
    """

    title: str
    namespace: int
    is_redirect: bool
    wikitext: str


class _PageParser:
    """Builds pages from expat's events, one page at a time."""

    def __init__(self, source: str):
        self.source = source
        self.finished: list[Page] = []
        self.depth = 0
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self._path: list[str] = []
        self._fields: dict[str, str] = {}
        self._text: list[str] = []

    def _start(self, name, attributes):
        del attributes
        name = name.rpartition(":")[2]
        self.depth += 1
        self._path.append(name)
        if name == "page":
            self._fields = {}
        elif name == "redirect":
            self._fields["redirect"] = ""
        elif self._path[-2:] in (["page", "title"], ["page", "ns"], ["revision", "text"]):
            self._text.clear()
            self.expat.CharacterDataHandler = self._text.append

    def _end(self, name):
        name = name.rpartition(":")[2]
        self.depth -= 1
        self._path.pop()
        if self.expat.CharacterDataHandler is not None:
            self.expat.CharacterDataHandler = None
            self._fields[name] = "".join(self._text)
        if name == "page":
            self.finished.append(self._page())

    def _page(self) -> Page:
        fields = self._fields
        title, wikitext = fields.get("title", ""), fields.get("text", "")
        if "ns" in fields:
            try:
                namespace = int(fields["ns"])
            except ValueError:
                raise InputError(
                    f"{self.source}: page {title!r}: its namespace <ns> is {fields['ns']!r}, expected a number"
                ) from None
        else:
            prefix = title.partition(":")[0].replace(" ", "_") if ":" in title else "Main"
            namespace = _NAMESPACES.index(prefix) - 2 if prefix in _NAMESPACES else 0
        return Page(title, namespace, "redirect" in fields or _REDIRECT.match(wikitext) is not None, wikitext)


def pages(stream: BinaryIO, source: str = "the dump", start: int = 0) -> Iterator[Page]:
    """Yields the pages of a MediaWiki XML export of any schema version, in constant memory.

    Args:
        stream: BinaryIO, a whole export, or a part that starts at a `<page>` and ends after a `</page>` or after the
            export's `</mediawiki>`. The first bytes tell which it is. An empty stream has no pages.
        source: str, the file's name, for messages.
        start: int, the byte offset of the stream in the file, for messages.

    Yields:
        Page.

    Raises:
        InputError: The stream is not an export, is damaged, or ends too early; the message names the byte.
    """
    chunk = stream.read(_CHUNK)
    head = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_part = re.match(rb"<(?:\w+:)?page[\s>]", head) is not None
    if not head:
        return
    if not is_part and re.match(rb"<\?xml\s|<(?:\w+:)?mediawiki[\s>]|<!--", head) is None:
        raise InputError(
            f"{source}: at byte {start}: expected a MediaWiki XML export (<mediawiki ...>) or a part of one that "
            f"starts at <page>, found {head[:40]!r}; decompress it first if it is compressed"
        )
    parser = _PageParser(source)
    # Offset between positions in the text given to expat and positions in the stream.
    shift = len(_ROOT) - (len(chunk) - len(head)) if is_part else 0
    if is_part:
        chunk = _ROOT + head
    try:
        while chunk:
            parser.expat.Parse(chunk, False)
            yield from parser.finished
            parser.finished.clear()
            chunk = stream.read(_CHUNK)
        parser.expat.Parse(_ROOT_END if is_part and parser.depth == 1 else b"", True)
    except expat.ExpatError as error:
        position = start + max(0, parser.expat.ErrorByteIndex - shift)
        raise InputError(
            f"{source}: damaged XML at byte {position}: {expat.ErrorString(error.code)}; download the file again, or "
            "give its undamaged pages"
        ) from error


def articles(stream: BinaryIO, source: str = "the dump", start: int = 0) -> Iterator[list[str]]:
    """Yields the articles of an export: pages of namespace 0 that contain text and are not redirects.

    Args:
        stream: BinaryIO, as in `pages`.
        source: str, the file's name, for messages.
        start: int, the byte offset of the stream in the file, for messages.

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
