"""A few lines of each file of GLUE and XNLI, in their layouts."""

PARSES = "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
MNLI = f"index\tpromptID\tpairID\tgenre\t{PARSES}\tsentence1\tsentence2"
MNLI_DEV = f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
NLI = "index\tsentence1\tsentence2"
XNLI = f"language\tgold_label\t{PARSES}\tsentence1\tsentence2\tpromptID\tpairID\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def mnli(index, a, b, *labels):
    return "\t".join([str(index), "1", "2n", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", a, b, *labels]) + "\n"


def xnli_line(language, label, a, b):
    return f"{language}\t{label}\t\t\t\t\t{a}\t{b}\t1\t2\n"


FILES = {
    "MNLI": {
        "train.tsv": f"{MNLI}\tlabel1\tgold_label\n" + mnli(0, 'He said " no .', "b", "neutral", "neutral"),
        "dev_matched.tsv": MNLI_DEV + mnli(0, "a", "b", *["neutral"] * 5, "entailment"),
        "dev_mismatched.tsv": MNLI_DEV + mnli(0, "c", "d", *["neutral"] * 5, "contradiction"),
        "test_matched.tsv": f"{MNLI}\n" + mnli(7, "e", "f"),
        "test_mismatched.tsv": f"{MNLI}\n" + mnli(8, "g", "h"),
    },
    "QNLI": {
        "train.tsv": 'index\tquestion\tsentence\tlabel\n0\tWho "?\tIt .\tnot_entailment\n',
        "dev.tsv": "index\tquestion\tsentence\tlabel\n5\ta\tb\tentailment\n",
        "test.tsv": "index\tquestion\tsentence\n9\tc\td\n",
    },
    "RTE": {
        "train.tsv": f"{NLI}\tlabel\n0\ta\tb\tentailment\n",
        "dev.tsv": f"{NLI}\tlabel\n0\ta\tb\tnot_entailment\n",
        "test.tsv": f"{NLI}\n0\tc\td\n",
    },
    "WNLI": {
        "train.tsv": f"{NLI}\tlabel\n0\ta\tb\t1\n1\ta\tb\t0\n2\ta\tb\t1\n",
        "dev.tsv": f"{NLI}\tlabel\n0\ta\tb\t0\n",
        "test.tsv": f"{NLI}\n0\tc\td\n",
    },
    "QQP": {
        "train.tsv": f"{QQP}3\t1\t2\ta\tb\t1\n",
        "dev.tsv": f"{QQP}4\t1\t2\ta\tb\t0\n",
        "test.tsv": "id\tquestion1\tquestion2\n0\tc\td\n",
    },
    "AX": {
        "../MNLI/train.tsv": f"{MNLI}\tlabel1\tgold_label\n" + mnli(0, "a", "b", "neutral", "neutral"),
        "diagnostic-full.tsv": "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\t"
        "Hypothesis\tLabel\nQuantifiers\t\t\t\tNews\ta\tb\tcontradiction\n",
        "diagnostic.tsv": f"{NLI}\n0\tc\td\n",
    },
    "XNLI": {
        "multinli/multinli.train.zh.tsv": "premise\thypo\tlabel\na\tb\tcontradictory\n",
        "xnli.dev.tsv": XNLI + xnli_line("de", "neutral", "x", "y") + xnli_line("zh", "entailment", "a", "b"),
        "xnli.test.tsv": XNLI + xnli_line("de", "neutral", "x", "y") + xnli_line("zh", "neutral", "c", "d"),
    },
}  # fmt: skip


def write_files(folder, name, **changes):
    for path, text in (FILES[name] | changes).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
