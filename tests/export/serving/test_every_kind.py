"""Hostile requests to exports of every kind over real sockets: one-line refusals, or documented answers."""

import base64
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf

from tests.export.serving.every_kind import GOOD, write_export
from tests.export.serving.running import running

REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
ODD = [
    "", " ", "\0", "a\0b", b"\xff\xfe", b"the \xed\xa0\x80 man \xc3", "\u202eword\u200b", "\U0010ffff\ufffe",
    "\U0001f3f3", "word " * 2000, "x" * 5000, "[MASK]" * 30, "[CLS] [SEP] [PAD] ##ing", "中文" * 300, "<script>",
    "%s{}\\n",
]  # fmt: skip
WRONG_VALUES = [
    5, 1.5, True, None, {}, {"b64": 5}, {"b64": "***"}, {"b64": "YQ==", "x": 1}, [5], [["a"], "b"], "\ud800",
]  # fmt: skip


# The exports of other kinds are slow.
QUICK = "pairs"
# For checks that read only a request: texts in a list, and texts in a list of lists.
BOTH_SHAPES = pytest.mark.parametrize(
    "server", [QUICK, pytest.param("choices", marks=pytest.mark.slow)], indirect=True, scope="module"
)
# For checks that read no input.
ANY_KIND = pytest.mark.parametrize("server", [QUICK], indirect=True, scope="module")


@pytest.fixture(
    scope="module", params=[name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in GOOD]
)
def server(request, tmp_path_factory, vocab_file):
    base = write_export(tmp_path_factory.mktemp("every"), vocab_file, request.param)
    flags = ["--max_request_rows=50", "--max_request_mb=2"]
    with running(f"--model_name={request.param}", f"--model_base_path={base}", *flags) as started:
        yield started


def as_json(value):
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return [as_json(one) for one in value] if isinstance(value, list) else value


def over_rest(server, model, inputs, signature="serving_default"):
    given = {name: as_json(value) for name, value in inputs.items()}
    return server.post(f"/v1/models/{model}:predict", {"signature_name": signature, "inputs": given})


def outputs_of(server, model, inputs, signature=""):
    """Returns answers over gRPC."""
    return server.predict(model, signature, **{name: np.array(value, object) for name, value in inputs.items()})


def assert_refused(server, model, body, pattern="", status=400):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    code, _, answer = server.http("POST", f"/v1/models/{model}:predict", raw)
    message = json.loads(answer)
    assert code == status and message.keys() == {"error"}, (body, code, message)
    assert len(message["error"].splitlines()) == 1 and pattern in message["error"], message
    assert not any(word in message["error"] for word in ("{{node", "Traceback", "root error")), message


def assert_refused_over_grpc(server, model, inputs, pattern="", signature="", codes=REFUSED):
    with pytest.raises(grpc.RpcError) as raised:
        server.predict(model, signature, **inputs)
    details = raised.value.details()
    assert raised.value.code() in codes and len(details.splitlines()) == 1 and pattern in details, details


def good_answers(server, model):
    """Good requests still get the same answers over both interfaces."""
    status, answer = over_rest(server, model, GOOD[model])
    assert status == 200, answer
    found = outputs_of(server, model, GOOD[model])
    named = answer["outputs"] if isinstance(answer["outputs"], dict) else {next(iter(found)): answer["outputs"]}
    assert named.keys() == found.keys()
    for name, value in found.items():
        given = np.array(named[name])
        if value.dtype == object:
            assert np.char.decode(value.astype("S"), "utf-8").tolist() == given.tolist()
        else:
            np.testing.assert_allclose(value, given, atol=1e-6)
    return named


@pytest.fixture
def model(server):
    """The name of the model; checks after the test that its answers have not changed."""
    name = server.settings.model_name
    before = good_answers(server, name)
    yield name
    after = good_answers(server, name)
    for output, value in before.items():
        if np.array(value).dtype.kind in "fi":
            np.testing.assert_allclose(after[output], value, atol=1e-6)
        else:
            assert after[output] == value


def test_odd_texts_are_answered_row_by_row(server, model):
    inputs = {name: [[text, "word"] for text in ODD] if name == "choices" else ODD for name in GOOD[model]}
    status, answer = over_rest(server, model, inputs)
    assert status == 200, answer
    together = outputs_of(server, model, inputs)
    for name, value in together.items():
        assert len(value) == len(ODD)
        assert value.dtype == object or not np.isnan(value.astype(np.float64)).any(), name
    # In the texts 9 and 11, which repeat a word, many spans have equal scores, and rounding chooses among them.
    for row in (0, 2, 4, 12) if model == "spans" else (0, 2, 4, 9, 11):  # padding to the longest row only adds columns
        alone = outputs_of(server, model, {name: value[row : row + 1] for name, value in inputs.items()})
        for name, value in alone.items():
            part = together[name][row : row + 1][tuple(slice(0, size) for size in value.shape)]
            if value.dtype == object:
                assert part.tolist() == value.tolist(), name
            else:
                np.testing.assert_allclose(part, value, atol=1e-5)


def test_empty_batches_have_empty_answers(server, model):
    inputs = {name: np.zeros([0, 2] if name == "choices" else [0], object) for name in GOOD[model]}
    assert all(value.shape[0] == 0 for value in server.predict(model, **inputs).values())
    assert over_rest(server, model, {name: [] for name in inputs})[0] == (400 if model == "choices" else 200)


@BOTH_SHAPES
def test_values_of_wrong_types_and_shapes_are_refused(server, model):
    for name, good in GOOD[model].items():
        for value in WRONG_VALUES:
            for inputs in ([value], [*good[:1], value], value, [[[value]]]):
                body = {"inputs": GOOD[model] | {name: inputs}}
                assert_refused(server, model, body)
            assert_refused(
                server, model, {"instances": [{key: given[0] for key, given in GOOD[model].items()} | {name: value}]}
            )
        for inputs in ("a", [[["a"]]], [["a"], ["b", "c"]], [["a"], "b"], {"a": "b"}):
            assert_refused(server, model, {"inputs": GOOD[model] | {name: inputs}})
        for array in (np.ones([2], np.int32), np.array("a", object), np.array([[["a"]]], object), np.ones([2], bool)):
            given = {key: np.array(one, object) for key, one in GOOD[model].items()} | {name: array}
            assert_refused_over_grpc(server, model, given)


@BOTH_SHAPES
def test_inputs_that_differ_in_rows_are_refused(server, model):
    first, *others = GOOD[model]
    inputs = {first: GOOD[model][first]} | {name: GOOD[model][name][:1] for name in others}
    message = f"{', '.join(sorted(inputs))} differ in rows"
    assert_refused(server, model, {"inputs": inputs}, message)
    assert_refused_over_grpc(server, model, {k: np.array(v, object) for k, v in inputs.items()}, message)


@ANY_KIND
def test_too_many_rows_are_refused(server, model):
    inputs = {name: [value[0]] * 51 for name, value in GOOD[model].items()}
    assert_refused(server, model, {"inputs": inputs}, "51 rows, more than 50 (--max_request_rows)")
    assert_refused_over_grpc(server, model, {k: np.array(v, object) for k, v in inputs.items()}, "51 rows")


@BOTH_SHAPES
def test_rows_of_tokens_are_checked(server, model):
    shape = (1, 1, 4) if model == "choices" else (1, 4)
    good = {name: np.ones(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    before = server.predict(model, "tokens", **good)
    for name, values, message in [
        ("input_ids", np.full(shape, 300, np.int32), "300 is not in [0, 300)"),
        ("input_ids", np.full(shape, -1, np.int32), "-1 is not in [0, 300)"),
        ("segment_ids", np.full(shape, 2, np.int32), "2 is not in [0, 2)"),
        ("input_ids", np.ones(shape, np.int64), "is int64; it must be int32"),
        ("input_ids", np.ones(shape, np.float32), "is float32; it must be int32"),
        ("input_mask", np.ones(shape[:-1], np.int32), "which does not fit"),
        ("input_mask", np.ones((*shape[:-1], 3), np.int32), "input_ids, input_mask, segment_ids differ in shape"),
        ("segment_ids", np.ones((2, *shape[1:]), np.int32), "input_ids, input_mask, segment_ids differ in shape"),
    ]:
        assert_refused_over_grpc(server, model, good | {name: values}, message, "tokens")
        body = {"signature_name": "tokens", "inputs": {k: v.tolist() for k, v in (good | {name: values}).items()}}
        if values.dtype == np.int32:
            assert_refused(server, model, body, message)
    long = {name: np.ones((*shape[:-1], 41), np.int32) for name in good}
    assert_refused_over_grpc(server, model, long, "more tokens than the", "tokens")
    assert_refused(server, model, {"signature_name": "tokens", "inputs": {name: [["a"]] for name in good}})
    for name, value in server.predict(model, "tokens", **good).items():
        np.testing.assert_array_equal(value, before[name])


@BOTH_SHAPES
def test_broken_examples_are_refused(server, model):
    def examples(**features):
        return tf.train.Example(features=tf.train.Features(feature=features))

    text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"]))
    good = dict.fromkeys(GOOD[model], text)
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[5]))
    two = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"]))
    name = min(good)
    if name == "choices":  # an example may have any number of these
        name = "context"
    broken = [examples(**good | {name: number}), examples(**good | {name: two}), examples()]
    for serialized, message in [(b"\xff\xff\xff", ""), *((one.SerializeToString(), name) for one in broken)]:
        inputs = {"inputs": [examples(**good).SerializeToString(), serialized]}
        assert_refused(server, model, {"signature_name": "examples", "inputs": as_json(inputs["inputs"])}, message)
        assert_refused_over_grpc(server, model, {"inputs": np.array(inputs["inputs"], object)}, message, "examples")
    outputs_of(server, model, {"inputs": [examples(**good).SerializeToString()] * 2}, "examples")


@pytest.mark.core
def test_server_answers_equal_export_in_process(server, model):
    loaded = tf.saved_model.load(f"{server.settings.model_base_path}/1")
    tensors = {name: tf.constant(value, tf.string) for name, value in GOOD[model].items()}
    expected = loaded.signatures["serving_default"](**tensors)
    answers = outputs_of(server, model, GOOD[model])
    assert answers.keys() == expected.keys()
    for name, value in answers.items():
        if value.dtype == object:
            assert value.tolist() == expected[name].numpy().tolist()
        else:
            np.testing.assert_allclose(value, expected[name], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["fill_mask"], indirect=True, scope="module")
def test_an_answer_larger_than_the_limit_is_refused(server, model):
    inputs = {"text": ["[MASK] " * 25] * 50}  # fifty rows with 160 guesses for each of 20 masks
    message = "(--max_request_mb); ask for fewer rows, or for shorter ones"
    assert_refused(server, model, {"inputs": inputs}, message, status=413)
    arrays = {"text": np.array(inputs["text"], object)}
    assert_refused_over_grpc(server, model, arrays, message, codes=(grpc.StatusCode.RESOURCE_EXHAUSTED,))


@pytest.mark.slow
@pytest.mark.parametrize("server", ["tags"], indirect=True, scope="module")
def test_a_text_with_too_many_words_is_refused(server, model):
    body = {"inputs": ["a " * 90_000] + [""] * 49}
    assert_refused(server, model, body, "send fewer or shorter texts at once")
