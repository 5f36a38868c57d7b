"""The page of a report: HTML that refers to no other file, for wide and narrow screens, light and dark."""

import html
from collections.abc import Sequence

# Classes of cells by the least number of characters of their text, for the widths of their columns.
_WIDTHS = {"long": 120, "text": 36, "name": 15}
# `svg text` and the variables keep curves readable in both modes; a table that is too wide scrolls in its own box,
# rather than squeeze its texts into columns of single words.
STYLE = """
:root { color-scheme: light dark; --text: #1d2430; --soft: #56606f; --line: #dfe3ea; --page: #fff; --mark: #fdf0d5;
  --right: #14793c; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e7ee; --soft: #a3adbb; --line: #394150; --page: #14181f;
  --mark: #4a3a12; --right: #5cc98a; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--page); }
h1 { font-size: 1.6rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
.scroll { overflow-x: auto; } .scroll > svg { min-width: 38rem; max-width: 56rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); } td:first-child { white-space: nowrap; } td.text { min-width: 15rem; }
td.long { min-width: 26rem; } td.name { min-width: 8.5rem; }
@media (max-width: 40rem) { td:first-child { white-space: normal; } }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif !important; fill: var(--text) !important; }
p.note { color: var(--soft); margin: .3rem 0; } summary { cursor: pointer; color: var(--soft); }
pre { overflow-x: auto; padding: .7rem 1rem; border: 1px solid var(--line); border-radius: .5rem; font-size: .85rem; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: .6rem 1.2rem; }
.sample { border: 1px solid var(--line); border-radius: .5rem; padding: .7rem 1rem; margin: .8rem 0; }
.sample p { margin: 0 0 .4rem; }
mark { background: var(--mark); color: inherit; border-radius: .2rem; padding: 0 .15rem; }
sup { line-height: 0; font-size: .7em; }
table.confusion { width: auto; } table.confusion th { white-space: nowrap; }
table.confusion th.number { white-space: normal; vertical-align: bottom; }
table.confusion td { min-width: 2.6rem; padding: .2rem .35rem; }
code { overflow-wrap: anywhere; } .single { max-width: 30rem; }
.guess { display: inline-block; margin-right: .9rem; white-space: nowrap; } .guess small { color: var(--soft); }
.right { color: var(--right); font-weight: 600; }
"""


def page(title: str, body: str) -> str:
    """Returns an HTML page that refers to no other file."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
{body}</body></html>
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Returns a table of text that scrolls if it is too wide.

    Args:
      head: names of the columns.
      rows: cells as plain text.
      numbers: whether all columns but the first are numbers.
    """

    def cell(tag: str, text: str, is_number: bool) -> str:
        kinds = ["number"] if is_number else [name for name, least in _WIDTHS.items() if len(text) >= least]
        begin = f'<{tag} class="{kinds[0]}">' if kinds else f"<{tag}>"
        return f"{begin}{html.escape(text)}</{tag}>"

    def row(tag: str, values: Sequence[str]) -> str:
        cells = (cell(tag, value, numbers and place > 0) for place, value in enumerate(values))
        return f"<tr>{''.join(cells)}</tr>"

    return scrolling(f"<table>{row('th', head)}{''.join(row('td', values) for values in rows)}</table>")


def scrolling(element: str) -> str:
    """Returns an element in a box that scrolls sideways."""
    return f'<div class="scroll">{element}</div>'


def folded(summary: str, element: str) -> str:
    """Returns an element that a reader unfolds; the summary is plain text."""
    return f"<details><summary>{html.escape(summary)}</summary>{element}</details>"
