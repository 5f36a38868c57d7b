"""The clients of the page about serving, with a SavedModel of TensorFlow 2 that takes strings."""

import contextlib
import io
import pathlib
import re
import shlex

import pytest
import tensorflow as tf

from tests.export.serving.models import Reviews
from tests.export.serving.running import running

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = (DOCS / "tutorials/serving.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("reviews")
    model = Reviews()
    tf.saved_model.save(model, str(base / "1"), signatures={"serving_default": model.answer})
    with running("--model_name=reviews", f"--model_base_path={base}") as started:
        yield started


def test_the_pages_clients(server):
    programs = re.findall(r"^```python\n([\s\S]*?)^```$", TUTORIAL, re.MULTILINE)
    assert len(programs) == 2
    for program, answer in zip(programs, ("good\n", "[b'good']\n"), strict=True):
        program = program.replace("localhost:8501", f"127.0.0.1:{server.rest_port}")
        program = program.replace("localhost:8500", f"127.0.0.1:{server.grpc_port}")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, "serving.md", "exec"), {})
        assert printed.getvalue() == answer
    curl = shlex.split(re.search(r"^ {4}(curl .*)$", TUTORIAL, re.MULTILINE)[1])
    status, _, answer = server.http("POST", curl[3].partition(":8501")[2], curl[2].encode())
    assert status == 200
    shape = re.search(r'^ {4}(\{"predictions".*\})$', TUTORIAL, re.MULTILINE)[1]
    without_numbers = [re.sub(r"\[[\d.,]+\]", "[]", text) for text in (answer.decode(), shape)]
    assert without_numbers[0] == without_numbers[1], "the answer looks as on the page"
