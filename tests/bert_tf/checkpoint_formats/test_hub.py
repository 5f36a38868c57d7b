"""Models by name, from a hub that runs here: `huggingface_hub` talks to it over HTTP, in a process of its own."""

import http.server
import json
import os
import subprocess
import sys
import threading

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_tf import checkpoints
from tests.bert_tf.checkpoint_formats.models import random_values
from tests.bert_tf.checkpoint_formats.test_hugging_face import ENTRIES, theirs
from tfrecords.errors import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = """
import sys
from bert_tf.checkpoint_formats.hub import download
from tfrecords.errors import InputError
for name in sys.argv[1:]:
    try:
        print(download(name))
    except InputError as error:
        print(error)
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """The few requests that a download of a whole repository makes."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        type(self).asked.append(path)
        if "/owner/closed/" in path:
            return self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if not path.startswith(("/api/models/owner/tiny/", "/owner/tiny/")):
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if "/resolve/" in path:
            data = self.files[path.rsplit("/", 1)[1]]
            return self.answer(200, data, {"ETag": f'"{len(data):040x}"'})
        if path.rsplit("/", 1)[1] not in ("main", "v1", COMMIT):
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if "/tree/" in path:
            listing = [{"type": "file", "path": n, "size": len(d), "oid": f"{len(d):040x}"}
                       for n, d in self.files.items()]  # fmt: skip
            return self.answer(200, json.dumps(listing).encode(), {})
        info = {"id": "owner/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
        return self.answer(200, json.dumps(info).encode(), {})

    def answer(self, status, data, headers):
        self.send_response(status)
        for key, value in (headers | {"X-Repo-Commit": COMMIT, "Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint(tmp_path):
    save_file(theirs(random_values()), tmp_path / "model.safetensors")
    Hub.files = {
        "model.safetensors": (tmp_path / "model.safetensors").read_bytes(),
        "config.json": json.dumps(ENTRIES).encode(), "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n",
        "pytorch_model.bin": b"\x80\x02", "README.md": b"hello",
    }  # fmt: skip
    Hub.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def downloaded(endpoint, cache, *names) -> list[str]:
    """Folders of the names, or the lines of what went wrong."""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                                "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}  # fmt: skip
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", CODE, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_are_downloaded_once_and_wrong_ones_end_in_a_line(endpoint, tmp_path):
    first, second, *errors = downloaded(
        endpoint, tmp_path / "cache", "hf://owner/tiny", "hf://owner/tiny@v1", "hf://owner/tiny@v2",
        "hf://owner/nothing", "hf://owner/closed", "hf://a/b/c",
    )  # fmt: skip
    assert first == second and sorted(os.listdir(first)) == ["config.json", "model.safetensors", "vocab.txt"]
    kernel = checkpoints.load_encoder(first).pooler.kernel
    np.testing.assert_array_equal(kernel, random_values()["encoder/pooler/kernel"])
    assert errors[0] == "hf://owner/tiny@v2: the model has no such revision; check the part after @"
    assert errors[1].startswith("hf://owner/nothing: the Hub has no such model")
    assert errors[2].startswith("hf://owner/closed: is gated; ask for access")
    assert errors[3] == "hf://a/b/c: is not a model name; write hf://owner/model"
    assert sum(path.endswith("model.safetensors") for path in Hub.asked) <= 3  # asked about, and fetched once
    # without a network what was downloaded is enough
    again, error = downloaded("http://127.0.0.1:9", tmp_path / "cache", "hf://owner/tiny", "hf://owner/other")
    assert again == first
    assert error.startswith("hf://owner/other: the Hub cannot be reached (")
    assert error.endswith("; check the network, or give a folder")


def test_a_model_that_has_only_pickles_is_refused_with_the_way_to_convert_them(endpoint, tmp_path):
    Hub.files = {"config.json": Hub.files["config.json"], "pytorch_model.bin": b"\x80\x02", "rng_state.pth": b""}
    plain, revised = downloaded(endpoint, tmp_path / "cache", "hf://owner/tiny", "hf://owner/tiny@v1")
    assert plain.startswith("hf://owner/tiny: has only pickles (pytorch_model.bin), which can run any code")
    assert "give tiny: hf download owner/tiny --local-dir tiny && python -c '" in plain
    assert '["tiny/pytorch_model.bin"]' in plain and plain.endswith('"tiny/model.safetensors", {"format": "pt"})\'')
    assert "hf download owner/tiny --revision v1 --local-dir tiny" in revised


def test_a_name_is_downloaded_and_loaded(monkeypatch, tmp_path):
    save_file(theirs(random_values()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(ENTRIES))
    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: asked.append((a, k)) or str(tmp_path))
    for _ in range(2):
        encoder = checkpoints.load_encoder("hf://owner/loaded@v3")
    np.testing.assert_array_equal(encoder.pooler.kernel, random_values()["encoder/pooler/kernel"])
    assert [(a, k["revision"]) for a, k in asked] == [(("owner/loaded",), "v3")]


def test_without_the_package_the_way_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'bert_tf\[hf\]'"):
        checkpoints.load_encoder("hf://owner/unknown")
