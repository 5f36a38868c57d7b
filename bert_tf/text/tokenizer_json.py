"""Writes `tokenizer.json`, the file of the library tokenizers, for transformers and servers that are not in Python."""

from typing import Any

from bert_tf.text import sentence_piece_files
from bert_tf.text.tokenizer_rules import CLS, SEP, UNK, AddedToken, TokenizerRules
from bert_tf.text.word_splitting import MAX_CHARACTERS_PER_WORD


def content(rules: TokenizerRules) -> dict[str, Any]:
    """Returns the entries of a `tokenizer.json` that tokenizes by the same rules."""
    added = added_tokens(rules)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": int(id_), **entry} for id_, entry in added.items()],
        "post_processor": _rows(rules),
        **(sentence_piece_files.steps(rules) if rules.unigram else _word_piece(rules)),
    }  # fmt: skip


def added_tokens(rules: TokenizerRules) -> dict[str, dict[str, Any]]:
    """Returns the special tokens and the added tokens as transformers writes them, by id."""
    ids = {token: id_ for id_, token in enumerate(rules.vocabulary)}
    listed = [*(AddedToken(token, False, special=True) for token in rules.special_tokens), *rules.added_tokens]
    return {str(ids[t.content]): t._asdict() for t in sorted(listed, key=lambda token: ids[token.content])}


def _word_piece(rules: TokenizerRules) -> dict[str, Any]:
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": rules.strip_accents, "lowercase": rules.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": rules.vocabulary[rules.id_of(UNK)], "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
            "vocab": {token: id_ for id_, token in enumerate(rules.vocabulary)},
        },
    }  # fmt: skip


def _rows(rules: TokenizerRules) -> dict[str, Any]:
    """Returns the step that makes rows of texts and of pairs."""
    types = int(rules.has_token_types)
    names = {role: rules.vocabulary[rules.id_of(role)] for role in (CLS, SEP)}

    def part(role: str, type_id: int) -> dict:
        return {"SpecialToken" if role in names else "Sequence": {"id": names.get(role, role), "type_id": type_id}}

    single = [part(CLS, 0), part("A", 0), part(SEP, 0)]
    pair = [*single, *[part(SEP, 0)] * (rules.separators - 1), part("B", types), part(SEP, types)]
    special = {
        name: {"id": name, "ids": [rules.id_of(role)], "tokens": [name]} for role, name in names.items()
    }  # fmt: skip
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
