"""Training runs that are killed, stopped or out of disk space, and resume with the same command."""

import json
import pathlib
import random
import re
import shutil
import signal

import numpy as np
import pytest

from bert_tf.runs import checkpoint_folder, chosen_checkpoint, evaluations
from bert_tf.training import metrics_file
from tests.bert_tf.finetuning.killed_run import assert_same_weights, weights
from tests.bert_tf.pretraining_runs import flags, write_records
from tests.killable import Server
from tests.small_configs import small_config

pytestmark = pytest.mark.slow
STEPS, EVERY = 60, 10


@pytest.fixture(scope="module")
def data(tmp_path_factory, corpus_file, vocab_file):
    """A folder with a vocabulary, a configuration, and fewer masked and unmasked records than the steps read."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copy(vocab_file, folder / "vocab.txt")
    for name, masking in (("data", "static"), ("unmasked", "dynamic")):
        options = {"max_seq_length": 16, "max_predictions_per_seq": 3, "masking": masking}
        write_records(folder / f"{name}.tfrecord@2", corpus_file, vocab_file, **options)
    config = small_config(max_position_embeddings=16)
    (folder / "config.json").write_text(config.to_json_string())
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.close()


def command(data, folder, *more) -> list[str]:
    return flags(
        f"{data}/config.json", f"{data}/data.tfrecord-*", folder, "--max_seq_length=16", "--max_predictions_per_seq=3",
        "--do_train", "--train_batch_size=16", f"--num_train_steps={STEPS}", "--num_warmup_steps=4",
        "--learning_rate=1e-2", f"--save_checkpoints_steps={EVERY}", "--deterministic", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(data, server, tmp_path_factory):
    """The folder of an uninterrupted run, the number of its file operations, and the file of its batches."""
    folder = tmp_path_factory.mktemp("finished")
    count_file, batches_file = folder.parent / "count", folder.parent / "batches.jsonl"
    how = {"event": 0, "count_file": str(count_file), "batches": str(batches_file)}
    assert server.do("pretrain", command(data, folder), **how) == 0, server.log
    return folder, int(count_file.read_text()), batches_file


def test_same_bits_after_repeated_kills(data, server, finished, tmp_path):
    rng, folder = random.Random(5), tmp_path / "run"
    kills, before = 0, 0
    # before the first checkpoint, then in turn at a file operation, during a checkpoint, and between two checkpoints
    disturbances = [
        {"event": 1},
        {"event": 5},
        {"event": rng.randint(6, finished[1] // 6)},
        {"while_writing": True},
        {"at_loop": [signal.SIGKILL, 1]},
        {"event": rng.randint(6, finished[1] // 6)},
    ]
    for how in disturbances:
        code = server.do("pretrain", command(data, folder), count_file=str(tmp_path / "count"), **how)
        assert code in (0, -signal.SIGKILL), server.log
        kills += code != 0
        step = checkpoint_folder.newest_intact(str(folder)).step
        assert step >= before and not checkpoint_folder.newest_intact(str(folder)).damaged
        before = step
    assert kills >= 4 and before < STEPS
    assert server.do("pretrain", command(data, folder)) == 0, server.log
    assert_same_weights(f"{folder}/ckpt-{STEPS}", f"{finished[0]}/ckpt-{STEPS}")
    parts = {name.split("/")[0] for name in weights(f"{folder}/ckpt-{STEPS}")}
    assert {"global_step", "data_position", "random_seed"} <= parts
    # `checkpoint_folder.tidy` leaves what another process may be writing
    names = {path.name for path in folder.iterdir() if not path.name.startswith(("report.html.", "eval_results.txt."))}
    assert names == {path.name for path in finished[0].iterdir()}
    got, expected = (metrics_file.read(str(path), "metrics.jsonl") for path in (folder, finished[0]))
    loss = [{e["step"]: e["loss"] for e in entries if e["split"] == "train"} for entries in (got, expected)]
    assert loss[0] == loss[1] and len(loss[0]) == 4 * STEPS // EVERY  # loops of 3, 3, 3 and 1 steps


def test_packed_dynamic_rows_end_with_the_same_bits(data, server, tmp_path):
    """Resumes on two replicas and with a loss scale."""
    more = [
        "--distribution_strategy=mirrored", "--dtype=float16", f"--input_file={data}/unmasked.tfrecord-*",
        "--pack_sequences", f"--vocab_file={data}/vocab.txt", "--num_train_steps=40",
    ]  # fmt: skip
    # in the steps before the third checkpoint, which like the others has five loops
    for folder, how in (("whole", {}), ("killed", {"at_loop": [signal.SIGKILL, 12]}), ("killed", {})):
        code = server.do("pretrain", command(data, tmp_path / folder, *more), **how)
        assert code == (-signal.SIGKILL if how else 0), server.log
        if how:
            assert checkpoint_folder.newest_intact(str(tmp_path / folder)).step == 20
    assert_same_weights(f"{tmp_path}/killed/ckpt-40", f"{tmp_path}/whole/ckpt-40")


def batches(path: pathlib.Path) -> dict[tuple, str]:
    logged = [json.loads(line) for line in path.read_text().splitlines()]
    found = {tuple(position): digest for position, digest in logged}
    assert all(found[tuple(position)] == digest for position, digest in logged), "one position, two batches"
    return found


def test_killed_runs_read_the_same_batches(data, server, finished, tmp_path):
    more = ["--nodeterministic"]
    killed = tmp_path / "killed.jsonl"
    how = {"at_loop": [signal.SIGKILL, 2], "batches": str(killed)}
    server.do("pretrain", command(data, tmp_path / "killed", *more), **how)
    assert server.do("pretrain", command(data, tmp_path / "killed", *more), batches=str(killed)) == 0, server.log
    expected, got = batches(finished[2]), batches(killed)
    # the number of prefetched batches may differ
    common = expected.keys() & got.keys()
    assert len(common) >= STEPS and all(got[position] == expected[position] for position in common)
    positions = [weights(f"{folder}/ckpt-{STEPS}") for folder in (finished[0], tmp_path / "killed")]
    name = "data_position/.ATTRIBUTES/VARIABLE_VALUE"
    assert positions[0][name].tolist() == positions[1][name].tolist() and tuple(positions[0][name]) in common


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_saves_at_next_step_and_sets_exit_code(data, server, finished, tmp_path, number, code):
    # training takes long enough for the signal to arrive during it
    given = command(data, tmp_path, "--num_train_steps=100000", "--save_checkpoints_steps=100000")
    assert server.do("pretrain", given, at_loop=[number, 2]) == code, server.log
    step = checkpoint_folder.newest_intact(str(tmp_path)).step
    assert 0 < step < 100000
    assert server.log.splitlines()[-1] == "stopped; run the same command again to continue"
    assert f"saved {tmp_path}/ckpt-{step}" in server.log


def test_resume_after_signal_gives_same_bits(data, server, finished, tmp_path):
    code = server.do("pretrain", command(data, tmp_path, "--iterations_per_loop=3"), at_loop=[signal.SIGTERM, 5])
    assert code == 143, server.log
    step = checkpoint_folder.newest_intact(str(tmp_path)).step
    assert EVERY < step < 2 * EVERY
    assert server.do("pretrain", command(data, tmp_path)) == 0, server.log
    assert_same_weights(f"{tmp_path}/ckpt-{STEPS}", f"{finished[0]}/ckpt-{STEPS}")


def test_a_full_disk_leaves_the_last_checkpoint(data, server, finished, tmp_path):
    assert server.do("pretrain", command(data, tmp_path), largest_file=20_000) == 1
    said = server.log.splitlines()[-1]
    assert re.match(r"error: .*/ckpt-10: cannot be saved \(File too large.*\); earlier checkpoints are intact", said), (
        said
    )
    assert "Traceback" not in server.log
    found = checkpoint_folder.newest_intact(str(tmp_path))
    assert found.step == 0 and not found.damaged and not [*tmp_path.glob("saving*")]
    assert server.do("pretrain", command(data, tmp_path)) == 0, server.log
    assert_same_weights(f"{tmp_path}/ckpt-{STEPS}", f"{finished[0]}/ckpt-{STEPS}")


def test_kills_while_saving_leave_newest_and_best(server, tmp_path):
    folder, count_file = tmp_path / "run", str(tmp_path / "count")
    folder.mkdir()
    evaluations.write(str(folder), evaluations.Evaluations("f1", scores={1: {"f1": 1.0}}))
    saved, event, code = 0, 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        event += 1
        code = server.do("save_twice", str(folder), event=event, count_file=count_file)
        said = [int(line.split()[1]) for line in server.log.splitlines() if line.startswith("saved")]
        found = checkpoint_folder.newest_intact(str(folder))
        assert not found.damaged and found.step in (max([saved, *said]), max([saved, *said]) + 1)
        saved = found.step
        if found.prefix:
            for each, step in ((found, saved), (chosen_checkpoint.best(str(folder), found, ""), 1)):
                np.testing.assert_array_equal(weights(each.prefix)["values/.ATTRIBUTES/VARIABLE_VALUE"], step)
    assert code == 0 and event > 20 and saved > checkpoint_folder.KEPT + 2
    names = [f"ckpt-{step}" for step in range(saved - checkpoint_folder.KEPT + 1, saved + 1)]
    files = [f"{name}.{part}" for name in ["best-1", *names] for part in ("data-00000-of-00001", "index")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "checkpoint", evaluations.NAME])
