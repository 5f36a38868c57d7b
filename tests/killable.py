"""Runs work in forked children and kills them at chosen moments.

The script is a process that has loaded TensorFlow but does not use it, so that a child starts at once. It reads orders
from standard input, one JSON object per line, and answers each order with the child's exit code. After a kill by a
signal, the exit code is the signal's negative number.
"""

import contextlib
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np

from bert_tf.runs import checkpoint_folder

ROOT = pathlib.Path(__file__).resolve().parents[1]


# A script with these arguments: a pattern of file names, a module and the module's flags. It runs the module as a
# command, and is killed when two files match the pattern and the next task is done.
KILLED_JOB = """
import glob, importlib, os, signal, sys
from bert_tf.jobs.run_local import LocalRunner
pattern, module, map_ = sys.argv.pop(1), sys.argv.pop(1), LocalRunner.map
def killed(self, function, tasks):
    for result in map_(self, function, tasks):
        yield result
        if len(glob.glob(pattern)) >= 2:
            os.kill(os.getpid(), signal.SIGKILL)
LocalRunner.map = killed
importlib.import_module(module).run()
"""


class Server:
    """The process of this script, with its children's last output in `log`."""

    def __init__(self, folder: pathlib.Path):
        self._log_path = folder / "log"
        # two devices, like the tests
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"},
        )  # fmt: skip

    def do(self, task: str, arguments, **how) -> int:
        """Runs a task of `TASKS` in a child; `how` says how to disturb it, see `_disturb`."""
        order = {"task": task, "arguments": arguments, "log": str(self._log_path), **how}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    @property
    def log(self) -> str:
        """Returns the output of the last child."""
        return self._log_path.read_text()

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def _kill(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)
    if number == signal.SIGKILL:
        time.sleep(60)  # the signal may take a moment


def _watch_files(event: int, count_file: str) -> None:
    """Kills the process at the event-th event, and counts the events in a file.

    Events are the moments before each change of the file system, also before each file of a folder that is removed; the
    middle of each write; and the end of the first record of each record file.
    """
    import tensorflow as tf

    count = 0

    def is_due() -> bool:
        nonlocal count
        count += 1
        pathlib.Path(count_file).write_text(str(count))
        return count == event

    def watched(function):
        def call(*args, **kwargs):
            if is_due():
                _kill()
            return function(*args, **kwargs)

        return call

    def remove_folder(folder, *_, **__):
        for path in sorted(pathlib.Path(folder).rglob("*"), key=lambda path: (path.is_dir(), len(path.parts), path)):
            os.rmdir(path) if path.is_dir() else os.remove(path)
        os.rmdir(folder)

    def write(file, text):
        if is_due():
            write_all(file, text[: len(text) // 2])
            file.flush()
            _kill()
        return write_all(file, text)

    def write_record(writer, record):
        write_one(writer, record)
        if not hasattr(writer, "has_record"):
            writer.has_record = True
            writer.flush()
            if is_due():
                _kill()

    for owner, names in (
        (os, ("fsync", "replace", "remove", "rmdir")),
        (tf.io.gfile, ("rename", "remove", "makedirs")),
    ):
        for name in names:
            setattr(owner, name, watched(getattr(owner, name)))
    tf.io.gfile.rmtree = shutil.rmtree = remove_folder
    write_all, tf.io.gfile.GFile.write = tf.io.gfile.GFile.write, write
    write_one, tf.io.TFRecordWriter.write = tf.io.TFRecordWriter.write, write_record


def _kill_once_there(prefix: str) -> None:
    """Kills the process as soon as a checkpoint's first file appears."""
    while not glob.glob(f"{glob.escape(prefix)}*"):
        pass
    _kill()


def _disturb(order: dict) -> None:
    """Disturbs the process as an order says; its entries are below.

    event, count_file: see `_watch_files`.
    while_writing: SIGKILL while the second checkpoint is being written, or at the latest after it has been written.
    at_loop: [signal, number of loops before it]; the steps of the last loop are not saved yet.
    largest_file: after training has begun, no file may become larger than this number of bytes.
    """
    import resource

    import tensorflow as tf

    from bert_tf.training import loop

    if "event" in order:
        _watch_files(order["event"], order["count_file"])
    if "while_writing" in order:
        write, calls = tf.train.Checkpoint.write, []

        def written(checkpoint, prefix):
            calls.append(prefix)
            if len(calls) == 2:
                threading.Thread(target=_kill_once_there, args=[prefix], daemon=True).start()
                write(checkpoint, prefix)
                _kill()
            return write(checkpoint, prefix)

        tf.train.Checkpoint.write = written
    begin = loop.TrainingProgress.__init__

    def begun(*args, **kwargs):
        begin(*args, **kwargs)
        if "largest_file" in order:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)

    loop.TrainingProgress.__init__ = begun
    update, loops = loop.TrainingProgress.update, []

    def updated(*args):
        update(*args)
        loops.append(args)
        if len(loops) == order["at_loop"][1]:
            _kill(order["at_loop"][0])

    if "at_loop" in order:
        loop.TrainingProgress.update = updated


def _log_batches(path: str) -> None:
    """Writes a line for each batch: the position in the data after it, and a hash of its contents."""
    import hashlib

    import tensorflow as tf

    from bert_tf.input import pipeline

    make = pipeline.pretraining_batches

    def log(position, *columns):
        digest = hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()
        with open(path, "a") as file:
            file.write(json.dumps([position[0].tolist(), digest]) + "\n")
        return position

    def logged(batch):
        columns = [batch[name] for name in sorted(batch) if name != "data_position"]
        position = tf.numpy_function(log, [batch["data_position"], *columns], tf.int32)
        return batch | {"data_position": tf.ensure_shape(position, batch["data_position"].shape)}

    def made(*args, **kwargs):
        return make(*args, **kwargs).map(logged, num_parallel_calls=1)

    pipeline.pretraining_batches = made


def pretrain(arguments: list[str]) -> None:
    """Runs `run_pretraining` as from the command line."""
    from bert_tf import run_pretraining

    sys.argv = ["run_pretraining", *arguments]
    run_pretraining.run()


def squad(arguments: list[str]) -> None:
    """Runs `run_squad` as from the command line."""
    from bert_tf import run_squad

    sys.argv = ["run_squad", *arguments]
    run_squad.run()


def generate(settings: dict) -> None:
    """Runs the generator in this process; a table of whole words replaces the tokenizer, to be fast."""
    from data_gen import generator, token_blocks
    from data_gen.settings import GeneratorSettings

    def encode(sentences, tokenizer):
        words = [sentence.split() for sentence in sentences]
        ids = [tokenizer.vocabulary.index(word) for sentence in words for word in sentence]
        return np.array(ids, np.uint16), np.array([len(sentence) for sentence in words])

    token_blocks._tokenizer = lambda vocab_file, *_: types.SimpleNamespace(
        vocabulary=pathlib.Path(vocab_file).read_text().splitlines(), unk_id=1
    )
    token_blocks._encode = encode
    generator.create_pretraining_data(GeneratorSettings(**settings), types.SimpleNamespace(num_workers=1, map=map))


def save_twice(folder: str) -> None:
    """Continues in a folder like a run, with two checkpoints that contain their own number many times."""
    import tensorflow as tf

    step, values = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([50_000]))
    checkpoint = tf.train.Checkpoint(global_step=step, values=values)
    found = checkpoint_folder.newest_intact(folder)
    if found.prefix:
        checkpoint.restore(found.prefix).assert_existing_objects_matched()
    checkpoint_folder.tidy(folder, found)
    for _ in range(2):
        step.assign_add(1)
        values.assign(tf.fill([50_000], tf.cast(step, tf.float32)))
        checkpoint_folder.save(folder, checkpoint, int(step))
        print("saved", int(step), flush=True)


TASKS = {"generate": generate, "pretrain": pretrain, "squad": squad, "save_twice": save_twice}


def _child(order: dict) -> int:
    # A shell that runs the tests in the background ignores Ctrl-C, which training respects.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _disturb(order)
    if "batches" in order:
        _log_batches(order["batches"])
    try:
        TASKS[order["task"]](order["arguments"])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def serve() -> None:
    """Executes the orders."""
    import tensorflow as tf

    from bert_tf import run_pretraining  # noqa: F401  loaded before the first fork

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 99
            with contextlib.suppress(Exception):
                try:
                    code = _child(json.loads(line))
                except Exception:
                    import traceback

                    traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
