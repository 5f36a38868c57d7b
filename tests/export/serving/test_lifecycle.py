"""The lifecycle of versions: hot swaps, warm-up, broken versions, and what cannot be served."""

import asyncio
import gc
import os
import shutil
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_pb2

from bert_tf.core.command_line import parse
from export.loading import check
from export.serve.models import Models
from export.serve.servable import Servable, plan_predict
from export.serve.settings import ServeSettings
from export.serve.versions import State, numbers_in
from tests.export.serving.models import halves, write_model, write_warmup
from tests.export.serving.running import Running, running
from tests.kit import refused
from tests.waiting import PATIENCE, wait_until


def answered_version(server, model="m", path="") -> float:
    """Returns the version of an answer, since the default signature computes x / 2 + version."""
    status, answer = server.post(f"/v1/models/{model}{path}:predict", {"instances": [0.0]})
    assert status == 200, answer
    return answer["predictions"][0]


def test_new_version_replaces_old_unless_broken(tmp_path):
    base, made = tmp_path / "m", tmp_path / "made"
    base.mkdir()
    made.mkdir()
    write_model(base, 1)
    with running("--model_name=m", f"--model_base_path={base}") as server:
        assert answered_version(server) == 1
        write_warmup(write_model(made, 2), "checked", "x", [[1.0], [2.0]])
        (made / "2").rename(base / "2")
        wait_until(lambda: answered_version(server) == 2)
        wait_until(lambda: server.states("m") == {2: "AVAILABLE", 1: "END"})

        broken = base / "3"
        (made / "3").mkdir()
        (made / "3/saved_model.pb").write_bytes(b"no graph")
        (made / "3").rename(broken)
        wait_until(lambda: server.states("m").get(3) == "END")
        status = server.get("/v1/models/m/versions/3")[1]["model_version_status"][0]["status"]
        assert status["error_code"] != "OK" and status["error_message"]
        assert answered_version(server) == 2, "the old version serves on"
        assert server.post("/v1/models/m/versions/3:predict", {"instances": [0.0]})[0] == 404

        write_warmup(write_model(made, 4), "checked", "x", [[1.0], [-1.0]])
        (made / "4").rename(base / "4")
        wait_until(lambda: server.states("m").get(4) == "END")
        message = server.get("/v1/models/m/versions/4")[1]["model_version_status"][0]["status"]["error_message"]
        assert "tf_serving_warmup_requests, request 1:" in message and "x is negative" in message
        assert answered_version(server) == 2

        shutil.rmtree(base / "4")
        shutil.rmtree(broken)  # fixed: its files have changed
        write_model(base, 3)
        wait_until(lambda: answered_version(server) == 3)
        wait_until(lambda: server.states("m")[2] == "END")


def test_version_names_are_numbers(tmp_path):
    for name in ("7", "007", "12", "v1", "1.5", "-3", "\u0663", "9" * 18, "9" * 19):
        (tmp_path / name).mkdir()
    assert numbers_in(str(tmp_path)) == {7: "007", 12: "12", 10**18 - 1: "9" * 18}
    assert numbers_in(str(tmp_path / "none")) is None


def graphs() -> list[tf.Graph]:
    return [one for one in gc.get_objects() if type(one) is tf.Graph]


def test_an_unloaded_version_leaves_nothing_behind(tmp_path):
    folder = str(write_model(tmp_path, 1))
    gc.collect()
    gc.disable()
    try:
        before, servable = len(graphs()), Servable(folder)
        assert len(graphs()) > before
        servable.close()
        assert len(graphs()) == before, "it does not wait for Python's own collection"
    finally:
        gc.enable()


def test_chosen_outputs_do_not_make_the_graph_grow(tmp_path, monkeypatch):
    monkeypatch.setattr("export.serve.servable._KEPT_CALLS", 1)
    folder = str(write_model(tmp_path, 1))
    before, servable = graphs(), Servable(folder)
    (graph,) = (one for one in graphs() if one not in before)

    def ask(*names):
        arrays, outputs = plan_predict(servable, "text", {"text": np.array([b"one"])}, names)
        return servable.run(arrays, tuple(outputs.values()))

    def operations():
        return len(graph.get_operations())

    for names in [("length",), ("echo",)]:
        ask(*names)
    once = operations()
    for names in [("length",), ("echo",)] * 2:
        assert len(ask(*names)) == 1
    assert operations() == once
    ask("length", "echo")
    assert operations() > once


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index", "assets.extra/labels.txt"])
def test_a_named_pipe_is_refused_by_name(tmp_path, name):
    base, made = tmp_path / "m", tmp_path / "made"
    base.mkdir()
    made.mkdir()
    write_model(base, 1)
    pipe = write_model(made, 2) / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    refused(f"{name}: is not a regular file; replace it", check, str(made / "2"))
    with running("--model_name=m", f"--model_base_path={base}") as server:
        (made / "2").rename(base / "2")
        wait_until(lambda: server.states("m").get(2) == "END")
        status = server.get("/v1/models/m/versions/2")[1]["model_version_status"][0]["status"]
        assert status["error_message"] == f"{base}/2/{name}: is not a regular file; replace it by one, or delete it"
        assert answered_version(server) == 1
        write_model(base, 3)
        wait_until(lambda: answered_version(server) == 3)


def test_linked_files_are_served(tmp_path):
    """Kubernetes mounts a version as links to files and folders."""
    made, base = write_model(tmp_path, 1), tmp_path / "m"
    (base / "1").mkdir(parents=True)
    (base / "1/saved_model.pb").symlink_to(made / "saved_model.pb")
    (base / "1/variables").symlink_to(made / "variables")
    with running("--model_name=m", f"--model_base_path={base}") as server:
        assert answered_version(server) == 1


def test_loads_that_hang_delay_no_other_version(tmp_path):
    go, loaded = threading.Event(), []

    def load(folder):
        if int(folder.rpartition("/")[2]) in range(2, 8):
            go.wait()
        loaded.append(folder)
        return types.SimpleNamespace(close=lambda: loaded.remove(folder))

    def states(models, name):
        listed = models.status(model_pb2.ModelSpec(name=name)).model_version_status
        return {one.version: State(one.state).name for one in listed}

    async def become(models, name, **expected):
        for number, state in expected.items():
            while states(models, name).get(int(number[1:])) != state:
                await asyncio.sleep(0.01)

    async def main():
        folders = {name: str(tmp_path / name) for name in ("a", "b")}
        for folder in folders.values():
            os.makedirs(f"{folder}/1")
        models = Models(folders, load, poll_seconds=0.01)
        await models.start()
        for number in range(2, 8):
            os.mkdir(f"{folders['a']}/{number}")
            await become(models, "a", **{f"v{number}": "LOADING", "v1": "AVAILABLE"})
        for folder in folders.values():
            os.mkdir(f"{folder}/9")
        for name in folders:
            await become(models, name, v9="AVAILABLE", v1="END")
        go.set()  # the old versions are loaded at last, and are unloaded, because a newer one is available
        await become(models, "a", **{f"v{number}": "END" for number in range(2, 8)})
        assert sorted(loaded) == [f"{folder}/9" for folder in folders.values()]
        await models.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.slow
def test_the_end_waits_for_a_version_that_is_loaded(tmp_path):
    begun, go = threading.Event(), threading.Event()

    def load(folder):
        if folder.endswith("2"):
            begun.set()
            go.wait()
        return types.SimpleNamespace(close=lambda: None)

    def write(number):
        (tmp_path / number).mkdir()
        (tmp_path / number / "saved_model.pb").write_text("x")

    async def main():
        models = Models({"m": str(tmp_path)}, load, poll_seconds=0.01)
        write("1")
        await models.start()
        write("2")
        await asyncio.to_thread(begun.wait)
        closing = asyncio.ensure_future(models.close())
        done, _ = await asyncio.wait([closing], timeout=0.3)
        go.set()
        await closing
        return done

    assert not asyncio.run(main())


def test_several_models_and_a_deleted_version(tmp_path):
    for name, version in [("m", 1), ("m", 2), ("other", 3)]:
        (tmp_path / name).mkdir(exist_ok=True)
        write_model(tmp_path / name, version)
    with running(f"--model=m={tmp_path}/m", f"--model=other={tmp_path}/other") as server:
        assert (answered_version(server, "m"), answered_version(server, "other")) == (2, 3)
        shutil.rmtree(tmp_path / "m/2")
        wait_until(lambda: server.states("m") == {2: "END", 1: "AVAILABLE"})
        assert answered_version(server, "m") == 1


def test_what_cannot_be_served_is_said_in_one_line(tmp_path):
    base = tmp_path / "m"
    base.mkdir()
    refused("no version to serve in it", Running, f"--model_base_path={base}")
    (base / "1").mkdir()
    refused(f"{base}: version 1 cannot be loaded", Running, f"--model_base_path={base}")
    (tmp_path / "empty").mkdir()  # is found before the other model is loaded
    refused(f"{tmp_path}/empty: no version", Running, f"--model=m={base}", f"--model=e={tmp_path}/empty")
    write_model(base, 2)
    with running(f"--model_base_path={base}") as server:
        assert answered_version(server, "default") == halves([0.0], 2)[0]
        refused("give another", Running, f"--model_base_path={base}", f"--rest_api_port={server.rest_port}")
    for flags, expected in [
        ([], "nothing to serve"),
        (["--model_base_path=x", "--port=0", "--rest_api_port=0"], "nothing to listen on"),
        (["--model=x"], "--model=x: give NAME=PATH"),
        (["--model=m=x", "--model=m=y"], "two models have the name m"),
    ]:
        refused(expected, parse, ServeSettings, flags)
