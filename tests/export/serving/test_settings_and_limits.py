"""Limits of the server, without a server."""

import pytest

from export.serve.errors import ServingError
from export.serve.service import Admission


def test_bodies_count_until_their_request_ends():
    admission = Admission(most_requests=2, most_bytes=10)
    for _ in range(2):
        with admission.request() as take:
            take(6)
            with admission.request() as other, pytest.raises(ServingError, match="too many large requests"):
                other(5)
    assert admission.requests == 0
