"""Rewrites Markdown for GitHub so that MkDocs shows it in the same way.

Links between files of the repository become links between pages, and lists get the indentation of Python-Markdown.
"""

import pathlib
import posixpath
import re
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Finds a code block, inline code, or a link or image with its text and target.
_CODE_OR_LINK = re.compile(
    r"^(?P<fence>```+)[\s\S]*?^(?P=fence)|(?P<ticks>`+)[^`][\s\S]*?(?P=ticks)"
    r"|(?P<image>!?)\[(?P<text>(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE,
)
# Find the start of a list item up to its content, and the first or last line of a code block.
_ITEM = re.compile(r" *(?P<marker>[-*+]|\d{1,9}[.)]) +(?=\S)")
_FENCE = re.compile(r" *(`{3,}|~{3,})")


def with_site_links(markdown: str, source: str, page: str, copied: Mapping[str, str], repo_url: str) -> str:
    """Rewrites links between files of the repository so that they work in the site.

    A link to a file that has no page becomes a link to the repository. If the repository's address is unknown, only the
    name of the file remains. A broken link is not changed, and MkDocs reports it.

    Args:
      markdown: text of a page.
      source: path of the page's source file in the repository.
      page: path of the page in the site.
      copied: maps files outside of docs/ to the paths of their pages in the site.
      repo_url: address of the repository; "" if unknown.
    """

    def rewrite(found: re.Match) -> str:
        target = found["target"]
        if not target or re.match(r"#|/|[\w+.-]+:", target):
            return found[0]
        path, hash_, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / path).exists():
            return found[0]
        in_site = copied.get(path) or (path.startswith("docs/") and (ROOT / path).is_file() and path[len("docs/") :])
        if in_site:
            address = posixpath.relpath(in_site, posixpath.dirname(page) or ".") + hash_ + anchor
        elif repo_url:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            address = f"{repo_url.rstrip('/')}/{kind}/main/{path}{hash_}{anchor}"
        else:
            return found["text"] if path in found["text"] else f"{found['text']} (`{path}`)"
        return f"{found['image']}[{found['text']}]({address})"

    return _CODE_OR_LINK.sub(rewrite, markdown)


def with_wide_lists(markdown: str) -> str:
    """Indents the content of list items by four columns, and puts a blank line before lists that follow a paragraph.

    Python-Markdown needs both; CommonMark, which GitHub uses, needs neither.
    """
    lines, contents, fence, is_paragraph = [], [], "", False
    for line in markdown.split("\n"):
        if not line.strip():
            lines.append("")
            is_paragraph = False
            continue
        item = None
        if not fence:
            depth, indent = len(contents), len(line) - len(line.lstrip(" "))
            while contents and indent < contents[-1]:
                contents.pop()
            start = contents[-1] if contents else 0
            item = _ITEM.match(line) if indent < start + 4 else None
            if item and is_paragraph and not depth and item["marker"] in ("-", "*", "+", "1."):
                lines.append("")
        lines.append(" " * 4 * len(contents) + line[contents[-1] if contents else 0 :])
        if item:
            contents.append(item.end())
        is_fence = _FENCE.match(line)
        is_paragraph = not fence and not is_fence
        if is_fence:
            fence = "" if fence and is_fence[1].startswith(fence) else fence or is_fence[1]
    return "\n".join(lines)
