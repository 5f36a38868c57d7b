"""Exports a model as a SavedModel that takes raw strings, or as a .tflite file that takes tokens.

export_saved_model --task_name=MRPC --checkpoint_dir=mrpc --export_dir=models/mrpc/1
"""

from bert_tf.core import command_line
from export.settings import ExportSettings


def main(settings: ExportSettings) -> None:
    from export.saved_model import export_saved_model

    export_saved_model(settings)


run = command_line.script_of(ExportSettings, main, __doc__)

if __name__ == "__main__":
    run()
