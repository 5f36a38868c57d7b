"""The page at `/`, on which people try the served models. It uses the REST interface like any client."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence

import tensorflow as tf

_TEMPLATE = (pathlib.Path(__file__).parent / "page.html").read_text(encoding="utf-8")
_LABELS_NAME = os.path.join("assets", "labels.txt")
# These headers prevent the page from contacting any other server.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-store",
}


def read_labels(folder: str) -> list[str]:
    """Returns the names of an export's classes; [] if the export has no classes."""
    path = os.path.join(folder, _LABELS_NAME)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read().decode("utf-8", "replace").splitlines()
    except tf.errors.OpError:
        return []


def render(labels: Mapping[str, Sequence[str]]) -> bytes:
    models = json.dumps([{"name": name, "labels": list(classes)} for name, classes in labels.items()])
    # Without this replacement, "</script>" in a name would end the script.
    return _TEMPLATE.replace("MODELS", models.replace("<", "\\u003c"), 1).encode()
