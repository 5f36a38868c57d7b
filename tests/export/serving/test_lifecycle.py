"""The lifecycle of versions: policies, labels, hot swaps, warm-up, broken versions, configuration."""

import gc
import shutil
import weakref

import grpc
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from export.serve.servable import Servable
from export.serve.server import read_config
from export.serve.settings import ServeSettings
from export.serve.versions import numbers_in
from tests.export.serving.models import halves, write_model, write_warmup
from tests.export.serving.running import Running, running
from tests.waiting import PATIENCE, wait_until


def answered_version(server, model="m", path="") -> float:
    """Returns the version of an answer, since the default signature computes x / 2 + version."""
    status, answer = server.post(f"/v1/models/{model}{path}:predict", {"instances": [0.0]})
    assert status == 200, answer
    return answer["predictions"][0]


def config_text(*models: str) -> str:
    return "model_config_list {" + "".join(f" config {{ {one} }}" for one in models) + "}"


def one_model(name: str, base, more: str = "") -> str:
    return f'name: "{name}" base_path: "{base}" model_platform: "tensorflow" {more}'


def test_a_new_version_takes_over_and_a_broken_one_does_not(tmp_path):
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


def test_names_of_versions_are_numbers_and_of_equal_numbers_the_first_counts(tmp_path):
    for name in ("7", "007", "12", "v1", "1.5", "-3", "\u0663", "9" * 18, "9" * 19):
        (tmp_path / name).mkdir()
    assert numbers_in(str(tmp_path)) == {7: "007", 12: "12", 10**18 - 1: "9" * 18}
    assert numbers_in(str(tmp_path / "none")) is None


def test_an_unloaded_version_leaves_nothing_behind(tmp_path):
    servable = Servable(str(write_model(tmp_path, 1)))
    graph = weakref.ref(servable._session.graph)
    gc.disable()
    try:
        servable.close()
        assert graph() is None, "it does not wait for Python's own collection"
    finally:
        gc.enable()


@pytest.mark.slow
def test_policies_labels_and_reloads(tmp_path):
    base, other, outside = tmp_path / "models/m", tmp_path / "models/other", tmp_path / "outside"
    for folder in (base, other, outside):
        folder.mkdir(parents=True)
        for version in (1, 2, 3):
            write_model(folder, version)
    file = tmp_path / "models.config"
    file.write_text(config_text(one_model("m", base, "model_version_policy { latest { num_versions: 2 } }")))
    with running(f"--model_config_file={file}") as server:
        assert server.states("m") == {3: "AVAILABLE", 2: "AVAILABLE"}

        def reload(text: str):
            request = model_management_pb2.ReloadConfigRequest()
            text_format.Parse(text, request.config)
            try:
                return server.models.HandleReloadConfigRequest(request, timeout=PATIENCE).status.error_code, ""
            except grpc.RpcError as error:
                return error.code().name, error.details()

        labels = 'version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 3 }'
        specific = "model_version_policy { specific { versions: 1 versions: 3 } }"
        assert reload(config_text(one_model("m", base, specific + labels), one_model("other", other))) == (0, "")
        assert server.states("m")[1] == server.states("m")[3] == "AVAILABLE"
        wait_until(lambda: server.states("m")[2] == "END")
        assert answered_version(server, path="/labels/stable") == 1
        assert answered_version(server, path="/labels/canary") == answered_version(server, "other") == 3
        code, message = reload(config_text(one_model("m", base, specific + labels.replace("1", "2"))))
        assert code == "FAILED_PRECONDITION" and "to version 2 of model m, which is not currently available" in message
        assert server.post("/v1/models/other:predict", {"instances": [0.0]})[0] == 404, "it is listed no more"
        assert answered_version(server, path="/labels/stable") == 1, "the labels stay"
        assert reload(config_text(one_model("m", base, "model_version_policy { all {} }"))) == (0, "")
        assert set(server.states("m").values()) == {"AVAILABLE"}
        code, message = reload(config_text(one_model("m", base), one_model("x", outside)))
        assert code == "PERMISSION_DENIED" and "name it in --model_config_file" in message
        assert reload(config_text(one_model("m", f"{base}/../../outside")))[0] == "PERMISSION_DENIED"
        code, message = reload(config_text(one_model("m", base), one_model("none", tmp_path / "models/none")))
        assert code == "UNKNOWN" and "did not become available: {none}" in message
        assert reload(config_text(one_model("m", base), one_model("m", base)))[0] == "INVALID_ARGUMENT"
        assert answered_version(server) == 3


@pytest.mark.slow
def test_the_configuration_file_is_polled_and_deleted_versions_leave(tmp_path, caplog):
    base = tmp_path / "m"
    base.mkdir()
    write_model(base, 1)
    write_model(base, 2)
    file = tmp_path / "models.config"
    file.write_text(config_text(one_model("m", base)))
    with running(f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1") as server:
        assert answered_version(server) == 2
        file.write_text("model_config_list { config {")  # half written
        wait_until(lambda: "keeping the previous configuration: " in caplog.text)
        file.write_text(config_text(one_model("m", base, "model_version_policy { all {} }")))
        wait_until(lambda: server.states("m").get(1) == "AVAILABLE")
        shutil.rmtree(base / "2")
        wait_until(lambda: server.states("m")[2] == "END")
        assert answered_version(server) == 1


def test_what_cannot_be_served_is_said_in_one_line(tmp_path):
    def why(*flags):
        with pytest.raises(InputError) as raised:
            Running(*flags)
        return str(raised.value)

    base = tmp_path / "m"
    base.mkdir()
    assert "no version to serve in it" in why(f"--model_base_path={base}")
    (base / "1").mkdir()
    assert f"{base}: version 1 cannot be loaded" in why(f"--model_base_path={base}")
    (tmp_path / "empty").mkdir()
    config = tmp_path / "wrong.config"
    config.write_text(config_text(one_model("m", base), one_model("empty", tmp_path / "empty")))
    assert f"{tmp_path / 'empty'}: no version" in why(f"--model_config_file={config}"), "before a model is loaded"
    for text, expected in [
        ("no proto", "ModelServerConfig expected, line 1:"),
        (config_text('name: "a/b"'), "model name 'a/b'"),
        (config_text('name: "a" base_path: "x"'), 'needs model_platform: "tensorflow"'),
        (config_text(one_model("a", "x"), one_model("a", "x")), "Illegal to list model a multiple times"),
    ]:
        config.write_text(text)
        with pytest.raises(InputError, match=expected):
            read_config(parse(ServeSettings, [f"--model_config_file={config}"]))
    for text, expected in [
        ("max_batch_size { value: 0 }", "max_batch_size is 0; it must be above 0"),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 4", "must ascend and end with max_batch_size"),
        ("nonsense: 1", "BatchingParameters expected"),
    ]:
        config.write_text(text)
        write_model(base, 2) if not (base / "2").exists() else None
        message = why(f"--model_base_path={base}", "--enable_batching", f"--batching_parameters_file={config}")
        assert expected in message
    with running(f"--model_base_path={base}") as server:
        assert answered_version(server, "default") == halves([0.0], 2)[0]
        port = f"--rest_api_port={server.rest_port}"
        assert "give another" in why(f"--model_base_path={base}", port)
    for flags, expected in [
        ([], "nothing to serve"),
        (["--model_base_path=x", "--port=0", "--rest_api_port=0"], "nothing to listen on"),
        (["--model_base_path=x", "--port=8501"], "must differ from --rest_api_port"),
        (["--model_base_path=x", "--batching_parameters_file=y"], "also give --enable_batching"),
    ]:
        with pytest.raises(InputError, match=expected):
            parse(ServeSettings, flags)
