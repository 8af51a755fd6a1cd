"""Answers to questions: runs, a table, a picture and a page for each.

    python -m experiments.questions NAME ... --data-root DIR [--out sweeps/questions] [--jobs 1]

NAME is trust, secure-sums, depth, labels, observers, faults, devices, bits, buffers, cars, liars, silos, or all. The
runs are sweeps in OUT: the same command continues after an interruption. What they found is stored in `runs.csv` of the
question's folder, beside its picture.png and its page, README.md, which is written between its markers. `--page` draws
and writes again from the stored table. `faults` compares with the table of `trust`, which therefore comes first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.programs import told
from experiments.questions.catalogue import QUESTIONS


def main() -> None:
    """Answer what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=(*QUESTIONS, "all"), metavar="NAME")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("sweeps/questions"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs")
    parser.add_argument("--page", action="store_true", help="only the pages, from the stored tables")
    asked = parser.parse_args()
    for name in QUESTIONS if "all" in asked.names else asked.names:
        question = QUESTIONS[name]
        if not asked.page:
            question.store(question.run(asked.out, asked.data_root, asked.jobs, asked.set))
        table = question.read()
        question.write(table)
        print(f"{question.page}\n\n{question.block(table)}\n", flush=True)


if __name__ == "__main__":
    told(main)
