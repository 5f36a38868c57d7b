"""Settings of `run_similarity`."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import setting
from bert_tf.settings import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class SimilaritySettings(FineTuningSettings):
    """Settings of `run_similarity`."""

    flag_group = "Data"
    script: ClassVar[str] = "run_similarity"

    data_dir: str = setting("folder with train.tsv, dev.tsv and test.tsv: two texts and their similarity", first=True)
