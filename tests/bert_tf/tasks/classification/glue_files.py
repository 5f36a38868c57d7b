"""A few lines of each file of GLUE, XNLI, SNLI and SciTail, in their layouts."""

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


COLA = 'gj04\t1\t\tOne "quoted word.\ngj04\t0\t*\tIs bad this.\n'
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t17\t18\tHe came .\tCame he .\r\n0\t2\t3\tA\tB\r\n"
SST_2 = "sentence\tlabel\ncharming . \t1\ndull\t0"
STS_B_HEAD = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
STS_B = (
    f"{STS_B_HEAD}\tscore\n0\tg\tf\t2012\t00\tnone\tnone\tA man.\tThe man.\t4.600\n1\tg\tf\t2012\t01\tn\tn\tA\tB\t0\n"
)
SNLI = f"gold_label\t{PARSES}\tsentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\n"


def snli_lines(first_label):
    """The second pair has no gold label."""
    texts = "( a )\t( b )\t(ROOT a)\t(ROOT b)\ta\tb"
    labels = enumerate([first_label, "-", "neutral"])
    return SNLI + "".join(f"{label}\t{texts}\t{n}.jpg#0\t{n}.jpg#0r1n\t{label}\t\t\t\t\n" for n, label in labels)


FILES = {
    "CoLA": {"train.tsv": COLA, "dev.tsv": COLA, "test.tsv": "index\tsentence\n0\tBill left.\n1\tWho?\n"},
    "MRPC": {
        "train.tsv": MRPC, "dev.tsv": MRPC,
        "test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t4\t5\tC 's\tD\n",
    },
    "SST-2": {"train.tsv": SST_2, "dev.tsv": SST_2, "test.tsv": "index\tsentence\n0\tuneasy .\n"},
    "STS-B": {
        "train.tsv": STS_B, "dev.tsv": STS_B, "test.tsv": f"{STS_B_HEAD}\n0\tg\tf\t2012\t00\tnone\tnone\tC\tD\n",
    },
    "SNLI": {
        f"snli_1.0_{split}.txt": snli_lines(label)
        for split, label in (("train", "contradiction"), ("dev", "entailment"), ("test", "neutral"))
    },
    "SciTail": {
        f"tsv_format/scitail_1.0_{split}.tsv": 'Pluto rotates.\tPluto turns.\tentails\nA "quote" stays.\tb\tneutral\n'
        for split in ("train", "dev", "test")
    },
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
        (folder / path).write_text(text, encoding="utf-8", errors="surrogateescape")
