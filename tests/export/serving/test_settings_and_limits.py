"""Limits and configurations of the server, without a server."""

import pytest

from export.serve.config_files import one_model, read_batching
from export.serve.errors import Code, ServingError
from export.serve.models import check_reload_paths
from export.serve.service import Admission


def test_bodies_count_until_their_request_ends():
    admission = Admission(most_requests=2, most_bytes=10)
    for _ in range(2):
        with admission.request() as take:
            take(6)
            with admission.request() as other, pytest.raises(ServingError, match="too many large requests"):
                other(5)
    assert admission.requests == 0


def test_the_batch_timeout_is_in_microseconds(tmp_path):
    (tmp_path / "batching").write_text("batch_timeout_micros { value: 5000 }")
    assert read_batching(str(tmp_path / "batching")).batch_timeout == pytest.approx(0.005)


def test_reloads_are_refused_beside_the_allowed_folders(tmp_path):
    roots = [str(tmp_path / "models")]
    check_reload_paths(one_model("one", str(tmp_path / "models" / "one")), roots)
    for other in (tmp_path / "models_of_others" / "one", tmp_path / "models" / ".." / "one"):
        with pytest.raises(ServingError, match="is outside the parent folders") as refused:
            check_reload_paths(one_model("one", str(other)), roots)
        assert refused.value.code == Code.PERMISSION_DENIED
