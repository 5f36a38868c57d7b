import mwparserfromhell
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.wikitext import passages

ARTICLE = """{{Short description|River of Nowhere}}
{{Infobox river
| name = Brindle <!-- not {{really}} the name -->
| image = [[File:Brindle.jpg|thumb|The [[weir]] at {{nowrap|Upper Brindle}}]]
| length = {{convert|120|km|mi|abbr=on}}
| website = {{URL|https://example.org}}<ref>{{cite web|url=http://example.org|title=Lost|}}</ref>
|}}
The '''River Brindle''' ({{IPA|en|brɪndl}}; {{lang|fr|Brindelle}}) is a [[river]] of [[Nowhere (county)|Nowhere]],<ref
name="a">{{cite book |title=Rivers |page=3}} Said in a [[book]] that is lost.</ref> about {{convert|120|km|mi|abbr=on}}
long.<ref name="a" /> It rises near [[:Category:Hills|the hills]] &mdash; and flows ''south&nbsp;west''.
It drains <small>three</small> counties<br/>and [http://example.org a lake].<ref>Lost again in here.</ref>

[[File:Brindle2.jpg|thumb|left|A caption with a [[link|text]] and
a second line lost.]]
== Course of the lost heading ==
* a list item that is lost
*# and a deeper one is lost
: an indented line is lost
; a term : and its definition are lost
{| class="wikitable"
! A head !! Is lost
|-
| a cell || that is {{lost|x}}
{|
| a table in a table is lost
|}
| as is this cell
|}
The '''''upper''' course'' is steep. The formula <math>a_b < c</math> holds, <nowiki>[[no link]] &amp; no {{x}}</nowiki>
today.
__NOTOC__ Text behind the switch goes on.
<gallery>
File:a.jpg|this caption here is lost
</gallery>
<blockquote>He said "this is long enough".</blockquote>
<!-- A comment of many words

is lost -->
Too short

=== Mills ===
The mills still stand.{{citation needed|date=May 2020}}

==See also==
This text is lost with its section.
=== Deeper ===
And so is this lost text below it.
== Legacy ==
But this section is back, AT&amp;T said: &amp;lt; is fine.

== References ==
{{reflist|
* all that is lost
}}
Nothing behind this heading: lost.
[[Category:Rivers that are lost]] [[de:Brindle]]
[[fr:Brindelle perdue et lost]]
"""
PASSAGES = [
    "The River Brindle (Brindelle) is a river of Nowhere, about 120 km long. It rises near the hills — and flows south "
    "west. It drains three counties and a lake.",
    "The upper course is steep. The formula holds, [[no link]] & no {{x}} today. Text behind the switch goes on.",
    'He said "this is long enough".',
    "The mills still stand.",
    "But this section is back, AT&T said: &lt; is fine.",
]


def test_an_article_becomes_its_passages():
    assert passages(ARTICLE) == PASSAGES


def test_passages_equal_the_librarys():
    """An independent reference for the remaining text: mwparserfromhell on the whole article with tables and lists."""
    seen = mwparserfromhell.parse(ARTICLE).strip_code().replace("\u00a0", " ")
    position = 0
    # except for the templates that we show
    for word in " ".join(PASSAGES).replace(" 120 km", "").replace(" (Brindelle)", "").split():
        assert word in seen[position:]
        position = seen.index(word, position) + len(word)


@pytest.mark.parametrize(
    "wikitext, expected",
    [
        ("", []),
        ("#REDIRECT [[Some other page here]]", []),
        # unpaired marks are removed; the text between them stays
        ("One {{two three four", ["One two three four"]),
        ("One [[two three four.\n\nFive [[six]] seven.", ["One two three four.", "Five six seven."]),
        ("One <ref>two three four.\n\nFive<ref>x</ref> six seven.", ["One two three four.", "Five six seven."]),
        ("One two three <!-- four\n\nfive six seven", ["One two three"]),
        # similar marks
        ("The ''Brindle'''s mouth is wide.", ["The Brindle's mouth is wide."]),
        ("It cost {{{1|}}} 5 < 6 > 4 pounds in all.", ["It cost 5 < 6 > 4 pounds in all."]),
        ("Two [[mill]]s and [[Main#Part|part]] of [[it]].", ["Two mills and part of it."]),
        ("One [[a|two [[three]] four]] five.", ["One two three four five."]),
        ("[[Datei:Bild.jpg|mini|Ein Bild von etwas]]Das ist der Text.", ["Das ist der Text."]),
        # aliases, which no dump states
        ("[[그림:집 그림.SVG|섬네일|세 단어 설명]]Das ist der Text.", ["Das ist der Text."]),
        ("[[分類:a b c d|e]]Das ist der Text.", ["Das ist der Text."]),
        ("[[:File:A.jpg|The file]] and [[commons:File:A.jpg|its source]].", ["The file and its source."]),
        ("[[de:Ein Titel von vier Wörtern]] [[fr:Un autre]]\nOne two three.", ["One two three."]),
        ("One {{lang|fr}} two {{unknown|gone}} three.", ["One two three."]),
        ("It is {{nowrap|[[a b|big]] and}} red.", ["It is big and red."]),
        ("He said {{nowrap|1=x = 5 km}} was long.", ["He said x = 5 km was long."]),
        ("It is {{convert|3|to|5|km|mi}} wide, {{cvt|10|-|12|kg}}.", ["It is 3 to 5 km wide, 10–12 kg."]),
        ("He is {{convert|6|ft|2|in|m}} tall, or {{convert|188|cm|ft|0}}.", ["He is 6 ft 2 in tall, or 188 cm."]),
        ("One ( ; ) two (, born 1950) three {{x}}, four.", ["One two (born 1950) three, four."]),
        ("one two", []),
        ("one\ntwo\nthree", ["one two three"]),
    ],
)
def test_single_matters(wikitext, expected):
    assert passages(wikitext) == expected


@pytest.mark.parametrize("name", ["See also", "references", "''External links''", " Further reading ", "Bibliography"])
def test_references_section_ends_at_same_level(name):
    text = f"== {name} ==\nLost to the reader.\n=== Below ===\nLost as well here.\n== Next ==\nThis is kept."
    assert passages(text) == ["This is kept."]


_PIECES = (
    "{{ }} {{{ }}} {| |} |- | || ! [[ ]] [http://a ] <ref> </ref> <ref/> <nowiki> </nowiki> <math> </math> <!-- --> "
    "<b> </b> <br> <i <div </table> ' '' '' == === * # : ; ---- __TOC__ &amp; & &#x; File: lang nowrap convert "
    "http://b.c -{ }- some words of prose (, ) ="
).split()


@given(st.lists(st.sampled_from([*_PIECES, "\n", " ", "\n\n"]), max_size=60).map("".join) | st.text(max_size=80))
def test_broken_wikitext_never_raises(wikitext):
    for passage in passages(wikitext):
        assert passage == " ".join(passage.split())
        assert passage.encode()


@pytest.mark.parametrize(
    "token",
    ["{{", "[[", "{|\n|a\n", "[[File:a|thumb|b ", "<b>x", "<ref>", "''a'''b", "[http://a ", "<!-- ", '<b a="',
     "<table><tr>", "\n=a", "(, ", "&am", "a "],
)  # fmt: skip
def test_the_library_never_reads_what_takes_it_long(token, monkeypatch):
    """With 10,000 of these, nested or open, it takes 10 s to minutes, but not with flat links or few open marks."""
    parse, read = mwparserfromhell.parse, []
    monkeypatch.setattr(mwparserfromhell, "parse", lambda text: read.append(text) or parse(text))
    for wikitext in (
        token * 1_000,
        token * 10_000,
        token * 10_000 + "]]}}" * 10_000,
        "{{nowrap" + token * 10_000 + "}}" * 10_000,
    ):
        passages("One ''two'' three.\n\n" + wikitext)
    assert read
    for text in read:
        assert len(text) <= 50_000
        assert text.count("<") + text.count("''") + text.count("[http") <= 500
        assert "{{" not in text
        assert not text.startswith("{|")
        assert text.count("[[") == text.count("]]")
