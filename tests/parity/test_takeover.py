"""Models of all heads that transformers wrote with PyTorch answer raw strings as transformers does."""

import functools

import pytest

from tests.migration import taken_over, transformers_models

pytestmark = pytest.mark.torch

FAMILIES = transformers_models.FAMILIES


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Returns a function from a family to the folder of its models."""

    @functools.cache
    def of_family(family):
        folder = tmp_path_factory.mktemp(family)
        transformers_models.write(folder, "pytorch", family)
        return folder

    return of_family


@pytest.mark.parametrize(
    ("family", "head"), [(family, head) for family in FAMILIES for head in transformers_models.heads_of(family)]
)
def test_an_export_answers_as_transformers(models, tmp_path, family, head):
    taken_over.assert_answers(head, "safetensors", models(family) / head / "safetensors", tmp_path / "model")


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra_small", "xlm-roberta"])
@pytest.mark.parametrize("head", taken_over.PREDICTED)
def test_a_script_predicts_as_transformers(models, tmp_path, family, head):
    taken_over.assert_predictions(head, "safetensors", models(family) / head / "safetensors", tmp_path / "run")
