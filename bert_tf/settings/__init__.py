"""Settings of the scripts: one flat, frozen dataclass per script, whose fields are its flags."""

from bert_tf.settings.classifier import IN_MEMORY, OWN_DATA, ClassifierSettings
from bert_tf.settings.conversion import ConversionSettings
from bert_tf.settings.device import DeviceSettings
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from bert_tf.settings.finetuning import FineTuningSettings
from bert_tf.settings.glue_submission import GlueSubmissionSettings
from bert_tf.settings.ner import FEATURE_LAYERS, NerSettings
from bert_tf.settings.pretraining import PretrainingSettings
from bert_tf.settings.scoring import ScoringSettings
from bert_tf.settings.squad import SquadSettings
from bert_tf.settings.swag import SwagSettings

__all__ = [
    "FEATURE_LAYERS",
    "IN_MEMORY",
    "OWN_DATA",
    "ClassifierSettings",
    "ConversionSettings",
    "DeviceSettings",
    "FeaturesSettings",
    "FineTuningSettings",
    "GlueSubmissionSettings",
    "NerSettings",
    "PretrainingSettings",
    "ScoringSettings",
    "SquadSettings",
    "SwagSettings",
    "VectorSettings",
]
