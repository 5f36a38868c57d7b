r"""Writes a run's report.html again from the files in the run's folder.

bert_report pretrained

The folder is the --output_dir of a script that trains. Several folders may be given.
"""

from collections.abc import Sequence

from bert_tf.core.flag_parsing import run_on_words


def main(folders: Sequence[str]) -> None:
    from bert_tf.report import run_report

    for folder in folders:
        print(run_report.write_or_refuse(folder))


def run() -> None:
    """Runs the script with the process's arguments."""
    run_on_words(main, __doc__, "name the folder of a run: bert_report FOLDER")


if __name__ == "__main__":
    run()
