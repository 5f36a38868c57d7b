"""Checks of an HTML page."""

import html.parser
import re


class Tags(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects the references of a page."""

    def __init__(self, page):
        super().__init__()
        self.open, self.references = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)
        self.references += [value for name, value in attributes if name.split(":")[-1] in ("href", "src")]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_stands_alone(page):
    tags = Tags(page)
    assert tags.open == []
    assert all(reference.startswith("#") for reference in tags.references)
    assert not re.findall(r"@import|url\((?!#)", page)
