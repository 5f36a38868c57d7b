"""Runs the generator in forked processes and kills them at chosen steps; runs as a separate process.

Reads one JSON request per line: {"settings": {...}, "kill_at": step or null, "trace": file for the steps}; answers with
the exit status. TensorFlow is imported once, and a table replaces the tokenizer, so that a run takes a few hundredths
of a second. Steps are the moments before and after each change of the file system, and the middle of writing each file.
The removal of a folder has a step for each file.
"""

import json
import os
import pathlib
import signal
import sys
import types

import numpy as np
import tensorflow as tf

from bert_tf.tokenization import load_vocabulary
from data_gen import token_blocks
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings

steps, kill_at, traced = 0, None, []


def step(what: str) -> None:
    """Marks a moment at which the process may be killed."""
    global steps
    steps += 1
    traced.append(what)
    if steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def with_steps(name, function):
    """Returns the function with a step before and after it."""

    def stepped(*arguments, **named):
        step(f"before {name} {arguments[0]}")
        result = function(*arguments, **named)
        step(f"after {name} {arguments[0]}")
        return result

    return stepped


def rmtree(folder):
    """Removes a folder like TensorFlow: first the files from the top down, then the folders."""
    for path in sorted(pathlib.Path(folder).rglob("*"), key=lambda path: (path.is_dir(), len(path.parts), path)):
        step(f"before removal of {path}")
        path.rmdir() if path.is_dir() else path.unlink()
    step(f"before removal of {folder}")
    os.rmdir(folder)


class HalfwayFile(tf.io.gfile.GFile):
    """A file with a step inside its first write."""

    def write(self, content):
        half = len(content) // 2
        super().write(content[:half])
        self.flush()
        step(f"half of {self.name}")
        super().write(content[half:])


class HalfwayRecords(tf.io.TFRecordWriter):
    """A record file with a step after its first record."""

    def write(self, record):
        super().write(record)
        if not getattr(self, "begun", False):
            self.begun = True
            self.flush()
            step("first record")


def instrument() -> None:
    """Makes every change of the file system a step."""
    os.fsync = with_steps("fsync", os.fsync)
    for name in ("rename", "remove", "makedirs"):
        setattr(tf.io.gfile, name, with_steps(name, getattr(tf.io.gfile, name)))
    tf.io.gfile.rmtree = rmtree
    tf.io.gfile.GFile = HalfwayFile
    tf.io.TFRecordWriter = HalfwayRecords


def tokenizer(vocab_file, *_):
    """A fast replacement for the tokenizer."""
    return types.SimpleNamespace(vocabulary=load_vocabulary(vocab_file), unk_id=1)


def encode(sentences, table):
    """Returns the ids of the words in sentences, and the number of words in each sentence."""
    words = [sentence.split() for sentence in sentences]
    ids = [table.vocabulary.index(word) for sentence in words for word in sentence]
    return np.array(ids, np.uint16), np.array([len(sentence) for sentence in words])


class Here:
    """Runs tasks in this process."""

    num_workers = 1
    map = staticmethod(map)


def run(request) -> None:
    """Runs the generator in this process up to a step."""
    global kill_at
    kill_at = request["kill_at"]
    instrument()
    token_blocks._tokenizer, token_blocks._encode = tokenizer, encode
    create_pretraining_data(GeneratorSettings(**request["settings"]), Here())
    pathlib.Path(request["trace"]).write_text("\n".join(traced))


def main() -> None:
    """Answers requests until the input ends."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                run(json.loads(line))
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
