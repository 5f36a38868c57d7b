"""Settings of the scripts: one flat, frozen dataclass per script, whose fields are its flags."""

from bert_tf.settings.classifier import IN_MEMORY, ClassifierSettings
from bert_tf.settings.conversion import ConversionSettings
from bert_tf.settings.device import DeviceSettings
from bert_tf.settings.finetuning import FineTuningSettings
from bert_tf.settings.glue_submission import GlueSubmissionSettings
from bert_tf.settings.ner import FEATURE_LAYERS, NerSettings
from bert_tf.settings.pretraining import PretrainingSettings

__all__ = [
    "FEATURE_LAYERS",
    "IN_MEMORY",
    "ClassifierSettings",
    "ConversionSettings",
    "DeviceSettings",
    "FineTuningSettings",
    "GlueSubmissionSettings",
    "NerSettings",
    "PretrainingSettings",
]
