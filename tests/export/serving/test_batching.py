"""Batches of requests: which requests, how many, and their answers."""

import asyncio
import threading
from types import MappingProxyType

import numpy as np
import pytest

from export.serve.batching import Batcher
from export.serve.errors import Code, ServingError
from export.serve.settings import ServeSettings
from export.serve.versions import Version
from tests.export.serving.running import Loop
from tests.waiting import PATIENCE


class Model:
    """Doubles numbers and measures strings; records its batches, and waits for `go`."""

    counts = MappingProxyType({})

    def __init__(self):
        self.batches = []
        self.go = threading.Event()
        self.go.set()

    def run(self, feeds, fetches, seconds):
        self.go.wait()
        array = feeds["x"]
        self.batches.append(array)
        if array.dtype == object:
            return {"y": np.array([len(text) for text in array])}
        if (array < 0).any():
            raise ServingError(Code.INVALID_ARGUMENT, "negative")
        return {"y": array * 2}


def strings(*texts):
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def run_all(batching: ServeSettings, requests, model=None, first=None, fetches=("y",)):
    """Runs requests that wait while the only thread is busy with `first`; returns answers, errors and batches."""
    model = model or Model()

    async def main():
        batcher = Batcher(batching)
        version = Version("m", 1, servable=model)
        model.go.clear()
        busy = asyncio.ensure_future(batcher.run(version, {"x": requests[0] if first is None else first}, fetches))
        await asyncio.sleep(0)  # it queues
        waiting = [asyncio.ensure_future(batcher.run(version, {"x": one}, fetches)) for one in requests]
        await asyncio.sleep(0)  # it queues
        model.go.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await busy
        batcher.close()
        await version.unused()
        return answers

    answers = asyncio.run(main())
    return [one if isinstance(one, Exception) else one["y"].tolist() for one in answers], model.batches[1:]


def one_thread(**changes) -> ServeSettings:
    given = {"max_batch_size": 100, "batch_timeout_micros": 0, "max_enqueued_batches": 10, "num_batch_threads": 1}
    return ServeSettings(model_base_path="models/x", **given | changes)


def test_requests_run_in_the_order_of_their_arrival():
    lengths = [10, 500, 12, 480, 9, 11, 510]
    batching = one_thread(max_batch_size=4)
    answers, batches = run_all(batching, [strings(b"x" * length) for length in lengths])
    assert answers == [[length] for length in lengths]
    assert [list(map(len, batch)) for batch in batches] == [lengths[:4], lengths[4:]]


def test_sizes_are_bounded_and_batches_split_again():
    batching = one_thread(max_batch_size=4, max_enqueued_batches=100)
    requests = [np.float32([value] * rows) for value, rows in [(1, 1), (2, 2), (3, 2), (4, 1)]]
    answers, batches = run_all(batching, requests)
    assert answers == [[2], [4, 4], [6, 6], [8]]
    assert [batch.tolist() for batch in batches] == [[1, 2, 2], [3, 3, 4]]
    too_large, _ = run_all(batching, [np.zeros(5, np.float32)], first=np.zeros(1, np.float32))
    assert too_large[0].message == "the request has 5 rows, more than 4 (--max_batch_size)"
    full, _ = run_all(batching, [np.ones(4, np.float32)], first=np.zeros(1, np.float32))
    assert full == [[2, 2, 2, 2]]


def test_a_full_queue_refuses():
    batching = one_thread(max_batch_size=2, max_enqueued_batches=2)
    answers, _ = run_all(batching, [np.float32([value]) for value in range(6)])
    assert answers[:4] == [[0], [2], [4], [6]]
    for refused in answers[4:]:
        assert refused.code == Code.UNAVAILABLE
        assert refused.message == "too many requests wait; try again later"


def test_a_bad_request_fails_alone():
    answers, batches = run_all(one_thread(), [np.float32([value]) for value in (1, -1, 3)], first=np.ones(1))
    assert answers[0] == [2] and answers[2] == [6] and answers[1].message == "negative"
    assert [len(batch) for batch in batches] == [3, 1, 1, 1]


def test_shapes_are_kept_apart():
    requests = [np.ones((1, 2), np.int64), np.ones((1, 3), np.int64)]
    _, batches = run_all(one_thread(), requests)
    assert [batch.shape for batch in batches] == [(1, 2), (1, 3)]


class Tagger(Model):
    """Answers each number n with n words, padded to the longest answer of the batch, as our exports do."""

    counts = MappingProxyType({"y": "n"})

    def run(self, feeds, fetches, seconds):
        self.go.wait()
        counts = feeds["x"]
        return {
            "n": counts,
            "y": np.where(np.arange(counts.max(initial=0)) < counts[:, np.newaxis], counts[:, np.newaxis], 0),
        }


@pytest.mark.parametrize("fetches", [["y", "n"], ["y"]])
def test_an_answer_has_only_its_own_columns(fetches):
    requests = [np.array([1, 2]), np.array([3]), np.array([0])]
    answers, _ = run_all(one_thread(max_batch_size=8), requests, Tagger(), fetches=fetches)
    assert answers == [[[1, 0], [2, 2]], [[3, 3, 3]], [[]]]


def test_a_batch_waits_for_its_timeout_or_until_full():
    loop, model, timeout = Loop(), Model(), 2 * PATIENCE

    async def main():
        version = Version("m", 1, servable=model)
        batcher = Batcher(one_thread(max_batch_size=2, batch_timeout_micros=int(timeout * 1e6)))
        await asyncio.gather(*(batcher.run(version, {"x": np.ones(1)}, ["y"]) for _ in range(2)))
        assert loop.ahead == 0, "it is full"
        alone = asyncio.ensure_future(batcher.run(version, {"x": np.ones(1)}, ["y"]))
        await asyncio.sleep(0)
        await loop.advance(timeout / 2)
        assert [len(batch) for batch in model.batches] == [2] and not alone.done()
        await loop.advance(timeout / 2)
        await alone
        batcher.close()

    loop.run_until_complete(main())
    loop.close()
    assert [len(batch) for batch in model.batches] == [2, 1]


@pytest.mark.parametrize("feeds", [{"x": np.float32(1)}, {"x": np.ones(2), "z": np.ones(3)}])
def test_inputs_without_rows_of_one_number_are_refused(feeds):
    with pytest.raises(ServingError, match="a batching server needs inputs with rows|differ in their number of rows"):
        asyncio.run(Batcher(one_thread()).run(Version("m", 1, servable=Model()), feeds, ["y"]))


def test_a_client_that_leaves_is_not_computed():
    async def main():
        model = Model()
        version = Version("m", 1, servable=model)
        batcher = Batcher(one_thread(max_batch_size=3, max_enqueued_batches=1))
        model.go.clear()
        busy = asyncio.ensure_future(batcher.run(version, {"x": np.ones(1)}, ["y"]))
        await asyncio.sleep(0)  # it queues
        left = asyncio.ensure_future(batcher.run(version, {"x": np.zeros(3)}, ["y"]))
        await asyncio.sleep(0)  # it queues
        left.cancel()
        await asyncio.sleep(0)
        stays = asyncio.ensure_future(batcher.run(version, {"x": np.ones(1)}, ["y"]))
        await asyncio.sleep(0)
        model.go.set()
        await busy
        await stays
        batcher.close()
        return [len(batch) for batch in model.batches]

    assert asyncio.run(main()) == [1, 1]
