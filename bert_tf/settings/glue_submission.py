"""Settings of `glue_submission`: every field is a flag."""

import dataclasses

from bert_tf.core.command_line import Settings, require, setting
from bert_tf.core.flag_parsing import items


@dataclasses.dataclass(frozen=True)
class GlueSubmissionSettings(Settings):
    """Settings of `glue_submission`."""

    flag_group = "Data"

    run_dirs: str = setting("folders of fine-tuning runs, comma-separated, one for each task")
    output_file: str = setting("zip file to write for GLUE's server; empty: only print the dev scores", "")
    glue_dir: str = setting(
        "folder of GLUE's data; if no run has WNLI.tsv, the submission predicts the majority class of WNLI in this "
        "folder", "",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            not self.output_file or self.output_file.endswith(".zip"),
            f"--output_file={self.output_file}: must end in .zip, as GLUE's server expects",
        )

    @property
    def folders(self) -> tuple[str, ...]:
        return items(self.run_dirs)
