"""Renders the HTML of reports from templates of pages and of their elements."""

import time

import jinja2

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader(__package__),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# The macros of templates as functions that return HTML.
elements = _TEMPLATES.get_template("elements.html").module
confusion_matrix = _TEMPLATES.get_template("confusion_matrix.html").module.confusion_matrix


def render(template: str, **values) -> str:
    """Renders a template with the given values; returns a self-contained HTML page."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return _TEMPLATES.get_template(template).render(values, now=now)
