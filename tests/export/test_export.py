import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.task import encoded_split
from bert_tf.runs import run_record
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.reading import LongTextRule
from export import version_folder
from export.kinds.classification import ServedClassifier, ServedMultiLabel, ServedRegression
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests import kit
from tests.bert_tf.classification import make_classifier, make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import CONFIG, PAIRS, put_together
from tests.kit import refused

LABELS = ("no", "yes")


def train(folder, vocab_file, task: str, header: str, rows: list[str], *more: str, config=CONFIG):
    folder.mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text(header + "".join(rows), encoding="utf-8")
    (folder / "config.json").write_text(config.to_json_string())
    kit.run(
        "run_classifier", f"--data_dir={folder}", f"--bert_config_file={folder}/config.json", f"--task_name={task}",
        f"--vocab_file={vocab_file}", f"--output_dir={folder}/run", "--max_seq_length=24", "--do_train",
        "--do_predict", "--train_batch_size=4", "--num_train_epochs=5", "--learning_rate=1e-3", *more,
    )  # fmt: skip
    predictions = np.loadtxt(folder / "run/test_results.tsv", ndmin=2)
    export_saved_model(ExportSettings(checkpoint_dir=f"{folder}/run", export_dir=f"{folder}/model/1"))
    return folder, predictions


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, vocab_file):
    """An exported classifier of pairs, and its predictions for PAIRS."""
    rows = [f"{a}\t{b}\t{LABELS[i % 2]}\n" for i, (a, b) in enumerate(PAIRS)]
    flags = ["--text_a_column=first", "--text_b_column=second"]
    return train(tmp_path_factory.mktemp("pairs"), vocab_file, "own", "first\tsecond\tlabel\n", rows, *flags)


@functools.cache
def signature(folder):
    return tf.saved_model.load(f"{folder}/model/1").signatures["serving_default"]


@pytest.mark.core
def test_raw_strings_get_the_trainers_predictions(pairs):
    folder, predictions = pairs
    first, second = (tf.constant(list(texts)) for texts in zip(*PAIRS, strict=True))
    answers = signature(folder)(text_a=first, text_b=second)
    assert answers.keys() == {"probabilities", "label"}
    np.testing.assert_allclose(answers["probabilities"], predictions, atol=1e-5)
    assert np.ptp(predictions[:, 0]) > 1e-3, "the texts make a difference"
    expected = [LABELS[i].encode() for i in predictions.argmax(axis=1)]
    assert answers["label"].numpy().tolist() == expected


@pytest.mark.slow
def test_the_direction_reaches_the_served_model(vocab_file, tmp_path):
    """Left to right, the last token decides. With other attention or another pooler, predictions would differ."""
    config = dataclasses.replace(CONFIG, directionality="ltr")
    write_pretrained(tmp_path / "pretrained", vocab_file, **dataclasses.asdict(config))
    start = f"--init_checkpoint={tmp_path}/pretrained/ckpt-7"
    rows = [f"the {'man' if i % 2 else 'word'} {'said ' * (i % 5)}\t{LABELS[i % 2]}\n" for i in range(8)]
    with pytest.raises(InputError, match="has directionality=ltr, but the model has bidi"):
        train(tmp_path / "bidi", vocab_file, "own", "text\tlabel\n", rows, start)
    _, predictions = train(tmp_path / "ltr", vocab_file, "own", "text\tlabel\n", rows, start, config=config)
    texts = [row.split("\t")[0] for row in rows]
    serve = signature(tmp_path / "ltr")
    assert serve.structured_input_signature[1].keys() == {"text_a"}
    answers = serve(text_a=tf.constant(texts))
    np.testing.assert_allclose(answers["probabilities"], predictions, atol=1e-5)
    assert np.ptp(predictions[:, 0]) > 1e-3, "the last token has seen the text"


@pytest.mark.slow
def test_new_process_loads_export_without_bert_tf(pairs):
    code = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        f"serve = tf.saved_model.load({str(pairs[0] / 'model/1')!r}).signatures['serving_default']\n"
        "print(serve(text_a=tf.constant(['the man said']), text_b=tf.constant(['he was there']))"
        "['probabilities'].numpy().tolist())\n"
        "assert not {'bert_tf', 'tf_keras', 'official'} & set(sys.modules)\n"
    )
    # the environment of a foreign program, without the variable that makes TensorFlow import tf_keras
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=os.sep, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(eval(done.stdout)[0], pairs[1][0], atol=1e-5)


@pytest.fixture
def regression(tmp_path, vocab_file):
    """The run of a regression: its folder, task and model."""
    task, run = make_task(0), tmp_path / "run"
    return run, task, put_together(run, vocab_file, task)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reading",
    [
        LongTextRule("mean", "window", 4),
        LongTextRule(pair_order="both"),
        LongTextRule("max", "head_tail"),
        LongTextRule("cls", "window"),
    ],
    ids=lambda reading: f"{reading.long_text}-{reading.pooling}-{reading.pair_order}",
)
def test_long_texts_and_poolings_are_served(tokenizer, reading):
    task = dataclasses.replace(make_task(2), reading=reading)
    # Pairs in both orders are read as GPT reads them.
    gpt = {"directionality": "ltr", "extract_token_id": tokenizer.mask_id} if reading.has_both_orders else {}
    model = FineTunedBert(dataclasses.replace(CONFIG, **gpt), task.head)
    split = encoded_split(task, [Example(a, b, None) for a, b in PAIRS], tokenizer, 24)
    orders = {name: split.columns[name] for name in ("order_ids",) if name in split.columns}
    rows = model(task.model_inputs(split.columns, tokenizer, 24) | orders)["logits"].numpy()
    expected = softmax(task.by_example(split, rows)[1], axis=-1)
    first, second = (tf.constant(list(texts)) for texts in zip(*PAIRS, strict=True))
    served = ServedClassifier(model, tokenizer, description.describe(task, 24), {})
    specs = {name: tf.TensorSpec([None], tf.string) for name in ("text_a", "text_b")}
    serve = tf.function(served.answer, autograph=False).get_concrete_function(**specs)
    np.testing.assert_allclose(serve(text_a=first, text_b=second)["probabilities"], expected, atol=1e-5)
    assert not reading.has_windows or len(split) > len(PAIRS)
    if reading.has_both_orders:
        inputs = task.model_inputs(split.columns, tokenizer, 24)
        both = {name: tf.reshape(values, [len(PAIRS), 2, 24]) for name, values in inputs.items()}
        np.testing.assert_allclose(served.answer_tokens(both)["probabilities"], expected, atol=1e-5)
    nothing = serve(text_a=tf.constant([], tf.string), text_b=tf.constant([], tf.string))
    assert nothing["probabilities"].shape == [0, 2]


@pytest.mark.core
def test_scores_and_label_sets_are_served(regression, tokenizer, tmp_path):
    """`test_signatures.py` tests the exported signatures and their names."""
    _, task, model = regression
    described = description.describe(task, 24)
    described = dataclasses.replace(described, parameters=described.parameters | {"mean": 500.0, "deviation": 20.0})
    columns = task.encode([Example(a, b, None) for a, b in PAIRS], tokenizer, 24)
    expected = model(task.model_inputs(columns, tokenizer, 24))["logits"][:, 0] * 20 + 500
    first, second = (tf.constant(list(texts)) for texts in zip(*PAIRS, strict=True))
    answers = ServedRegression(model, tokenizer, described, {}).answer(text_a=first, text_b=second)
    assert answers.keys() == {"score"}
    np.testing.assert_allclose(answers["score"], expected, rtol=1e-6)

    described = TaskDescription("multi_label", "own", ("x", "y"), 24, {"has_pairs": True})
    settings = ExportSettings(checkpoint_dir="", export_dir=str(tmp_path / "m"))
    (tmp_path / "thresholds.json").write_text('{"step": 3, "thresholds": {"y": 0.999, "x": 0.001}}')
    message = "tuned on the checkpoint of step 3, not of step 4; run --do_eval"
    refused(message, ServedMultiLabel.completed, settings, described, str(tmp_path), 4)
    described = ServedMultiLabel.completed(settings, described, str(tmp_path), 3)
    served = ServedMultiLabel(make_classifier(CONFIG, 2), tokenizer, described, {})
    answers = served.answer(text_a=first, text_b=second)
    assert answers["predicted"].numpy().tolist() == [[True, False]] * len(PAIRS)
    assert answers["probabilities"].shape == [len(PAIRS), 2] and np.ptp(answers["probabilities"]) < 0.99


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint_dir": "nowhere"}, "nowhere: no such checkpoint"),
        ({"task_name": "CoLA"}, "was trained on own"),
        ({"export_dir": "{run}/../model", "format": "litert"}, "model/1 has the other --format; give another folder"),
        ({"pooling": "cls"}, "--pooling: an export of own does not use this flag; remove it"),
        ({"export_dir": "{run}"}, "is not empty and contains no version of a model"),
        ({"export_dir": "{run}/../model/1"}, "exists and is not an empty folder"),
        ({"export_dir": "{run}/task.json"}, "is a file; give a model's folder"),
    ],
)
def test_bad_flags_are_refused_and_nothing_is_written(pairs, tmp_path, change, message):
    run = f"{pairs[0]}/run"
    flags = {"checkpoint_dir": run, "export_dir": str(tmp_path / "model")} | change
    flags = {name: value.format(run=run) for name, value in flags.items()}
    refused(message, export_saved_model, ExportSettings(**flags))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("vocab.txt", lambda text: "\n".join([*text.split()[:5], *text.split()[5:][::-1]]), "vocab_sha256"),
        ("tokenizer_config.json", lambda text: '{"do_lower_case": false}', "do_lower_case"),
        ("bert_config.json", lambda text: text.replace('_heads": 2', '_heads": 4'), "num_attention_heads"),
    ],
)
def test_a_file_that_is_not_the_runs_own_is_refused(regression, tmp_path, tokenizer, name, change, message):
    run = regression[0]
    facts = description.model_facts(description.read(str(run)), CONFIG, tokenizer.rules)
    phase = run_record.TrainingRecord({}, facts, {"max_seq_length": 24}, {"num_train_steps": 1})
    (run / "run.json").write_text(json.dumps({"phases": [dataclasses.asdict(phase)]}))
    path = run / name
    path.write_text(change(path.read_text() if path.exists() else ""))
    with pytest.raises(InputError, match=rf"run: its files are not the run's own \(.*{message}"):
        export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=str(tmp_path / "model")))
    assert os.listdir(tmp_path) == ["run"]


def test_unfinished_training_is_exported_by_a_flag(pairs, tmp_path):
    run = shutil.copytree(pairs[0] / "run", tmp_path / "run")
    content = json.loads((run / "run.json").read_text())
    content["phases"][0]["optimizer"]["num_train_steps"] = 100
    (run / "run.json").write_text(json.dumps(content))
    flags = ExportSettings(checkpoint_dir=str(run), export_dir=str(tmp_path / "m"))
    for kind in ("", "embeddings"):
        message = "has step 10 of 100; finish the training, or give --allow_unfinished"
        refused(message, export_saved_model, dataclasses.replace(flags, task_name=kind))
    for path in run.glob("ckpt-10.*"):
        path.unlink()
    given = dataclasses.replace(flags, allow_unfinished=True)
    refused("has step 0 of 100: training has not begun; train first", export_saved_model, given)
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.slow
def test_a_models_folder_gets_the_next_version(pairs, tmp_path):
    base = tmp_path / "models/scores"
    (base / "7").mkdir(parents=True)
    storage.write_text(f"{base}/next.tmp-0123456789ab/saved_model.pb", "")  # files of a killed export
    flags = ExportSettings(checkpoint_dir=f"{pairs[0]}/run", export_dir=f"{base}/", task_name="OWN")
    assert export_saved_model(flags) == f"{base}/8"
    assert os.listdir(tmp_path) == ["models"]
    assert sorted(os.listdir(base)) == ["7", "8"]
    assert tf.saved_model.contains_saved_model(f"{base}/8")


def test_two_exports_at_once_get_two_versions(tmp_path):
    """Each thread publishes 20 complete folders into one model, while a poller like TF Serving's reads."""
    base, found, seen = str(tmp_path / "model"), [], []
    has_looked = threading.Event()

    def publish():
        for number in range(20):
            if number == 10:  # on a busy machine, the poller's turn may come late
                has_looked.wait()
            with storage.temporary_folder(version_folder.beside(base)) as temporary:
                for part in ("saved_model.pb", "variables"):
                    storage.write_text(os.path.join(temporary, part), part)
                found.append(version_folder.publish(temporary, base))

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for name in os.listdir(base) if os.path.isdir(base) else ():
            if name.isdigit():
                seen.append(sorted(os.listdir(os.path.join(base, name))))
                has_looked.set()
    assert sorted(os.listdir(base), key=int) == [str(number) for number in range(1, 61)]
    assert len(set(found)) == 60
    assert seen and all(parts == ["saved_model.pb", "variables"] for parts in seen)


def test_last_layer_is_computed_only_where_read(pairs):
    """The model has one layer. Its activation functions, one per half and the pooler's, get one position per row."""
    model = tf.saved_model.load(str(pairs[0] / "model/1"))
    frozen = convert_variables_to_constants_v2(model.signatures["tokens"])  # and a graph without functions
    activations = [one.outputs[0] for one in frozen.graph.get_operations() if one.type in ("Tanh", "Erf", "Erfc")]
    assert len(activations) == 3, [one.name for one in activations]
    rows = [tf.ones([3, 7], tf.int32)] * 3
    for activation in activations:
        assert frozen.prune(frozen.inputs[:3], activation)(*rows).shape[0] == 3 * 1, activation.name


@pytest.mark.core
def test_no_bytes_can_break_the_graph(pairs):
    """Of random bytes, control characters and overlong texts, only the valid part counts, alone and in batches."""
    random = np.random.default_rng(0)
    texts = [random.integers(0, 256, random.integers(0, 200), np.uint8).tobytes() for _ in range(60)]
    texts += [b"\x00", b"\xff" * 5000, b"a" * 100_000, b"said " * 20_000, "\U0010ffff\u202e\u0301".encode(), b"\n\t "]
    valid = [text.decode("utf-8", "ignore").encode() for text in texts]
    serve = signature(pairs[0])
    found = serve(text_a=tf.constant(texts), text_b=tf.constant(texts[::-1]))["probabilities"].numpy()
    expected = serve(text_a=tf.constant(valid), text_b=tf.constant(valid[::-1]))["probabilities"].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    for index in (0, len(texts) - 1):
        alone = serve(text_a=tf.constant([texts[index]]), text_b=tf.constant([texts[-1 - index]]))
        np.testing.assert_allclose(alone["probabilities"][0], expected[index], atol=1e-5)
