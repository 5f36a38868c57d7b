"""A cluster that loses a worker runs finished tasks again."""

from bert_tf.jobs.run_local import LocalRunner
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings


class RepeatingRunner:
    """A runner that executes every task twice."""

    num_workers = 1

    def map(self, function, tasks):
        """Yields the second results."""
        for task in tasks:
            function(task)
            yield function(task)


def test_tasks_that_are_done_twice_give_the_same_set(tmp_path, vocab_file, corpus_file):
    for name, runner in (("once", LocalRunner(1)), ("twice", RepeatingRunner())):
        (tmp_path / name).mkdir()
        output = f"{tmp_path}/{name}/set@3"
        settings = GeneratorSettings(input_file=corpus_file, output_file=output, vocab_file=vocab_file, dupe_factor=2)
        create_pretraining_data(settings, runner)
    once, twice = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("set-*")} for name in ("once", "twice")
    )
    assert len(once) == 3 and once == twice
