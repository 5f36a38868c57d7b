"""The page at `/`, on which people try the served models. It uses the REST interface like any client."""

import ipaddress
import json
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

import tensorflow as tf

from export import version_folder

_TEMPLATE = (pathlib.Path(__file__).parent / "page.html").read_text(encoding="utf-8")
# These headers prevent the page from contacting any other server.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-store",
}


def is_own_host(host: str, listens_on: str) -> bool:
    """Whether a request's Host is this server. A page of another site could otherwise reach it under a name of its own.
    `host`: the header Host: a name or an address, perhaps with a port.
    `listens_on`: the value of --host."""
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname or ""
        return name in ("localhost", listens_on.lower()) or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def read_labels(folder: str) -> list[str]:
    """Returns the names of an export's classes; [] if the export has no classes."""
    path = os.path.join(folder, "assets", version_folder.LABELS)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read().decode("utf-8", "replace").splitlines()
    except tf.errors.OpError:
        return []


def render(labels: Mapping[str, Sequence[str]]) -> bytes:
    models = json.dumps([{"name": name, "labels": list(classes)} for name, classes in labels.items()])
    # Without this replacement, "</script>" in a name would end the script.
    return _TEMPLATE.replace("MODELS", models.replace("<", "\\u003c"), 1).encode()
