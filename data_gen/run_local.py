"""The runner for the cores of this machine, with the generator's modules loaded."""

from jobs import run_local


class LocalRunner(run_local.LocalRunner):
    """Runs tasks of the generator; see `jobs.run_local.LocalRunner`.

    Args:
      num_workers: number of processes; 1 runs all tasks in this process; None means one per core.
    """

    def __init__(self, num_workers: int | None = None):
        super().__init__(num_workers, preload=["data_gen.token_blocks", "data_gen.examples"])
