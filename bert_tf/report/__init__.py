"""Writes report.html from the files in a run's folder."""


def write(output_dir: str) -> None:
    """Writes the report of a run; see `run_report.write`.

    The plotting library is imported only here, since predictions do not need it.
    """
    from bert_tf.report import run_report

    run_report.write(output_dir)
