import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

import machine


def test_every_benchmark_names_the_machine():
    texts = {path.stem: path.read_text() for path in pathlib.Path(machine.__file__).parent.glob("*.py")}
    started = {stem for stem, text in texts.items() if "__main__" in text}
    silent = {stem for stem in started if "machine.describe()" not in texts[stem]}
    without_times = {"official_step", "generator_parity", "build_unicode_table"}
    assert silent == {"run", *without_times}, "run starts the others"
