"""Settings that do not belong to one kind of task. Each script has a flat, frozen dataclass, whose fields are flags."""

from bert_tf.settings.conversion import ConversionSettings
from bert_tf.settings.device import DeviceSettings
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from bert_tf.settings.finetuning import FineTuningSettings
from bert_tf.settings.glue_submission import GlueSubmissionSettings
from bert_tf.settings.pretraining import PretrainingSettings
from bert_tf.settings.scoring import ScoringSettings

__all__ = [
    "ConversionSettings",
    "DeviceSettings",
    "FeaturesSettings",
    "FineTuningSettings",
    "GlueSubmissionSettings",
    "PretrainingSettings",
    "ScoringSettings",
    "VectorSettings",
]
