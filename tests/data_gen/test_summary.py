import re

import pytest

from data_gen import summary
from data_gen.settings import GeneratorSettings

FINE = {"documents": 10, "sentences": 100, "tokens": 2000}
FINE |= {"used_share": 0.9, "masked_share": 0.149, "random_next_share": 0.52}
SHORT = {"random_next_share": 0.8, "documents": 90}


@pytest.mark.parametrize(
    "changes, flags, message",
    [
        ({}, {}, None),
        ({"masked_share": 0.04}, {"max_seq_length": 512}, "only 4.0% of .* instead of 15.0%, .*_seq=20 is .*; give 77"),
        (
            {"used_share": 0.4},
            {"max_seq_length": 32},
            "only 40.0% of the tokens .* have 20 tokens .*--input_format=documents",
        ),
        (
            {"used_share": 0.4},
            {},
            "20 tokens on average; give a larger --max_seq_length than 128, or text",
        ),
        (
            {"random_next_share": 0.8},
            {},
            "80.0% of the next .* have 10.0 sentences on average; give a larger --max_seq",
        ),
        (SHORT, {}, "have 1.1 sentences on average; put one sentence on a line and"),
    ],
)
def test_warning_names_share_and_helpful_flag(caplog, changes, flags, message):
    settings = GeneratorSettings(input_file="a", output_file="b", vocab_file="c", **flags)
    summary.warn_of_examples(FINE | changes, settings)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == bool(message) and all(re.search(message, line) for line in lines)
