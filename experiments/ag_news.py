"""The news of AG's corpus (Zhang, Zhao and LeCun 2015): data for recipes/texts.

    curl -LO https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/test.csv
    python experiments/ag_news.py test.csv ag-news

writes the 7,600 texts of that file, title and description, as ``train.csv`` (5,200) and
``test.csv`` (2,400). The corpus may be used for research, not commercially, as its page says.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

NAMES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
TEST = 2400


def write_news(source: Path, folder: Path, seed: int = 0) -> None:
    """Write both splits of the rows in ``source`` to ``folder``, which may not exist yet."""
    with source.open(newline="", encoding="utf-8") as stream:
        news = [(f"{title}. {text}", NAMES[label]) for label, title, text in csv.reader(stream)]
    order = np.random.default_rng(seed).permutation(len(news))
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("test", order[:TEST]), ("train", order[TEST:])):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("text", "label"), *(news[row] for row in rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write_news(arguments.source, arguments.folder)
