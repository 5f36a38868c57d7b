"""Every recipe in `examples/` can be read by the script in its first line, and states its source and result."""

import pathlib
import re

import pytest

from bert_tf.config import BertConfig
from bert_tf.pretraining.engine import optimizer_of
from bert_tf.tasks.classification import glue, glue_results
from bert_tf.tasks.classification.settings import ClassifierSettings
from data_gen.settings import GeneratorSettings
from tests import kit
from tests.bert_tf.tasks_of_flags import find_task

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
SHARED = {"phase1", "phase2"}
RECIPES = sorted({str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.flags")} - SHARED)


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)


def read(recipe):
    """Returns the settings of the command in a recipe's first line."""
    first, *_ = (EXAMPLES / f"{recipe}.flags").read_text().splitlines()
    script, *flags = first.removeprefix("# ").split()
    assert f"--flagfile=examples/{recipe}.flags" in flags
    return kit.settings("data_gen.create_pretraining_data" if script.startswith("create") else script, *flags)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_read_by_its_own_command(recipe):
    settings = read(recipe)
    text = (EXAMPLES / f"{recipe}.flags").read_text()
    assert "paper: " in text or "google-research/bert" in text
    if not isinstance(settings, GeneratorSettings):
        assert "Result: " in text
        if settings.bert_config_file:  # else the configuration of --init_checkpoint or of the run
            config = BertConfig.from_json_file(settings.bert_config_file)
            assert settings.max_seq_length <= config.max_position_embeddings
    if isinstance(settings, ClassifierSettings):
        task = find_task(settings)
        assert settings.task_name in (task.name, "AX") and task.data.source.files("train")


def test_every_task_has_recipe_with_published_scores():
    names = {read(recipe).task_name for recipe in RECIPES if isinstance(read(recipe), ClassifierSettings)}
    assert names == {*glue.TASKS, *glue.INFERENCE_TASKS, "XNLI"}
    for name, score in (("snli", 89.9), ("scitail", 88.3), ("story_cloze", 86.5), ("race", 59.0)):
        assert f"OpenAI GPT: {score}. Ours: not run." in (EXAMPLES / f"{name}.flags").read_text()
    for model, average in (("base", 79.6), ("large", 82.1)):
        scores = []
        for name in sorted({task for task, _ in glue_results.COLUMNS.values()}):
            found = re.search(rf"BERT {model} ([\d./]+)[,;]", (EXAMPLES / f"{name.lower()}.flags").read_text())
            scores += [float(score) for score in found[1].split("/")]
        assert len(scores) == 9 and round(sum(scores) / 9, 1) == average


@pytest.mark.parametrize("path", sorted((EXAMPLES / "configs").glob("*.json")), ids=lambda path: path.stem)
def test_a_configuration_is_of_the_size_in_its_name(path):
    config = BertConfig.from_json_file(str(path))
    name, direction = re.fullmatch(r"(.+?)(?:_(ltr|rtl))?", path.stem).groups()
    named = BertConfig.named(name)
    assert config.directionality == (direction or "bidi")
    numbers = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    assert all(getattr(config, number) == getattr(named, number) for number in numbers)


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base", "large"])
def test_second_phase_continues_in_folder_of_first(size):
    first, second = read(f"{size}_phase1"), read(f"{size}_phase2")
    assert (first.output_dir, first.bert_config_file) == (second.output_dir, second.bert_config_file)
    # 90% of a million steps with rows of 128 tokens, the rest with 512: appendix A.2
    assert (first.num_train_steps, second.num_train_steps) == (900_000, 1_000_000)
    assert (first.max_seq_length, second.max_seq_length) == (128, 512)
    assert first.train_batch_size == second.train_batch_size == 256


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base", "large"])
def test_learning_rate_decays_to_0_over_both_phases(size):
    """Appendix A.2."""
    rates = {}
    for phase, steps in (("phase1", (5_000, 450_000, 899_999)), ("phase2", (900_000, 1_000_000))):
        schedule = optimizer_of(read(f"{size}_{phase}"))._learning_rate
        rates |= {step: float(schedule(step)) for step in steps}
    expected = {5_000: 5e-5, 450_000: 5.5e-5, 899_999: 1.00001e-5, 900_000: 1e-5, 1_000_000: 0.0}
    assert rates == pytest.approx(expected, rel=1e-6)


def test_data_and_training_agree_on_lengths():
    for phase in ("phase1", "phase2"):
        data, run = read(f"data_{phase}"), read(f"base_{phase}")
        assert data.output_file == run.input_file
        assert (data.max_seq_length, data.max_predictions_per_seq) == (run.max_seq_length, run.max_predictions_per_seq)
    assert read("data_ltr").output_file == read("ablation_ltr").input_file == read("ablation_rtl").input_file
