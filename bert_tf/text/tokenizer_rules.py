"""The rules by which a tokenizer turns text into tokens, as one value, and the rules of any vocabulary or model folder.

Paper: section 3 ("Input/Output Representations").
"""

import dataclasses
import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.vocabulary_file import tokens_sha256

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNUSED = re.compile(r"\[unused\d+\]")
# Ordinary text in any language has fewer tokens that are [UNK].
MOST_UNKNOWN = 0.05
# A vocabulary whose share of tokens with capital letters is smaller is uncased. Published cased vocabularies have more
# than a fifth, and published uncased vocabularies have none. The same holds for accents.
_LEAST_SHARE = 0.01
# tensorflow-text's operation accepts no longer tokens.
_MOST_BYTES = 256


# Precedes each word in the tokens of SentencePiece.
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
# The rules for rows and the kind of tokenizer, and their values in the original.
FORM = {
    "special_tokens": SPECIAL_TOKENS, "truncation_side": "right", "has_token_types": True, "separators": 1,
    "unigram": None,
}  # fmt: skip


class AddedToken(NamedTuple):
    """A token that transformers adds to a vocabulary. It is never split."""

    content: str  # the token
    normalized: bool  # whether the token and the text are normalized before the search, for example lower-cased
    special: bool = False  # whether transformers counts the token among the special tokens
    # `lstrip`, `rstrip`, `single_word`: not implemented; see docs/how_to/checkpoints.md
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class Unigram(NamedTuple):
    """A Unigram model of SentencePiece, without its vocabulary."""

    scores: tuple[float, ...]  # logarithm of each token's probability; added tokens at the end have none
    charsmap: str  # precompiled character map, in base64; "" if texts are not normalized
    splits_at_all_spaces: bool = True  # False if U+0085 separates words only at the end of a text

    @property
    def sha256(self) -> str:
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class TokenizerRules:
    """The rules of a tokenizer."""

    vocabulary: tuple[str, ...]  # the tokens in the order of their ids, including the added tokens
    do_lower_case: bool  # whether text is lower-cased
    strip_accents: bool  # whether accents are stripped
    added_tokens: tuple[AddedToken, ...] = ()  # the tokens that are never split
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS  # the tokens with the roles of `SPECIAL_TOKENS`, in this order
    truncation_side: str = "right"  # the side at which a text that is too long loses tokens: "right" or "left"
    has_token_types: bool = True  # whether the second text of a pair has segment 1; if not, all tokens have segment 0
    separators: int = 1  # number of [SEP] between the texts of a pair
    unigram: Unigram | None = None  # what makes the tokenizer SentencePiece's Unigram; None for WordPiece
    # path of the vocabulary; "" if it comes from no file
    vocab_file: str = dataclasses.field(default="", compare=False)
    # the file that states `do_lower_case`, for messages; "" if the vocabulary decides
    source: str = dataclasses.field(default="", compare=False)

    def __post_init__(self):
        for number, token in enumerate(() if self.unigram else self.vocabulary):
            if "\n" in token or "\r" in token:  # a vocabulary file has one token per line
                raise InputError(f"{self.vocab_file or 'the vocabulary'}: token {number} has a line end inside")
            if len(token) * 4 > _MOST_BYTES and len(token.removeprefix("##").encode()) > _MOST_BYTES:
                raise InputError(
                    f"{self.vocab_file or 'the vocabulary'}: token {number} has more than {_MOST_BYTES} bytes; give "
                    "another vocabulary"
                )

    def id_of(self, role: str) -> int:
        """Returns the id of the special token with a role of `SPECIAL_TOKENS`."""
        return self.vocabulary.index(self.special_tokens[SPECIAL_TOKENS.index(role)])

    def require_word_pieces(self, what: str) -> None:
        """Refuses a Unigram model for `what`."""
        if self.unigram:
            raise InputError(f"{self.vocab_file}: is a Unigram model, but {what} needs WordPiece; give a vocab.txt")

    @functools.cached_property
    def continues_word(self) -> list[bool]:
        """Whether each token continues the word of the token before it."""
        if self.unigram:
            return [not token.startswith(WORD_START) for token in self.vocabulary]
        return [token.startswith("##") for token in self.vocabulary]

    @property
    def form(self) -> dict[str, Any]:
        """The rules in `FORM` that differ from the original's, by name."""
        return {name: getattr(self, name) for name, usual in FORM.items() if getattr(self, name) != usual}

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The rules as JSON values: in the record of a run, in the manifest of records, and in the keys of caches."""
        return {
            "vocab_sha256": tokens_sha256(self.vocabulary),
            "do_lower_case": self.do_lower_case,
            "strip_accents": self.strip_accents,
            "added_tokens": [list(token) for token in self.added_tokens],
            **{name: _fact(value) for name, value in self.form.items()},
        }


def _fact(value: Any) -> Any:
    if isinstance(value, Unigram):
        return value.sha256
    return list(value) if isinstance(value, tuple) else value


def difference(facts: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """Returns the first rule that differs, as words; "" if all rules that both values contain are equal."""
    for name in {**facts, **others}:
        value, other = (rules.get(name, FORM.get(name)) for rules in (facts, others))
        if value is None or other is None or value == other:
            continue
        if name == "vocab_sha256":
            return f"another vocabulary (SHA-256 {value[:12]} instead of {other[:12]})"
        if name == "added_tokens":
            return f"other added tokens ({_listed(value)} instead of {_listed(other)})"
        dashes = "" if name in FORM else "--"
        return f"{dashes}{name}={flag_value(value)} instead of {dashes}{name}={flag_value(other)}"
    return ""


def _listed(added: Sequence) -> str:
    return ", ".join(content for content, *_ in added[:3]) + ", ..." * (len(added) > 3) or "none"


def flag_value(value: bool) -> str:
    return str(value).lower()


def has_capitals(vocabulary: Sequence[str]) -> bool:
    """Returns whether a vocabulary is cased: whether it has tokens with capital letters."""
    return _is_common(vocabulary, lambda word: word != word.lower())


def has_accents(vocabulary: Sequence[str]) -> bool:
    """Returns whether a vocabulary has tokens with marks of category Mn: accents, or vowels of Hindi and Thai."""
    return _is_common(vocabulary, lambda word: "Mn" in map(unicodedata.category, unicodedata.normalize("NFD", word)))


def _is_common(vocabulary: Sequence[str], holds: Callable[[str], bool]) -> bool:
    words = [token for token in vocabulary if not token.startswith("[") and any(map(str.isalpha, token))]
    return sum(map(holds, words)) > _LEAST_SHARE * len(words)


def of_unknown(share: float, vocab_file: str, do_lower_case: bool) -> str:
    """Returns a sentence about the share of tokens that are [UNK], with the remedy."""
    return (
        f"{share:.1%} of the tokens are {UNK}; check that {vocab_file} is for this language, and that "
        f"--do_lower_case={flag_value(do_lower_case)} fits this vocabulary"
    )


def log_casing(rules: TokenizerRules, flag: bool | None) -> None:
    """Says why text is lower-cased or not; warns if the flag does not fit the vocabulary.
    `flag`: the value of --do_lower_case; None if it was not given."""
    if rules.unigram:
        return
    name, lower, is_cased = rules.vocab_file, rules.do_lower_case, has_capitals(rules.vocabulary)
    tokens = "tokens" if is_cased else "no tokens"
    if flag is not None and flag == is_cased:
        logging.warning(
            "--do_lower_case=%s: %s has %s with capital letters; leave the flag out to %s", flag_value(flag), name,
            tokens, "keep upper case" if flag else "lower-case text",
        )  # fmt: skip
    elif flag is None and rules.source:
        logging.info("--do_lower_case=%s, as %s says", flag_value(lower), rules.source)
    elif flag is None:
        kept = "" if rules.strip_accents == lower else "; --strip_accents=false, because it has tokens with accents"
        logging.info(
            "--do_lower_case=%s, because %s has %s with capital letters%s", flag_value(lower), name, tokens, kept
        )


def check_vocabulary(tokens: Sequence[str], path: str, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> None:
    """Refuses tokens that do not form a vocabulary; for the errors, see `load_vocabulary`. `path` is its name."""
    first_line: dict[str, int] = {}
    if not {*special_tokens} & {*tokens}:
        raise InputError(
            f"{path}: contains none of {', '.join(special_tokens)}, so it is not a vocabulary; check the path"
        )
    for number, token in enumerate(tokens, 1):
        if token and token in first_line:
            raise InputError(f"{path}, line {number}: {token!r} is already on line {first_line[token]}; remove one")
        first_line[token] = number
    for special in special_tokens:
        if special not in first_line:
            raise InputError(f"{path}: the special token {special} is missing; add it on a line of its own")


def of_tokens(
    tokens: Sequence[str],
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    added_tokens: Sequence[AddedToken] = (),
    vocab_file: str = "",
    source: str = "",
    **form: Any,
) -> TokenizerRules:
    """Returns the rules of a vocabulary.
    `tokens`: the tokens in the order of their ids.
    `do_lower_case`: None to let the vocabulary decide: if it has tokens with capital letters, text keeps its case.
    `strip_accents`: None for the same value as `do_lower_case`, as in the original; but if the vocabulary decides, and
      has tokens with accents, text keeps its accents.
    `**form`: the rules in `FORM` that differ from the original's.
    Raises InputError: see `bert_tf.tokenization.load_vocabulary`."""
    form |= {"special_tokens": tuple(form.get("special_tokens", SPECIAL_TOKENS))}
    if unigram := form.get("unigram"):
        form |= {"unigram": Unigram(tuple(unigram[0]), *unigram[1:])}
        if do_lower_case or strip_accents:
            raise InputError(
                f"{vocab_file}: the map in a Unigram model normalizes texts; remove --do_lower_case and --strip_accents"
            )
        do_lower_case = strip_accents = False
    check_vocabulary(tokens, vocab_file or "the vocabulary", form["special_tokens"])
    lower = not has_capitals(tokens) if do_lower_case is None else do_lower_case
    if strip_accents is None:
        strip_accents = lower and not (do_lower_case is None and has_accents(tokens))
    added = tuple(AddedToken(*token) for token in added_tokens)
    return TokenizerRules(tuple(tokens), lower, strip_accents, added, **form, vocab_file=vocab_file, source=source)
