"""The commands, programs and messages of the documentation, as users copy them, with tiny data and checkpoints."""

import configparser
import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import kit
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import put_together
from tests.export.serving.models import Reviews
from tests.export.serving.running import running

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
# Module by command.
MODULES = dict(re.findall(r"(\w+) = ([\w.]+):run", SETUP["options.entry_points"]["console_scripts"]))


def page(name: str) -> str:
    return (ROOT / f"{name}.md").read_text(encoding="utf-8")


def programs(name: str) -> list[str]:
    """Returns the Python programs of a page."""
    return re.findall(r"^```python\n([\s\S]*?)^```$", page(name), re.MULTILINE)


def commands(name: str) -> list[list[str]]:
    """Returns the words of each command of ours in a page's blocks of code, without comment and redirection."""
    lines = [line for line in page(name).replace("\\\n", " ").splitlines() if line.startswith("    ")]
    found = [shlex.split(line.partition(" > ")[0], comments=True) for line in lines if line.split()[0] in MODULES]
    return [words for words in found if words[0] not in ("show_tfrecords", "check_saved_model")]  # have own parsers


def run(name: str, *words: str):
    return kit.run(MODULES[name], *words)


def write_reviews(folder: pathlib.Path, count: int = 64) -> None:
    rows = [
        {"text": f"the {('man', 'word')[n % 2]} said so {n}", "label": ("good", "bad")[n % 2]} for n in range(count)
    ]
    kit.write(folder / "reviews/train.csv", rows)


def test_commands_and_programs_of_pages_are_valid(monkeypatch):
    """The tests below, and the tests of the kinds of tasks, run such commands on data."""
    monkeypatch.chdir(ROOT)
    pages = ["README", *(str(path.relative_to(ROOT).with_suffix("")) for path in sorted((ROOT / "docs").rglob("*.md")))]
    for name in pages:
        for program in programs(name):
            compile(program, f"{name}.md", "exec")
        for command, *words in commands(name):
            kit.settings(MODULES[command], *words)
    assert sum(len(commands(name)) for name in pages) > 80


# The flags that cause the messages of the table in `troubleshooting`, in its order.
CAUSES = (
    "--data_dir=none",
    "--data_dir=reviews --text_a_column=review",
    "--data_dir=comma",
    "--data_dir=empty",
    "--data_dir=quoted",
    "--data_dir=numbers",
    "--data_dir=reviews --init_checkpoint=nowhere",
    "--data_dir=reviews",
)


def test_the_page_has_the_messages_of_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path, 2)
    kit.write(tmp_path / "comma/train.csv", "text,label\na,good\nb, c,bad\n")
    kit.write(tmp_path / "empty/train.csv", "text,label\na,good\nb,\n")
    kit.write(tmp_path / "quoted/train.tsv", 'text\tlabel\n"a"\tgood\n"b"\tbad\n')
    kit.write(tmp_path / "numbers/train.csv", "text,label\n" + "".join(f"a{i},{i}.5\n" for i in range(30)))
    table = page("docs/how_to/troubleshooting").partition("| message |")[2]
    for flags, message in zip(CAUSES, re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE), strict=False):
        words = ["--task_name=own", "--do_train", "--output_dir=out", *flags.split()]
        kit.refused(re.escape(message), run, "run_classifier", *words)


@pytest.mark.slow
def test_the_readme_leads_from_data_to_an_answer(vocab_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pretrained(tmp_path / "published", vocab_file, max_position_embeddings=128)
    write_reviews(tmp_path)
    classifier, exporter, server = commands("README")[:3]
    assert "--init_checkpoint=hf://google-bert/bert-base-uncased" in classifier
    run(*classifier, "--init_checkpoint=published")
    assert (tmp_path / "reviews_model/report.html").exists()
    run(*exporter)
    with running(*server[1:]) as started:
        status, _, answer = started.http("POST", *curl_of("README"))
    assert status == 200 and json.loads(answer)["predictions"][0]["label"] in ("good", "bad")


def curl_of(name: str) -> tuple[str, bytes]:
    """Returns the path and the body of the request in a page's command `curl`."""
    words = shlex.split(re.search(r"^ {4}(curl .*)$", page(name), re.MULTILINE)[1])
    return words[3].partition(":8501")[2], words[2].encode()


@pytest.mark.slow
def test_the_distillation_page_leads_to_a_student(tmp_path, vocab_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pretrained(tmp_path / "uncased", vocab_file, num_hidden_layers=4, max_position_embeddings=128)
    write_reviews(tmp_path)
    kit.write(tmp_path / "more_reviews.csv", "text\nthe woman said\npeople of the time\n")
    shared = ["--task_name=own", "--data_dir=reviews", "--dev_share=0.1", "--do_train"]
    run("run_classifier", *shared, "--init_checkpoint=uncased", "--output_dir=reviews_model")
    name = "docs/tutorials/distillation"
    (command,) = (line.strip() for line in page(name).splitlines() if line.startswith("    sed"))
    subprocess.run(["bash", "-c", command], check=True)
    assert '"num_hidden_layers": 3' in (tmp_path / "three_layers.json").read_text()
    for words in commands(name):
        if words[0] != "serve_saved_model":
            run(*words)
    written = ("models/small_int8/1/model.tflite", "models/small/1/saved_model.pb")
    for path in (*written, "small_alone/eval_results.txt", "small_model/eval_results.txt"):
        assert (tmp_path / path).exists(), path


@pytest.mark.slow
def test_the_page_about_other_libraries_runs(vocab_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pretrained(tmp_path / "pretrained", vocab_file)
    put_together(tmp_path / "run", vocab_file, make_task(2, has_pairs=False), spread=0.1)
    for source, theirs in (("pretrained", "their_model"), ("run", "their_classifier")):
        kit.run("convert_checkpoint", input=source, output=theirs, do_lower_case=True, format="hugging_face")
        (tmp_path / theirs / "conversion.json").unlink()
    kit.write(tmp_path / "reviews.tsv", "text\tlabel\nthe man\tpositive\nall of\tnegative\n")
    found = commands("docs/coming_from")
    assert [words[0] for words in found] == ["convert_checkpoint", "export_saved_model", "run_classifier"]
    for words in found:
        run(*words, *(["--max_seq_length=24"] if words[0] == "run_classifier" else []))
    for path in ("my_model/vocab.txt", "served/my_classifier/1/saved_model.pb", "my_classifier/eval_results.txt"):
        assert (tmp_path / path).exists(), path
    (program,) = programs("docs/coming_from")
    names = {}
    exec(compile(program.replace("sequence_length=128", "sequence_length=24"), "page.md", "exec"), names)
    again = names["keras"].models.load_model("model.keras")
    texts = names["tf"].constant(["the man said", "all of you"])
    np.testing.assert_allclose(again(texts), names["model"](texts), atol=1e-6)


# Flags that make the commands of the tutorial small. They are appended, because absl takes the last of two values.
SMALL = """
set -e
learn_vocab() { command learn_vocab "$@" $([[ "$*" == *extend* ]] && echo --vocab_size=40 || echo --vocab_size=400); }
run_pretraining() {
  command run_pretraining "$@" --num_train_steps=3 --num_warmup_steps=1 --train_batch_size=8 --max_eval_steps=1
}
"""


@pytest.mark.slow
def test_the_pretraining_page_runs_in_its_order(corpus_file, tmp_path):
    kit.write(tmp_path / "corpus.txt", pathlib.Path(corpus_file).read_text() * 5)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    kit.write(tmp_path / "uncased/vocab.txt", "".join(f"{token}\n" for token in [*special, *"aehinorst"]))
    text = page("docs/tutorials/pretraining")
    blocks = [re.sub("^ {4}", "", one, flags=re.M) for one in re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", text, re.M)]
    blocks = [block for block in blocks if block.split()[0] in {"awk", *MODULES}]
    names = ["awk", "learn_vocab", "create_pretraining_data", "bert_config"]
    assert [block.split()[0] for block in blocks] == names
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    for block in blocks:
        in_process(["bash", "-c", SMALL + block], tmp_path, PATH=path)
    assert (tmp_path / "pretrained/report.html").exists()


def in_process(command: list[str], folder: pathlib.Path, **environment: str) -> None:
    """Runs a command in a folder; fails with its output."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


# Added to the program of the page about Python.
CHECKS = """
import numpy as np

assert model.labels == ("bad", "good") and embedder.encode(["a lovely song"]).shape[0] == 1
serve = tf.saved_model.load("served/reviews/1").signatures["serving_default"]
np.testing.assert_allclose(serve(text_a=tf.constant(["a great day"]))["probabilities"], probabilities, atol=1e-5)
np.testing.assert_allclose(again(rows(["a good day"])), own_model(rows(["a good day"])), atol=1e-6)
assert vectors.shape[:2] == (len(where), 2) and similarity.shape == (2, 1) and where[-2][3] == len("of texts")
assert keras.mixed_precision.global_policy().name == "float32"
"""


@pytest.mark.slow
def test_the_blocks_about_python_are_one_program(vocab_file, tmp_path):
    write_pretrained(tmp_path / "pretrained", vocab_file)
    found = programs("docs/how_to/python")
    assert len(found) == 7
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    in_process([sys.executable, "-c", "\n".join([*found, CHECKS])], tmp_path, PYTHONPATH=path, TF_USE_LEGACY_KERAS="1")


def test_the_clients_of_the_serving_page(tmp_path):
    """Their server has a SavedModel of TensorFlow 2 that takes strings."""
    model, name = Reviews(), "docs/tutorials/serving"
    tf.saved_model.save(model, str(tmp_path / "1"), signatures={"serving_default": model.answer})
    with running("--model_name=reviews", f"--model_base_path={tmp_path}") as server:
        for program, answer in zip(programs(name), ("good\n", "[b'good']\n"), strict=True):
            program = program.replace("localhost:8501", f"127.0.0.1:{server.rest_port}")
            program = program.replace("localhost:8500", f"127.0.0.1:{server.grpc_port}")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(program, "serving.md", "exec"), {})
            assert printed.getvalue() == answer
        status, _, answer = server.http("POST", *curl_of(name))
    shape = re.search(r'^ {4}(\{"predictions".*\})$', page(name), re.MULTILINE)[1]
    without_numbers = [re.sub(r"\[[\d.,]+\]", "[]", text) for text in (answer.decode(), shape)]
    assert status == 200 and without_numbers[0] == without_numbers[1], "the answer looks as on the page"
