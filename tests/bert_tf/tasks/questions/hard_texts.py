"""Texts whose answers are hard to align."""

LONG = " ".join(f"{word}{i}" for i, word in enumerate(["the", "man", "café", "said", "(so)", "to", "us."] * 9))
# Contexts and their answers; the position of an answer is its first occurrence.
HARD = [
    ("Zoë's café in São Paulo opened in 1895 (see Ergänzungsschulen).", ["café", "1895", "gänz", "Zoë", "São Paulo"]),
    ("one\ttwo  three\u202ffour\u00a0five\n\r six\u3000seven", ["two  three", "three\u202ffour", "five", "\u00a0five"]),
    ("北京大学 is 中文 (Beijing) school。", ["大学", "中文", "Beijing", "school"]),
    ("I 😀 like 🤦🏽\u200d♂️ it, e\u0301t cetera", ["😀", "🤦🏽\u200d♂️", "it", "e\u0301t"]),
    ("x" * 300 + " the man " + "y" * 201, ["the man", "x" * 300, "y" * 201]),
    ("a\u00adb \u200bthe man\ufeff \x00\ufffd said", ["the", "man\ufeff", "a\u00adb"]),
    ("한국어 학교 İstanbul İyi ΑΣ ΟΔΟΣ ﬁn", ["국", "학교", "İstanbul", "ΟΔΟΣ", "ﬁn"]),
    ("the the the man the the", ["the the man", "man the"]),
    (LONG, [*LONG.split(), "man1 café2 said3", "us.62"]),
]
