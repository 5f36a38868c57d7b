"""Limits of the server, without a server."""

import pytest

from export.serve.errors import ServingError
from export.serve.service import Admission


def test_bodies_and_requests_count_until_they_end():
    admission = Admission(most_requests=1, most_bytes=10)
    for _ in range(2):
        with admission.body() as take, admission.request():
            take(6)
            with admission.body() as other:
                with pytest.raises(ServingError, match="too many large requests"):
                    other(5)
                with pytest.raises(ServingError, match="busy with 1 requests"), admission.request():
                    pass
    assert admission.requests == 0
