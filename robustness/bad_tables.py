"""Tables of features that cannot be used, for ``robustness.faults bad-inputs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HEAD = "age,dose,sex,label\n"
ROWS = "".join(f"{20 + n},{n / 7},{'fm'[n % 2]},{'ab'[n % 3 % 2]}\n" for n in range(40))
LABELS = np.arange(40) % 2

_TABLES = {
    "missing-cells": HEAD + ROWS.replace("20,", ",", 1),
    "na-cells": HEAD + ROWS.replace("21,", "NA,", 1).replace("22,", "nan,", 1),
    "infinite": HEAD + ROWS.replace("23,", "inf,", 1),
    "beyond-float32": HEAD + ROWS.replace("24,", "1e300,", 1),
    "ragged": HEAD + ROWS + "1,2\n",
    "too-wide-rows": HEAD + ROWS + "1,2,f,a,5,6\n",
    "no-header": ROWS,
    "twice": "age,age,sex,label\n" + ROWS,
    "no-name": "age,,sex,label\n" + ROWS,
    "no-label-column": "age,dose,sex,verdict\n" + ROWS.replace("a\n", "1\n"),
    "only-labels": "label\na\nb\n",
    "only-header": HEAD,
    "nothing": "",
    "newlines": "\n\n\n",
    "not-utf-8": HEAD + ROWS + "30,1,é,a\n",
    "nul": "\0" * 100,
    "dates": HEAD + "".join(f"2026-01-{1 + n:02},1,f,a\n" for n in range(20)),
    "free-text": HEAD + "".join(f"1,1,name{n},{'ab'[n % 2]}\n" for n in range(400)),
    "unfinished-quote": HEAD + ROWS + '"1,2,f,a\n',
    "huge-label": HEAD + ROWS.replace(",a\n", ",99999999999\n").replace(",b\n", ",1\n"),
    "half-labels": HEAD + ROWS.replace(",a\n", ",0.5\n").replace(",b\n", ",1\n"),
    "one-class": HEAD + ROWS.replace(",b\n", ",a\n"),
    "no-label-at-all": HEAD + ROWS.replace(",a\n", ",\n").replace(",b\n", ",\n"),
}
_ARRAYS: dict[str, dict[str, Any]] = {
    "vectors-nan": {"vectors": np.full((40, 3), np.nan)},
    "vectors-inf": {"vectors": np.full((40, 3), -np.inf)},
    "vectors-text": {"vectors": np.array([["a"] * 3] * 40)},
    "vectors-complex": {"vectors": np.ones((40, 3), complex)},
    "vectors-flat": {"vectors": np.ones(40)},
    "vectors-deep": {"vectors": np.ones((40, 3, 2))},
    "vectors-empty": {"vectors": np.ones((40, 0))},
    "vectors-none": {"vectors": np.ones((0, 3)), "labels": LABELS[:0]},
    "vectors-wide": {"vectors": np.ones((40, 100_001), np.uint8)},
    "vectors-few-labels": {"vectors": np.ones((40, 3)), "labels": LABELS[:7]},
    "vectors-and-images": {"vectors": np.ones((40, 3)), "images": np.ones((40, 8, 8), np.uint8)},
}

FORMS = tuple(f"tables/{name}" for name in (*_TABLES, *_ARRAYS, "other-columns", "other-length"))
"""Every bad table, as setting `dataset` names it."""


def write_tables(root: Path) -> None:
    """Write each as a folder with a training and a test file, and a good one."""
    for name, text in _TABLES.items():
        encoding = "latin-1" if name == "not-utf-8" else "utf-8"
        _write_csv(root / name, text.encode(encoding), text.encode(encoding))
    _write_csv(root / "other-columns", (HEAD + ROWS).encode(), ("a" + HEAD + ROWS).encode())
    _write_csv(root / "good-table", (HEAD + ROWS).encode(), (HEAD + ROWS).encode())
    for name, arrays in _ARRAYS.items():
        _write_npz(root / name, {"labels": LABELS, **arrays}, {"labels": LABELS, **arrays})
    longer = {"labels": LABELS, "vectors": np.ones((40, 4))}
    _write_npz(root / "other-length", {"labels": LABELS, "vectors": np.ones((40, 3))}, longer)
    files = {
        "unknown-key": '{"columns": [{"name": "age", "unit": "y"}]}',
        "no-list": '{"columns": "age"}',
        "no-column": '{"columns": [{"name": "height"}]}',
        "no-category": '{"columns": [{"name": "sex", "categories": ["f"]}]}',
        "text-as-number": '{"columns": [{"name": "sex"}]}',
        "bad-scale": '{"columns": [{"name": "age", "mean": 1, "scale": 0}]}',
        "no-json": "age",
        "list": "[1]",
    }
    for name, text in files.items():
        (root / f"columns-{name}.json").write_text(text)


def _write_csv(folder: Path, train: bytes, test: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "train.csv").write_bytes(train)
    (folder / "test.csv").write_bytes(test)


def _write_npz(folder: Path, train: dict[str, Any], test: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    np.savez(folder / "train.npz", **train)
    np.savez(folder / "test.npz", **test)
