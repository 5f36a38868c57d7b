"""Warns of a vocabulary that does not fit the casing of the tokenizer."""

import re
from collections.abc import Sequence

from absl import logging

from bert_tf.tokenization import SPECIAL_TOKENS

UNUSED = re.compile(r"\[unused\d+\]")


def warn_of_case(path: str, tokens: Sequence[str], do_lower_case: bool) -> None:
    """Warns of upper-case tokens if text is lower-cased, and of a vocabulary without upper case if text keeps its case.

    Args:
      tokens: the tokens of the vocabulary.
    """
    words = [token for token in tokens if token not in SPECIAL_TOKENS and not UNUSED.fullmatch(token)]
    upper = [word for word in words if word != word.lower()]
    if upper and do_lower_case:
        logging.warning(
            "%s has %d tokens with upper-case letters, such as %s, which lower-cased text never matches; "
            "give --do_lower_case=false if the vocabulary is cased", path, len(upper), upper[0]
        )  # fmt: skip
    elif words and not upper and not do_lower_case:
        logging.warning(
            "%s has no token with an upper-case letter, but --do_lower_case=false keeps upper case; "
            "give --do_lower_case if the vocabulary is uncased", path
        )  # fmt: skip
