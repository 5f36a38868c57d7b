"""Writes the tables and the plot of docs/background/appendix.md from the files of the cells; see `cells.py`.

  .venv/bin/python examples/results/page.py

Each table replaces the lines between its two markers in the page. A cell that has not run is shown as "missing".
"""

import json
import pathlib
import re
import statistics

import cells as definitions
import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

PAGE = pathlib.Path("docs/background/appendix.md")
IMAGE = pathlib.Path("docs/images/results_figure5.png")
FILES = pathlib.Path("examples/results/cells")
TASKS = tuple(definitions.EPOCHS)
# The metric of each task, in percent.
METRICS = {"SST-2": "accuracy", "STS-B": "Pearson", "XQuAD": "accuracy", "WNUT-17": "F1"}
MISSING = "missing"

TABLE5 = (
    ("mlm", "masked LM, no next sentence", "No NSP: 86.5, 92.6"),
    ("bert", "masked LM and next sentence", "BERT: 86.7, 92.7"),
    ("ltr", "left to right", "LTR & No NSP: 77.5, 92.1"),
    ("ltr-bilstm", "left to right, BiLSTM on top", "+ BiLSTM: 75.7, 91.6"),
    ("gpt", "OpenAI GPT's recipe", "82.3 and 91.3 (test, F1)"),
    ("features-mlm", "masked LM, as features", ""),
    ("features-pair", "ELMo's recipe, as features", ""),
)
TABLE6 = {
    "2-128-2": "3, 768, 12: 5.84, 88.4",
    "4-128-2": "6, 768, 12: 4.68, 91.3",
    "2-256-4": "12, 768, 12: 3.99, 92.9",
}
TABLE7 = {"embeddings": 91.0, "second_to_last_hidden": 95.6, "last_hidden": 94.9, "weighted_sum_last_four": 95.9,
          "concat_last_four": 96.1, "weighted_sum_all": 95.5}  # fmt: skip
TABLE8 = {"80-10-10": (95.4, 94.9), "100-0-0": (94.9, 94.0), "80-0-20": (95.2, 94.6), "80-20-0": (95.2, 94.7),
          "0-20-80": (94.8, 94.6), "0-0-100": (94.9, 94.6)}  # fmt: skip


def main() -> None:
    """Updates the page and the plot."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in {"table5": table5(), "table6": table6(), "table7": table7(), "table8": table8()}.items():
        page, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda found, table=table: found[1] + table + found[2], page,
            flags=re.DOTALL,
        )  # fmt: skip
        if count != 1:
            raise SystemExit(f"error: {PAGE}: has no markers for {name}")
    PAGE.write_text(page, encoding="utf-8")
    draw_figure5()


def read(name: str) -> dict | None:
    """Returns the content of a cell's file; None if the cell has not run."""
    path = FILES / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def score(name: str) -> str:
    """Returns the mean of a cell's scores in percent, with the standard deviation in brackets."""
    cell = read(name)
    if not cell:
        return MISSING
    (scores,) = cell["scores"].values()
    return f"{100 * statistics.mean(scores):.1f} ({100 * statistics.stdev(scores):.1f})"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _heads() -> list[str]:
    return [f"{task} ({METRICS[task]})" for task in TASKS]


def table5() -> str:
    """Returns the comparison of directions."""
    rows = [[title, *(score(f"table5-{name}-{task}") for task in TASKS), paper] for name, title, paper in TABLE5]
    return table(["pre-training", *_heads(), "paper: MRPC, SST-2"], rows)


def table6() -> str:
    """Returns the comparison of sizes."""
    rows = []
    for size, paper in TABLE6.items():
        base = size == definitions.BASE
        pretrained = read("pretrain-mlm" if base else f"pretrain-mlm-{size}")
        perplexity = f"{_last(pretrained)['masked_lm_perplexity']:.0f}" if pretrained else MISSING
        names = [f"table5-mlm-{task}" if base else f"table6-{size}-{task}" for task in TASKS]
        rows.append([size.replace("-", ", "), perplexity, *map(score, names), paper])
    return table(["L, H, A", "perplexity", *_heads(), "paper: L, H, A: perplexity, SST-2"], rows)


def table7() -> str:
    """Returns the comparison of layers."""
    rows = [
        [name.replace("_", " "), score(f"table7-mlm-{name}"), score(f"table7-minilm-{name}"), f"{paper:.1f}"]
        for name, paper in TABLE7.items()
    ]
    return table(["layers", "our model", "MiniLM", "paper, CoNLL-2003"], rows)


def table8() -> str:
    """Returns the comparison of maskings."""
    rows = []
    for masking, (tuned, features) in TABLE8.items():
        own = f"table6-{definitions.SMALLEST}-WNUT-17" if masking == "80-10-10" else f"table8-{masking}"
        ours = score(own), score(f"table8-features-{masking}")
        rows.append([*masking.split("-"), *ours, f"{tuned:.1f}", f"{features:.1f}"])
    heads = ["[MASK]", "same", "random", "fine-tuned", "features", "paper: fine-tuned", "paper: features"]
    return table(heads, rows)


def _last(cell: dict) -> dict[str, float]:
    """Returns the metrics of the last evaluation of a pre-training."""
    return cell["scores"][max(cell["scores"], key=int)]


def draw_figure5() -> None:
    """Draws the dev scores after fine-tuning over the steps of pre-training, if both cells have run."""
    curves = {title: read(f"figure5-{name}") for name, title in (("mlm", "masked LM"), ("ltr", "left to right"))}
    if not all(curves.values()):
        return
    figure, axis = pyplot.subplots(figsize=(6, 3.4))
    for title, cell in curves.items():
        points = sorted((int(step), values) for step, values in cell["scores"].items())
        steps = [step for step, _ in points]
        means = [100 * statistics.mean(values) for _, values in points]
        deviations = [100 * statistics.stdev(values) for _, values in points]
        axis.errorbar(steps, means, deviations, marker="o", markersize=3, capsize=2, label=title)
    axis.set_xlabel("steps of pre-training")
    axis.set_ylabel("SST-2, dev accuracy (%)")
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    main()
