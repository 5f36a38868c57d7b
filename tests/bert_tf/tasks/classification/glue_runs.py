"""The folder of a finished run of a GLUE task."""

from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification import submission
from bert_tf.training import metrics_file


def make_run(folder, task, files=(), **results):
    folder.mkdir()
    description.write(str(folder), TaskDescription("classification", task, ("0", "1"), 8, {}))
    if results:
        metrics_file.write_results(str(folder), {f"eval_{name}": value for name, value in results.items()})
    for name in files:
        submission.write(str(folder), name, ["0"], ["1"])
