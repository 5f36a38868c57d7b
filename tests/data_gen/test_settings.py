import re

import pytest

from bert_tf.core.errors import InputError
from data_gen.settings import GeneratorSettings

GIVEN = {"input_file": "a", "output_file": "b", "vocab_file": "v"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": ""}, "--input_file is missing"),
        ({"vocab_file": ""}, "--vocab_file is missing"),
        ({"max_predictions_per_seq": 129}, "--max_predictions_per_seq=129: must be at most --max_seq_length=128"),
        ({"mask_fraction": 0.7}, "they must add up to 1"),
        ({"language": "pt-BR"}, "--language=pt-BR: is not a language code in lower case; give a code such as de"),
        ({"language": "german"}, "--language=german: is not a language code"),
    ],
)
def test_what_cannot_be_is_refused_and_named(changes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        GeneratorSettings(**{**GIVEN, **changes})


@pytest.mark.parametrize(
    "changes, dupe_factor",
    [
        ({}, 10),
        ({"objective": "lm"}, 1),
        ({"masking": "dynamic"}, 1),
        ({"masking": "dynamic", "dupe_factor": 3}, 3),
    ],
)
def test_dupe_factor_defaults_to_one_without_masking(changes, dupe_factor):
    assert GeneratorSettings(**{**GIVEN, **changes}).dupe_factor == dupe_factor
