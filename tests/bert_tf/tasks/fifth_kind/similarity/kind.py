"""The similarity of two texts, for the registry."""

from bert_tf.tasks.similarity.settings import SimilaritySettings
from bert_tf.tasks.similarity.similarity_task import MeanHead, SimilarityTask

from bert_tf.tasks.registry import Kind
from bert_tf.tasks.report_parts import Table


class Similarity(Kind):
    """See `SimilarityTask`."""

    name, settings = "similarity", SimilaritySettings

    @staticmethod
    def make_task(command):
        return SimilarityTask(command.settings.data_dir)

    def head(self, described, config):
        return MeanHead()

    @staticmethod
    def report_entries(entries, labels):
        rows = [[entry["text_a"], f"{entry['label']:.2f}", f"{entry['prediction']:.2f}"] for entry in entries]
        return [Table("Similarities", ["text", "true", "predicted"], rows)]


KINDS = [Similarity()]
