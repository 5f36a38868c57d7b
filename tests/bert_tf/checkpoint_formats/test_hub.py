"""Models by name from a local hub; `huggingface_hub` runs in a separate process and uses HTTP."""

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
from tests.bert_tf.checkpoint_formats.models import ENTRIES, random_values, theirs
from tests.kit import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Answers each line of names with the same number of lines.
CODE = """
import sys
from bert_tf.core.hub import download
from bert_tf.core.errors import InputError
for names in sys.stdin:
    download.cache_clear()
    for name in names.split():
        try:
            print(download(name), flush=True)
        except InputError as error:
            print(error, flush=True)
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers the few requests that the download of a whole repository makes."""

    models: dict[str, dict[str, bytes]] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        type(self).asked.append(path)
        if "/owner/closed/" in path:
            return self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        name = next((name for name in self.models if f"/{name}/" in path), None)
        if name is None:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        files = self.models[name]
        if "/resolve/" in path:
            data = files[path.rsplit("/", 1)[1]]
            return self.answer(200, data, {"ETag": f'"{len(data):040x}"'})
        if path.rsplit("/", 1)[1] not in ("main", "v1", COMMIT):
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if "/tree/" in path:
            listing = [{"type": "file", "path": n, "size": len(d), "oid": f"{len(d):040x}"}
                       for n, d in files.items()]  # fmt: skip
            return self.answer(200, json.dumps(listing).encode(), {})
        info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
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
def server(tmp_path):
    """Starts a hub with a model, and with a model that has only pickles."""
    save_file(theirs(random_values()), tmp_path / "model.safetensors")
    tiny = {
        "model.safetensors": (tmp_path / "model.safetensors").read_bytes(),
        "config.json": json.dumps(ENTRIES).encode(), "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n",
        "pytorch_model.bin": b"\x80\x02", "README.md": b"hello",
    }  # fmt: skip
    pickles = {"config.json": tiny["config.json"], "pytorch_model.bin": b"\x80\x02", "rng_state.pth": b""}
    Hub.models = {"owner/tiny": tiny, "owner/pickles": pickles}
    Hub.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    close(server)


def close(server):
    server.shutdown()
    server.server_close()


@pytest.fixture
def download(server, tmp_path):
    """Returns a function from names to folders or error lines."""
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }  # fmt: skip
    command = [sys.executable, "-c", CODE]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def ask(*names) -> list[str]:
            print(*names, file=process.stdin, flush=True)
            return [process.stdout.readline().rstrip("\n") for _ in names]

        yield ask
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.slow
def test_hub_downloads_once_and_refuses_wrong_names(server, download):
    first, second, *errors = download(
        "hf://owner/tiny", "hf://owner/tiny@v1", "hf://owner/tiny@v2", "hf://owner/nothing", "hf://owner/closed",
        "hf://a/b/c",
    )  # fmt: skip
    assert first == second and sorted(os.listdir(first)) == ["config.json", "model.safetensors", "vocab.txt"]
    kernel = checkpoints.load_encoder(first).pooler.kernel
    np.testing.assert_array_equal(kernel, random_values()["encoder/pooler/kernel"])
    assert errors[0] == "hf://owner/tiny@v2: the model has no such revision; check the part after @"
    assert errors[1].startswith("hf://owner/nothing: the Hub has no such model")
    assert errors[2].startswith("hf://owner/closed: is gated; ask for access")
    assert errors[3] == "hf://a/b/c: is not a model name; write hf://owner/model"
    assert sum(path.endswith("model.safetensors") for path in Hub.asked) <= 3  # two requests: information and download
    (refused,) = download("hf://owner/pickles")
    assert refused.startswith("hf://owner/pickles: has neither safetensors nor tf_model.h5, and pickles")
    # downloaded files suffice without a network
    close(server)
    again, error = download("hf://owner/tiny", "hf://owner/other")
    assert again == first
    assert error.startswith("hf://owner/other: the Hub cannot be reached (")
    assert error.endswith("; check the network, or give a folder")


def test_a_name_is_downloaded_and_loaded(monkeypatch, tmp_path):
    save_file(theirs(random_values()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(ENTRIES))
    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: asked.append((a, k)) or str(tmp_path))
    for _ in range(2):
        encoder = checkpoints.load_encoder("hf://owner/loaded@v3")
    np.testing.assert_array_equal(encoder.pooler.kernel, random_values()["encoder/pooler/kernel"])
    assert [(a, k["revision"]) for a, k in asked] == [(("owner/loaded",), "v3")]
    wanted = ["config.json", "model.safetensors", "vocab.txt", "modules.json", "1_Pooling/config.json"]
    wanted += ["sentence_bert_config.json", "tokenizer_config.json", "config_sentence_transformers.json"]
    left = ["pytorch_model.bin", "README.md", "onnx/model.onnx"]
    taken = huggingface_hub.utils.filter_repo_objects([*wanted, *left], allow_patterns=asked[0][1]["allow_patterns"])
    assert list(taken) == wanted


def test_missing_hub_package_error_names_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(r"needs: pip install huggingface-hub safetensors", checkpoints.load_encoder, "hf://owner/unknown")
