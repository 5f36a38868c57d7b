"""Models of all heads that transformers wrote with PyTorch answer raw strings as transformers does."""

import pytest

from tests.migration import taken_over, transformers_models

pytestmark = pytest.mark.torch

HEADS = list(transformers_models.HEADS)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pytorch")
    transformers_models.write(folder, "pytorch")
    return folder


@pytest.mark.parametrize("head", HEADS)
def test_an_export_answers_as_transformers(models, tmp_path, head):
    taken_over.assert_answers(head, "safetensors", models / head / "safetensors", tmp_path / "model")


@pytest.mark.parametrize("head", taken_over.PREDICTED)
def test_a_script_predicts_as_transformers(models, tmp_path, head):
    taken_over.assert_predictions(head, "safetensors", models / head / "safetensors", tmp_path / "run")
