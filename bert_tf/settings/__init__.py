"""Settings of the scripts: one flat, frozen dataclass per script, whose fields are its flags."""

from bert_tf.settings.classifier import IN_MEMORY, ClassifierSettings
from bert_tf.settings.conversion import ConversionSettings
from bert_tf.settings.device import DeviceSettings
from bert_tf.settings.finetuning import FineTuningSettings
from bert_tf.settings.glue_submission import GlueSubmissionSettings
from bert_tf.settings.pretraining import PretrainingSettings
from bert_tf.settings.squad import SquadSettings

__all__ = [
    "IN_MEMORY",
    "ClassifierSettings",
    "ConversionSettings",
    "DeviceSettings",
    "FineTuningSettings",
    "GlueSubmissionSettings",
    "PretrainingSettings",
    "SquadSettings",
]
