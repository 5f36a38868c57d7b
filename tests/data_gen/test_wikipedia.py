import bz2

import pytest

from bert_tf.core.errors import InputError
from data_gen import documents, wikipedia
from tests.kit import refused

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" version="0.11" xml:lang="en">
  <siteinfo><sitename>Testwiki</sitename><namespaces><namespace key="0" case="first-letter" />
    <namespace key="1" case="first-letter">Talk</namespace></namespaces></siteinfo>
"""
FOOT = "</mediawiki>\n"


def page(title, text, ns="<ns>0</ns>", extra="", revisions=()):
    revisions = "".join(
        f"<revision><id>7</id><contributor><username>A</username></contributor><comment>a <![CDATA[<b>]]></comment>"
        f'<model>wikitext</model><text bytes="9" xml:space="preserve">{one}</text><sha1>x</sha1></revision>'
        for one in [*revisions, text]
    )
    return f"  <page>\n    <title>{title}</title>\n    {ns}\n    <id>7</id>{extra}\n    {revisions}\n  </page>\n"


PAGES = [
    page("Tom &amp; Jérry", "'''Tom''' is a [[cat]]. He runs &lt;ref&gt;Lost.&lt;/ref&gt; fast.\n\nJerry is a mouse. "),
    page("Old name", "#REDIRECT [[Tom]]", extra='<redirect title="Tom" />'),
    page("Talk:Tom", "I think that Tom is great.", ns="<ns>1</ns>"),
    page("History", "The new text stands here.", revisions=["The old text stood here."]),
    page("Empty", "{{only a template}}"),
    "  <page><title>Deleted</title><ns>0</ns><revision><text deleted='deleted' /></revision></page>\n",
]
EXPECTED = [
    ["Tom is a cat.", "He runs fast.", "Jerry is a mouse."],
    ["The new text stands here."],
]


def dump(*pages):
    return (HEAD + "".join(pages) + FOOT).encode()


def articles(content, source="wiki.xml", start=0):
    return wikipedia.articles(content, source, start, wikipedia.Header())


def test_the_articles_of_a_whole_export():
    assert articles(dump(*PAGES)) == EXPECTED
    assert articles(b"\xef\xbb\xbf" + b'<?xml version="1.0" encoding="utf-8"?>\n' + dump(*PAGES)) == EXPECTED


def test_parts_together_are_the_whole():
    """Divides the export at its pages in every way, with the end mark in the last part."""
    each = [articles(dump(one)) for one in PAGES]
    for first in range(len(PAGES)):
        for last in range(first + 1, len(PAGES) + 1):
            part = "".join(PAGES[first:last])
            whole = [article for found in each[first:last] for article in found]
            assert articles(part.encode()) == whole
            assert articles(part.strip().encode()) == whole
            assert articles((part + FOOT).encode()) == whole
    assert articles(b"") == articles(b" \n") == []


def dump_of(language, file, category, *pages):
    names = f'<namespace key="6" case="first-letter">{file}</namespace><namespace key="14">{category}</namespace>'
    head = HEAD.replace('"en"', f'"{language}"').replace("</namespaces>", f"{names}</namespaces>")
    return (head + "".join(pages) + FOOT).encode()


def read(path, chunk_bytes, language=""):
    sources = documents.plan_sources(str(path), "wikipedia", chunk_bytes)
    chunks = [c for s in sources for c in documents.read_documents(s, "wikipedia", "text", chunk_bytes, language)]
    return [document for chunk in chunks for document in chunk]


@pytest.mark.parametrize("suffix", ["", ".bz2"])
@pytest.mark.parametrize(
    "language, file, category",
    [
        ("tr", "Dosya", "Kategori"),
        ("cs", "Soubor", "Kategorie"),
        ("ko", "파일", "분류"),
        ("ar", "ملف", "تصنيف"),
        ("vi", "Tập tin", "Thể loại"),
    ],
)
def test_the_dump_names_its_namespaces(tmp_path, language, file, category, suffix):
    """The header applies to each part of the dump, whether the dump is read in ranges or as a stream."""
    links = [
        f"[[{file}:A|x|A caption with a [[link|text of a link]] and [[{category}:Words of a category]] in it]]",
        f"[[ {file.replace(' ', '_').upper()}:A|x|A caption of several words]]",
        f"[[\u200f{category}:Words of a category name|key]]",
        "[[File:A|thumb|A caption of several words]] [[category:Words of a category name]] [[Media:A|a b c]]",
    ]
    pages = [page(f"T{i}", f"{link}\n\nOne [[:{category}:X|two]] three.") for i, link in enumerate(links)]
    path = tmp_path / f"wiki.xml{suffix}"
    content = dump_of(language, file, category, *pages)
    path.write_bytes(bz2.compress(content) if suffix else content)
    for chunk_bytes in (10, 1000, 1 << 20):
        assert read(path, chunk_bytes) == [["One two three."]] * len(links)


def test_sentences_end_by_the_rules_of_the_dump(tmp_path):
    czech = ["Žije tu tzv. Karel.", "Je to tj. Praha."]
    pages = [page("A", " ".join(czech)), page("B", " ".join(czech))]
    path = tmp_path / "wiki.xml"
    path.write_bytes(dump_of("cs", "Soubor", "Kategorie", *pages))
    assert read(path, 10) == read(path, 1 << 20) == [czech] * 2
    english = ["Žije tu tzv.", "Karel.", "Je to tj.", "Praha."]
    assert read(path, 10, "en") == [english] * 2
    path.write_bytes("".join(pages).encode())  # a part of a dump without the header
    assert read(path, 10) == [english] * 2
    assert read(path, 10, "cs") == [czech] * 2


def test_pages_without_a_namespace_are_refused():
    """In exports older than schema 0.6, only the title distinguishes talk pages from articles."""
    with pytest.raises(InputError, match="page 'Talk:Tom': its namespace <ns> is 'missing', expected a number"):
        articles(dump(page("Talk:Tom", "I think so too.", ns="")))


def test_redirects_by_their_text_and_renamed_schemas():
    redirect = page("Jerry", "  #redirect [[Tom]]")
    assert articles(dump(redirect)) == []


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("start", [0, 1000])
def test_damage_error_names_start_byte_of_read(is_part, start):
    content = "".join(PAGES).encode() if is_part else dump(*PAGES)
    at = content.index(b"</revision>") + 2
    message = rf"^wiki.xml: damaged XML at or after byte {start} \(mismatched tag: line "
    refused(message, articles, content[:at] + b"x" + content[at + 1 :], source="wiki.xml", start=start)


@pytest.mark.parametrize(
    "content, message",
    [
        (dump(*PAGES)[:-14], "damaged XML at or after byte .*no element found"),
        (dump(*PAGES) + b"<page></page>", "junk after document element"),
        (b"BZh91AY&SY...", "at byte 0: expected a MediaWiki XML export .* found b'BZh9.*decompress the file first"),
        (b"<html></html>", "expected a MediaWiki XML export"),
        (page("Tom", "a", ns="<ns>main</ns>").encode(), "page 'Tom': its namespace <ns> is 'main'"),
    ],
)
def test_what_is_no_export_is_refused(content, message):
    refused(message, articles, content)
