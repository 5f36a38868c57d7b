import json
import os
import pathlib
import random
import re
import signal
import sys

import pytest

pytestmark = pytest.mark.spark

FLAGS = {"dupe_factor": 4, "max_seq_length": 64, "max_predictions_per_seq": 10}
UNITS = 5


@pytest.fixture(scope="session")
def spark():
    """The module `spark_cluster`, which needs PySpark."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import spark_cluster

    return spark_cluster


@pytest.fixture(scope="session")
def cluster(spark, tmp_path_factory):
    """A master and two workers."""
    cluster = spark.Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with 9 MB of random words, which make five units, and a vocabulary."""
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(3000)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *words]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in dict.fromkeys(tokens)))
    sentences = [" ".join(draw.choices(words, k=draw.randint(5, 25))) for _ in range(20_000)]
    with open(folder / "corpus.txt", "w") as file:
        while file.tell() < 9 << 20:
            file.write("\n".join(draw.choices(sentences, k=draw.randint(5, 30))) + "\n\n")
    return folder


@pytest.fixture(scope="session")
def local(spark, corpus):
    """The set made by two local processes: name and bytes of each shard, and the manifest's entries."""
    run = spark.Run(
        corpus, input_file="corpus.txt", vocab_file="vocab.txt", output_file="local/set@4", num_workers=2, **FLAGS
    )
    code, output = run.finish()
    assert code == 0, output
    return made_in(corpus / "local")


def made_in(folder):
    shards = {path.name: path.read_bytes() for path in sorted(folder.glob("set-*"))}
    return shards, json.loads((folder / "set.manifest.json").read_text())["shards"]


def start(spark, cluster, corpus, output, **changes):
    # relative paths, although executors have other working directories
    files = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": f"{output}/set@4"}
    runner = {"runner": "spark", "spark_master": cluster.url}
    return spark.Run(corpus, **{**runner, **files, **FLAGS, **changes})


def units_made(corpus, output):
    return list((corpus / output / "set.work" / "units").glob("*.json"))


def check_whole(spark, corpus, output, local):
    folder = corpus / output
    assert made_in(folder) == local
    assert sorted(path.name for path in folder.iterdir()) == sorted([*local[0], "set.manifest.json"])
    code, said = spark.Run(corpus, verify=True, output_file=f"{output}/set@4").finish()
    assert code == 0 and "verified 4 shards" in said


def other_lines(output):
    return [line for line in output.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line)]


def test_killed_executors_change_no_byte(spark, cluster, corpus, local):
    launched_before = cluster.log.read_text().count("Launching executor")
    run = start(spark, cluster, corpus, "killed")
    try:
        os.kill(run.wait_for(cluster.python_workers)[0], signal.SIGKILL)
        run.wait_for(lambda: units_made(corpus, "killed"))
        victim, *others = cluster.executors()
        assert len(others) == 1 and len(units_made(corpus, "killed")) < UNITS
        os.kill(victim, signal.SIGKILL)
        code, output = run.finish()
    finally:
        run.process.kill()
    assert code == 0, output
    check_whole(spark, corpus, "killed", local)
    # the master noticed the end of the executor, and started a third one
    log = cluster.log.read_text()
    assert log.count("Launching executor") - launched_before == 3
    assert re.search(r"Removing executor \S+ because it is EXITED", log)
    assert not other_lines(output), "Spark's own log is in a file"


def test_sigterm_ends_the_cluster_run(spark, cluster, corpus, local):
    run = start(spark, cluster, corpus, "stopped")
    run.wait_for(lambda: units_made(corpus, "stopped"))
    run.process.terminate()
    code, output = run.finish()
    assert (code, other_lines(output)) == (143, ["stopped; run the same command again to continue"])
    spark.wait_for(lambda: not cluster.executors())
    kept = {path.name: path.stat().st_mtime_ns for path in units_made(corpus, "stopped")}
    assert kept
    # on this machine now
    code, output = start(spark, cluster, corpus, "stopped", runner="local", spark_master="", num_workers=2).finish()
    assert code == 0 and "resuming the unfinished run" in output
    check_whole(spark, corpus, "stopped", local)


def test_bad_input_on_an_executor_is_one_line(spark, cluster, corpus):
    # long enough that the error is in the second of three tasks
    lines = [json.dumps({"text": "the words of a document " * 40})] * 6000
    lines[4000] = "no JSON"
    (corpus / "bad.jsonl").write_text("\n".join(lines))
    run = start(spark, cluster, corpus, "bad", input_file="bad.jsonl", input_format="jsonl")
    code, output = run.finish()
    (line,) = other_lines(output)
    assert code == 1 and line.startswith(f"error: {corpus}/bad.jsonl, line 4001: ")
    assert not list((corpus / "bad").iterdir()), "no executor writes after the work folder is removed"


def test_no_master_is_one_line(spark, corpus):
    flags = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": "none/set", "runner": "spark"}
    code, output = spark.Run(corpus, spark_master="sparkle://127.0.0.1:9", **flags).finish()
    (line,) = output.splitlines()
    assert code == 1 and "error: --spark_master=sparkle://127.0.0.1:9: Spark does not start: " in line
    assert "Could not parse Master URL" in line
    code, output = spark.Run(corpus, spark_master="spark://127.0.0.1:9", **flags).finish()
    (line,) = other_lines(output)
    assert code == 1 and line.startswith("error: Spark gave up: ")


def test_no_java_is_one_line(spark, corpus, monkeypatch):
    monkeypatch.setitem(spark.ENVIRONMENT, "JAVA_HOME", "/nowhere")
    flags = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", "output_file": "none/set", "runner": "spark"}
    code, output = spark.Run(corpus, **flags).finish()
    assert code == 1
    assert output.startswith("error: --runner=spark needs Java 17, and there is no java in JAVA_HOME=/nowhere")
    assert len(output.splitlines()) == 1
