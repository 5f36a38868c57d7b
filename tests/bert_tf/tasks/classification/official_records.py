"""Fine-tuning records that tf-models-official writes."""

import json

from official.nlp.data import classifier_data_lib
from official.nlp.tools import tokenization

TEXTS = [(f"The man said {'well ' * (i % 9)}", "he was there" if i % 2 else "all of you", i % 2) for i in range(12)]


class Processor(classifier_data_lib.DataProcessor):
    """MRPC's shape; scores where `label_type` is a float."""

    weight_key = ""

    def get_train_examples(self, data_dir):
        make = classifier_data_lib.InputExample
        kind = self.label_type or str
        weights = {"weight": 0.5} if self.weight_key else {}
        return [make(str(i), a, b, kind(label), **weights) for i, (a, b, label) in enumerate(TEXTS)]

    get_dev_examples = get_test_examples = get_train_examples

    def get_labels(self):
        return None if self.is_regression else ["0", "1"]

    @staticmethod
    def get_processor_name():
        return "MRPC"


def create(folder, vocab_file, **attributes):
    """Writes what `create_finetuning_data` writes, by its functions."""
    processor = Processor()
    for name, value in attributes.items():
        setattr(processor, name, value)
    paths = {f"{split}_data_output_path": f"{folder}/{split}.tf_record" for split in ("train", "eval", "test")}
    tokenizer = tokenization.FullTokenizer(vocab_file)
    meta = classifier_data_lib.generate_tf_record_from_data_file(
        processor, None, tokenizer, max_seq_length=16, **paths
    )  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta, indent=4) + "\n")
    return folder
