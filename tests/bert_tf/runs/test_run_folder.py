import dataclasses
import os
import re

import pytest
import tensorflow as tf

from bert_tf import run_classifier, run_ner, run_pretraining, run_squad, run_swag
from bert_tf.core import identity
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.runs import run_folder, run_record
from bert_tf.runs.run_record import TrainingRecord
from bert_tf.settings import PretrainingSettings
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings

FIRST = TrainingRecord(
    settings=dict.fromkeys(
        ("train_batch_size", "learning_rate", "num_train_steps", "num_warmup_steps", "num_schedule_steps"), 4
    ),
    model={"model": "pretraining", "hidden_size": 8, "num_hidden_layers": 2},
    data={"files": "aa", "max_seq_length": 128},
    optimizer={"learning_rate": 0.1, "num_train_steps": 10, "num_warmup_steps": 1, "num_schedule_steps": 20},
)


def changed(phase, **parts):
    return dataclasses.replace(phase, **{part: {**getattr(phase, part), **new} for part, new in parts.items()})


SECOND = changed(
    FIRST,
    data={"files": "bb", "max_seq_length": 512},
    optimizer={"learning_rate": 0.2, "num_train_steps": 15, "num_warmup_steps": 2, "num_schedule_steps": 20},
)
LONGER = changed(FIRST, optimizer={"num_train_steps": 20, "num_warmup_steps": 3})


# The model of a fine-tuning run, whose rows cannot get another length.
OF_TASK = {"model": "classification"}


def save_a_checkpoint(folder):
    tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(0)), str(folder), 1).save(0)


@pytest.fixture
def folder(tmp_path):
    """A folder in which FIRST has begun and a checkpoint was saved."""
    path = str(tmp_path / "run")
    run_folder.begin(path, FIRST, 0)
    save_a_checkpoint(path)
    return path


def content(folder):
    with open(os.path.join(folder, "run.json"), "rb") as file:
        return file.read()


SCRIPTS = {
    "run_classifier": (run_classifier, ClassifierSettings, ["--task_name=MRPC", "--data_dir=d"]),
    "run_squad": (run_squad, SquadSettings, ["--train_file=t", "--predict_file=p"]),
    "run_ner": (run_ner, NerSettings, ["--data_dir=d"]),
    "run_swag": (run_swag, SwagSettings, ["--data_dir=d"]),
    "run_pretraining": (run_pretraining, PretrainingSettings, ["--input_file=i"]),
}


@pytest.mark.parametrize("trained_by", SCRIPTS)
def test_each_script_names_script_that_trained_folder(trained_by, tmp_path):
    path = str(tmp_path / "run")
    run_folder.begin(path, dataclasses.replace(FIRST, script=trained_by), 0)
    save_a_checkpoint(path)
    for name, (script, settings_class, words) in SCRIPTS.items():
        if name == trained_by:
            run_folder.check_script(path, name, do_train=False)
            continue
        for flag, remedy in (("--do_train", f"--init_checkpoint={path}"), ("--do_eval", f"use {trained_by}")):
            with pytest.raises(InputError, match=f"holds a run of {trained_by}, not of {name}; .*{remedy}"):
                script.main(parse(settings_class, [*words, f"--output_dir={path}", flag]))


def test_a_failed_start_binds_nothing(tmp_path):
    run_folder.begin(str(tmp_path), FIRST, 0)
    run_folder.begin(str(tmp_path), SECOND, 0)
    save_a_checkpoint(tmp_path)
    assert run_record.read_phases(str(tmp_path)) == [SECOND]


@pytest.mark.parametrize("trained_steps", [0, 5, 10])
@pytest.mark.core
def test_equivalent_settings_resume_the_run(folder, trained_steps):
    before = content(folder)
    run_folder.begin(folder, dataclasses.replace(FIRST, settings={"iterations_per_loop": 7}), trained_steps)
    assert content(folder) == before


@pytest.mark.parametrize(
    "phase, trained_steps, message",
    [
        (changed(FIRST, model={"hidden_size": 16}), 10, "with another model (hidden_size was 8, is 16);"),
        (changed(SECOND, model={"num_hidden_layers": 3}), 10, "with another model (num_hidden_layers was 2, is 3);"),
        (changed(FIRST, data={"files": "bb"}), 5, "with other data (files was 'aa', is 'bb');"),
        # finished and with more steps, but other data of the same row length does not make a second phase
        (changed(LONGER, data={"files": "bb"}), 10, "with other data (files was 'aa', is 'bb');"),
        (changed(FIRST, optimizer={"learning_rate": 0.3}), 5, "with other flags (--learning_rate was 0.1, is 0.3);"),
        (
            changed(LONGER, optimizer={"learning_rate": 0.3}),
            10,
            "with other flags (--learning_rate was 0.1, is 0.3; --num_train_steps was 10, is 20; "
            "--num_warmup_steps was 1, is 3); to resume the run, give its flags; to train with the new flags, give a "
            "new --output_dir with --init_checkpoint=",
        ),
        (LONGER, 9, "with other flags (--num_train_steps was 10, is 20; --num_warmup_steps was 1, is 3);"),
        (SECOND, 9, "with other data (files was 'aa', is 'bb'; max_seq_length was 128, is 512);"),
        (changed(FIRST, optimizer={"num_train_steps": 5}), 10, "with other flags (--num_train_steps was 10, is 5);"),
    ],
)
@pytest.mark.core
def test_different_runs_are_refused_with_reasons(folder, phase, trained_steps, message):
    before = content(folder)
    with pytest.raises(InputError, match=re.escape(f"--output_dir={folder}: holds a run {message}")):
        run_folder.begin(folder, phase, trained_steps)
    assert content(folder) == before


def test_finetuning_is_lengthened_but_has_one_phase(tmp_path):
    folder, first = str(tmp_path), changed(FIRST, model=OF_TASK)
    run_folder.begin(folder, first, 0)
    save_a_checkpoint(folder)
    with pytest.raises(InputError, match="with other data .files was 'aa', is 'bb'; max_seq_length was 128, is 512"):
        run_folder.begin(folder, changed(SECOND, model=OF_TASK), 10)
    assert run_folder.begin(folder, changed(LONGER, model=OF_TASK), 10) == 10


def test_log_lists_what_the_next_phase_changes(folder, caplog):
    with caplog.at_level("INFO", "absl"):
        run_folder.begin(folder, SECOND, 10)
    assert (
        "phase 2 begins at step 10: files was 'aa', is 'bb'; max_seq_length was 128, is 512; --learning_rate was 0.1, "
        "is 0.2; --num_train_steps was 10, is 15; --num_warmup_steps was 1, is 2"
    ) in caplog.messages


def test_spellings_of_a_checkpoint_are_equal(tmp_path, monkeypatch):
    def starting_from(fact, spelled):
        return changed(FIRST, optimizer={"init_checkpoint": fact}, settings={"init_checkpoint": spelled})

    folder = str(tmp_path / "run")
    run_folder.begin(folder, starting_from("pretrained", "pretrained"), 0)
    save_a_checkpoint(folder)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrained").mkdir()
    absolute = str(tmp_path / "pretrained")
    assert run_folder.begin(folder, starting_from(absolute, f"{absolute}/"), 5) == 5
    assert run_folder.begin(folder, starting_from("/elsewhere/pretrained", "pretrained"), 5) == 5, "all was moved"
    with pytest.raises(InputError, match="other flags .--init_checkpoint was 'pretrained', is '/other'"):
        run_folder.begin(folder, starting_from("/other", "/other"), 5)
    (tmp_path / "pretrained").rmdir()
    assert run_folder.begin(folder, starting_from("/other", "/other"), 5) == 5, "the run has its own weights"


def test_training_data_is_known_by_its_content(tmp_path):
    for name, text in (("a, b", "one"), ("copy", "one"), ("other", "two")):
        (tmp_path / name).write_text(text)
    trained = [changed(FIRST, data={"input_file": identity.fingerprint([str(tmp_path / "a, b")])})]
    for names, expected in ((["copy"], True), (["other"], False), (["other", "a, b"], True), ([], False)):
        prints = identity.fingerprint([str(tmp_path / name) for name in names])
        assert run_folder.is_training_data(prints, trained) is expected
        later = changed(FIRST, data={"input_file": []})
        assert run_folder.is_training_data(prints, [*trained, later]) is expected, "of any phase"


def test_a_phase_with_another_schedule_is_a_warning(folder, caplog):
    run_folder.begin(folder, changed(LONGER, optimizer={"num_schedule_steps": 30}), 10)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith("its schedule ends at step 30 in this phase, but at step 20 in the previous phase")


@pytest.mark.parametrize(("phase", "first_step"), [(SECOND, 10), (LONGER, 0)])
def test_a_finished_run_takes_a_next_phase(folder, phase, first_step):
    # new data starts at its beginning, the same data at its position
    assert run_folder.begin(folder, phase, 10) == 10 - first_step
    phases = [FIRST, dataclasses.replace(phase, first_step=first_step, begun_at=10)]
    assert run_record.read_phases(folder) == phases
    assert run_folder.begin(folder, phase, 12) == 12 - first_step  # the second phase resumes
    assert run_record.read_phases(folder) == phases
    with pytest.raises(InputError, match="holds a run with (another|other)"):
        run_folder.begin(folder, FIRST, 12)  # and the first does not come back


@pytest.mark.parametrize("phase", [SECOND, LONGER])
def test_a_fallback_may_be_in_the_earlier_phase(folder, phase):
    run_folder.begin(folder, phase, 10)
    assert run_folder.begin(folder, FIRST, 8) == 8
    assert run_record.read_phases(folder)[0] == FIRST


@pytest.mark.parametrize(("step", "warned"), [(0, True), (9, True), (10, False), (11, False)])
def test_warns_of_checkpoint_of_unfinished_training(folder, tmp_path, caplog, step, warned):
    for without_run in (f"{folder}/model.safetensors", f"{tmp_path}/ckpt-1"):
        run_folder.warn_if_unfinished(without_run)
    run_folder.warn_if_unfinished(f"{folder}/ckpt-{step}")
    assert caplog.messages == [f"{folder}/ckpt-{step} has step {step} of 10: the training is not finished"] * warned


def test_saved_model_is_finished_and_not_trainable(folder, caplog):
    with pytest.raises(InputError, match="has step 4 of 10; finish the training"):
        run_folder.check_finished(folder, 4, False)
    run_record.write(folder, run_record.read_phases(folder), 4)
    run_folder.check_finished(folder, 4, False)
    with pytest.raises(InputError, match=r"holds a saved model, .* to start from its weights"):
        run_folder.begin(folder, FIRST, 4)


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"phases": []}', b'{"phases": [{"other": 1}]}', b"\xff\xfe"])
def test_a_damaged_run_json_is_refused_by_name(tmp_path, text):
    save_a_checkpoint(tmp_path)
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(InputError, match=rf"{re.escape(str(tmp_path))}/run.json: is damaged \(.*\); copy the run's"):
        run_folder.begin(str(tmp_path), FIRST, 0)
    assert (tmp_path / "run.json").read_bytes() == text


def test_checkpoints_without_a_run_json_are_refused(tmp_path):
    tf.train.Checkpoint(step=tf.Variable(1)).save(str(tmp_path / "ckpt"))
    with pytest.raises(InputError, match=re.escape(f"--output_dir={tmp_path}: holds checkpoints, but no run.json")):
        run_folder.begin(str(tmp_path), FIRST, 0)
    assert not (tmp_path / "run.json").exists()


def test_fingerprints_ignore_the_folder(tmp_path):
    def fingerprint(name, data, folder="a"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return identity.fingerprint([str(path)])

    big = bytes(3 << 20)
    same = fingerprint("x", big)
    assert fingerprint("x", big, folder="b") == same
    others = [
        fingerprint("y", big),
        fingerprint("x", big + b"\0"),
        fingerprint("x", b"1" + big[1:]),
        fingerprint("x", big[:-1] + b"1"),
        fingerprint("x", b""),
        identity.fingerprint([]),
    ]
    assert len({tuple(each) for each in (same, *others)}) == 7


def test_first_different_file_is_named(tmp_path):
    run_folder.begin(str(tmp_path), changed(FIRST, data={"files": ["a, 1 bytes, 0f", "b, 2 bytes, 1f"]}), 0)
    save_a_checkpoint(tmp_path)
    with pytest.raises(InputError, match=r"number 2 \(2 before, 1 now\) was 'b, 2 bytes, 1f', is None"):
        run_folder.begin(str(tmp_path), changed(FIRST, data={"files": ["a, 1 bytes, 0f"]}), 1)


def test_an_unwritable_folder_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as on a read-only file system
    for path in (tmp_path, tmp_path / "new"):
        message = f"--output_dir: {tmp_path} is not writable; give a path in another folder"
        with pytest.raises(InputError, match=message), run_folder.Lock(str(path)):
            pass
    assert os.listdir(tmp_path) == []
