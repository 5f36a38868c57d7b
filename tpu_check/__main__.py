r"""Compiles the training step for TPUs without a TPU, and prints its memory, FLOPs and memory traffic.

python -m tpu_check --bert_config_file=bert_config.json --train_batch_size=64 --max_seq_length=128 --chips=v5e
"""

from bert_tf import command_line
from tpu_check.settings import TpuCheckSettings


def main(settings: TpuCheckSettings) -> None:
    """Runs the script with resolved settings."""
    from tpu_check.check import run_check

    run_check(settings)


if __name__ == "__main__":
    command_line.run(TpuCheckSettings, main, __doc__)
