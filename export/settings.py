"""Settings of the export script: every field is a flag."""

import dataclasses

from bert_tf.command_line import require_folder, setting


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of `export_saved_model`."""

    checkpoint_dir: str = setting("folder that run_classifier trained into")
    export_dir: str = setting("folder to make; for TF Serving let it end in a version, as in models/mrpc/1")
    task: str = setting("what to export: classifier, or the task_name of the run, which is then checked", "classifier")

    def __post_init__(self):
        require_folder("export_dir", self.export_dir)
