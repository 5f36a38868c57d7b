"""Replays the requests that the export recorded for a version, so that the first client does not have to wait."""

import itertools

from export import warmup
from export.serve.errors import ServingError, from_exception
from export.serve.inference import plan_predict
from export.serve.servable import Servable

_MOST_RECORDS = 1000


def replay(folder: str, servable: Servable) -> int:
    """Runs the recorded requests of a version; returns the number of requests.

    Raises:
      ServingError: a recorded request fails, or the file is damaged.
    """
    count = 0
    try:
        for request in itertools.islice(warmup.read(folder), _MOST_RECORDS):
            feeds, outputs = plan_predict(servable, request.signature, request.inputs)
            servable.run(feeds, tuple(outputs.values()))
            count += 1
    except Exception as error:
        known = from_exception(error)
        raise ServingError(known.code, f"{warmup.NAME}, request {count}: {known.message}") from error
    return count
