r"""Compiles the training step for absent TPUs and GPUs, and prints its memory, FLOPs and memory traffic.

python -m benchmarks.compile_check --bert_config_file=bert_config.json --train_batch_size=64 --max_seq_length=128 \
      --chips=v5e
"""

from benchmarks.compile_check import xla_flags
from benchmarks.compile_check.settings import CompileCheckSettings
from bert_tf.core import command_line


def main(settings: CompileCheckSettings) -> None:
    xla_flags.keep_counters()
    from benchmarks.compile_check.check import run_check

    run_check(settings)


run = command_line.script_of(CompileCheckSettings, main, __doc__)

if __name__ == "__main__":
    run()
