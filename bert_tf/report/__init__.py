"""A run's folder to report.html."""


def write(output_dir: str) -> None:
    """Writes the report of a run; see `run_report.write`.

    The plotting library is loaded only now, since a prediction never needs it.
    """
    from bert_tf.report import run_report

    run_report.write(output_dir)
