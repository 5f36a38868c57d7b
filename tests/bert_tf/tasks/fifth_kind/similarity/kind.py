"""The similarity of two texts, for the registry."""

from bert_tf.tasks.similarity.settings import SimilaritySettings
from bert_tf.tasks.similarity.similarity_task import MeanHead, SimilarityTask, read

from bert_tf.tasks.registry import Kind
from bert_tf.tasks.report_parts import Table, of_lines
from bert_tf.tasks.split_files import file_data


def make_task(command):
    data_dir = command.settings.data_dir
    return SimilarityTask(file_data(data_dir, {}, lambda split: [f"{split}.tsv"], read))


def report(entries, labels):
    rows = [[entry["text_a"], f"{entry['label']:.2f}", f"{entry['prediction']:.2f}"] for entry in entries]
    return [Table("Similarities", ["text", "true", "predicted"], rows)]


KINDS = [Kind("similarity", SimilaritySettings, make_task, lambda described, config: MeanHead(), of_lines(report))]
