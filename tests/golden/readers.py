"""What every reader of tables makes of many files: the arrays, or the code of the refusal.

Made files vary in dialect, types and faults. Others are taken from ``build/tables``: run the tests
with ``--basetemp build/tables/tests -o tmp_path_retention_policy=all`` to have theirs there.
"""

import csv
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedul_flwr.api.input_data import dataset_of, stored_points
from fedul_flwr.data.class_labels import class_labels
from fedul_flwr.data.columns import Columns, parse_columns
from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets, survey_tables
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.deploy.propose_columns import propose_columns
from fedul_flwr.errors import UserError
from tests.support.points import load_points

FOUND = Path(__file__).parents[2] / "build" / "tables"
SUFFIXES = (".csv", ".parquet", ".npz")
MADE = 200


def digest(outcome: Any) -> str:
    """Digest of what a reader gave; of a refusal, its code and not its sentence."""
    return hashlib.sha256(repr(_plain(outcome)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.memmap):
        return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, UserError):
        return f"refused: {value.code}"
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def outcomes(kind: str) -> dict[str, Any]:
    """What the readers give, by file and reader; ``kind`` is "made" or "found"."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        before = os.environ.get("FEDUL_CACHE")
        os.environ["FEDUL_CACHE"] = str(root / "cache")
        try:
            parts = made(root) if kind == "made" else found(root)
            return {name: _said(outcome, folder) for name, outcome in parts}
        finally:
            os.environ.pop("FEDUL_CACHE")
            os.environ.update({} if before is None else {"FEDUL_CACHE": before})


def _said(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return value.replace(folder, "")
    if isinstance(value, dict):
        return {key: _said(one, folder) for key, one in value.items()}
    return [_said(one, folder) for one in value] if isinstance(value, list | tuple) else value


def attempt(read: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """What a reader gives, or its error."""
    try:
        return read(*values, **options)
    except Exception as error:  # an error that is not ours is an outcome, too
        return error


def as_source(dataset: Any, **options: Any) -> dict[str, Any]:
    """A data set's arrays, columns and classes."""
    source = load_source(str(dataset), table=TableOptions(**options))
    return {
        "train": np.asarray(source.train.inputs),
        "test": np.asarray(source.test.inputs),
        "labels": [np.asarray(source.train.labels), np.asarray(source.test.labels)],
        "others": {name: np.asarray(values) for name, values in source.train.columns.items()},
        "classes": source.class_names,
        "columns": None if source.columns is None else source.columns.to_json(),
        "notes": source.notes,
    }


def _proposal(folder: Path) -> list[Any]:
    proposal = propose_columns([folder])
    return [proposal.to_json(), *proposal.lines()]


def read_all(name: str, train: Path, test: Path, root: Path) -> Iterator[tuple[str, Any]]:
    """All readers of files of one suffix, the first for training."""
    suffix = train.suffix.lower()
    pair, owner, sets = root / "pair", root / "owner", root / "sets"
    for folder in (pair, owner, sets):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for split, file in (("train", train), ("test", test)):
        shutil.copy(file, pair / f"{split}{suffix}")
        shutil.copy(file, sets / f"{split}{suffix}")
    shutil.copy(test, owner / f"own{suffix}")
    (owner / "labels.csv").write_text("name,label\n0,a\n1,b\n")
    (sets / "priors.csv").write_text("set;a;b\ntrain;0,5;0,5\ntest;0,25;0,75\n")
    default: Any = None
    for missing in ("refuse", "mean", "median", "most-frequent"):
        outcome = attempt(as_source, pair, missing=missing)
        yield f"{name} {missing}", outcome
        if isinstance(outcome, dict) and default is None:
            default = outcome
    schema = attempt(pq.read_schema, train) if suffix == ".parquet" else None
    listed = schema.names if isinstance(schema, pa.Schema) else []
    if suffix == ".csv":
        with train.open(encoding="utf-8", errors="replace") as stream:
            listed = stream.readline().replace(";", ",").strip().split(",")
    for column in listed[:1] if len(listed) < 40 else ():
        yield f"{name} label {column}", attempt(as_source, pair, label=column, missing="mean")
        yield f"{name} group {column}", attempt(as_source, pair, group=column, missing="mean")
        yield f"{name} text {column}", attempt(as_source, pair, text=column)
    yield f"{name} proposal", attempt(_proposal, owner)
    columns = parse_columns(default["columns"]) if default and default["columns"] else None
    if columns is None:
        return
    width = (len(columns.features),)
    trained = TableOptions(columns=columns, trained=True)
    stated = TableOptions("median", columns=Columns(columns.columns[::-1]))
    yield f"{name} columns", attempt(as_source, pair, columns=stated.columns, missing="median")
    yield f"{name} predict", attempt(lambda: load_points(test, width, trained)[1][:])
    yield f"{name} survey", attempt(lambda: list(survey_tables(owner, stated)))
    classes = ["a", "b"]

    def own() -> Any:
        points = load_partly_labeled(owner, classes, width, table=stated)
        return [np.asarray(points.inputs), points.points, points.labels, points.notes]

    def in_sets() -> Any:
        points = load_unlabeled_sets(sets, classes, 2, width, table=stated)
        return [np.asarray(points.inputs), points.sets, points.priors, points.notes]

    yield f"{name} owner", attempt(own)
    yield f"{name} sets", attempt(in_sets)


def found(root: Path) -> Iterator[tuple[str, Any]]:
    """The readers of each file in ``build/tables``, with the test file beside a training file."""
    files = [f for f in FOUND.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file()]
    seen = set()
    for file in sorted(files):
        test = file.with_name(file.name.replace("train", "test"))
        test = test if test.is_file() else file
        content = (file.read_bytes(), test.read_bytes())
        key = (file.suffix, *(hashlib.sha256(part).digest() for part in content))
        if key in seen or file.stat().st_size > 2_000_000:
            continue
        seen.add(key)
        yield from read_all(str(file.relative_to(FOUND)), file, test, root)


_NAMES = ["age", "dose", "sex", "code", "größe", "a b", "x", "note", "site"]


def _column(rng: Any, rows: int) -> tuple[list[Any], bool]:
    """Values of a column of some kind, and whether they are numbers with a decimal mark."""
    pick = rng.integers(18) if rng.random() < 0.3 else rng.choice([0, 0, 0, 1, 3, 4, 5, 6, 7])
    floats = np.round(rng.normal(50, 900, rows), int(rng.integers(1, 5))).tolist()
    texts = np.array(["f", "m", "other", "Ärzte", "a, b", 'say "x"', "two\nlines", " pad "])
    kinds: list[list[Any]] = [
        floats,
        rng.integers(0, 100, rows).tolist(),
        (10**17 + rng.integers(0, 10**6, rows)).tolist(),
        [f"{x:.2e}" for x in floats],
        [str(x) for x in rng.integers(0, 2, rows).astype(bool)],
        [
            ("TRUE", "false", "1", "0", "unknown")[k]
            for k in rng.integers(0, rng.choice([2, 4, 5]), rows)
        ],
        texts[rng.integers(0, len(texts), rows)].tolist(),
        [f"{k:03}" for k in rng.integers(0, 20, rows)],
        [f"20{10 + k:02}-0{1 + k % 9}-11" for k in rng.integers(0, 20, rows)],
        [f"{k % 28 + 1}.{k % 12 + 1}.2020" for k in range(rows)],
        list(range(1, rows + 1)),
        [f"P{k}" for k in range(rows)],
        [f"<{k / 10}" if k < 2 else k / 10 for k in rng.integers(0, 9, rows)],
        [f"{k} %" for k in rng.integers(0, 100, rows)],
        [f"{k:,}" for k in rng.integers(0, 10**7, rows)],
        [None] * rows if rng.integers(3) == 0 else [1.0] * rows,
        [f"{k // 8}{k % 8}.{100 + k}" for k in rng.integers(0, 64, rows)],
        [("a", 1, 2.5, "1.0")[k] for k in rng.integers(0, 4, rows)],
    ]
    return kinds[pick], pick == 0


def _csv(rng: Any, names: list[str], columns: list[tuple[list[Any], bool]]) -> bytes:
    """The content in some dialect, and sometimes with a fault."""
    mark = rng.choice([",", ",", ";", ";", "\t", "|"])
    comma = mark != "," and rng.integers(2)
    group = rng.choice(["", "", "", ".", " ", "'"]) if comma else ""
    missing = rng.choice(["", "", "NA", "nan", "N/A", "?", " ", "None"])
    end = rng.choice(["\n", "\n", "\r\n", "\r"])

    def cell(value: Any, is_float: bool) -> str:
        if value is None:
            return str(missing)
        if not is_float or not comma:
            return str(value)
        whole, _, part = f"{value:,}".partition(".")
        return whole.replace(",", group) + ("," + part if part else "")

    text = io.StringIO()
    quoting = int(rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer = csv.writer(text, delimiter=str(mark), lineterminator=end, quoting=quoting)
    writer.writerow(names)
    written = [[cell(value, is_float) for value in values] for values, is_float in columns]
    writer.writerows(zip(*written, strict=True))
    body = text.getvalue()
    fault = int(rng.integers(24))
    lines = body.split(end)
    faults = {
        0: lambda: f"sep={mark}{end}{body}",
        1: lambda: f"# made by a program{end}{body}",
        2: lambda: end.join(f"{line}{mark}" for line in lines if line),
        3: lambda: body + end * 3 + "  " + end,
        4: lambda: body + str(mark) * (len(names) - 1) + end,
        5: lambda: end.join(lines[1:]),
        6: lambda: body + f"1{mark}2{end}",
        7: lambda: body.replace(end, end * 2, 3),
        8: lambda: body.replace(str(mark), f"{mark} "),
        9: lambda: body + f'"open{mark}1{end}',
        10: lambda: "#" + body,
        11: lambda: body + "\x1a",
        12: lambda: f"Report{end}{body}",
    }
    body = faults.get(fault, lambda: body)()
    encoding = str(rng.choice(["utf-8"] * 4 + ["utf-8-sig", "utf-16", "cp1252", "utf-32"]))
    return body.encode(encoding)


def made(root: Path) -> Iterator[tuple[str, Any]]:
    """The readers of made tables: as CSV, as parquet, as a frame and as arrays."""
    for seed in range(MADE):
        rng = np.random.default_rng(seed)
        width = int(rng.integers(1, 6)) if seed % 20 else 700
        names = [str(n) for n in rng.choice(_NAMES, min(width, 6), replace=seed % 9 == 0)]
        names += [f"g{n}" for n in range(width - len(names))]
        rows = int(rng.choice([3, 12, 30, 60]))
        columns = [_column(rng, rows) for _ in names]
        for values, _ in columns[:6]:
            for row in rng.integers(0, rows, int(rng.choice([0, 0, 1, 3]))):
                values[row] = None
        labels = [
            ("a", "b", 0, 1, 2.0, "x 1")[k] for k in rng.integers(0, 2, rows) + 2 * (seed % 3)
        ]
        names, columns = [*names, "label"], [*columns, (labels, False)]
        half = rows // 2 + 1
        parts = [[(v[:half], f) for v, f in columns], [(v[half:], f) for v, f in columns]]
        split = [root / "train.csv", root / "test.csv"]
        for file, part in zip(split, parts, strict=True):
            state = np.random.default_rng(seed + 1000)
            file.write_bytes(attempt_bytes(state, names, part))
        yield from read_all(f"{seed} csv", *split, root)
        if len(set(names)) < len(names):
            continue
        frames = [pd.DataFrame(dict(zip(names, [v for v, _ in p], strict=True))) for p in parts]
        yield f"{seed} frame", attempt(lambda f=frames: as_source(dataset_of(f[0], f[1])))
        features = frames[0].drop(columns="label")
        yield f"{seed} stored", attempt(lambda f=features: np.asarray(stored_points(f)[:]))
        yield (
            f"{seed} arrays",
            attempt(
                lambda f=frames: as_source(
                    dataset_of((f[0].drop(columns="label").to_numpy(), f[0]["label"])),
                    missing="mean",
                )
            ),
        )
        found_labels = attempt(class_labels, frames[0]["label"], "y")
        yield f"{seed} labels", getattr(found_labels, "names", found_labels)
        categories = frames[0].iloc[:, 0].astype("category")
        typed = [frames[0].assign(**{names[0]: categories}), frames[1]]
        yield f"{seed} category", attempt(lambda t=typed: as_source(dataset_of(t[0], t[1])))
        split = [root / "train.parquet", root / "test.parquet"]
        try:
            for file, frame in zip(split, frames, strict=True):
                pq.write_table(pa.Table.from_pandas(frame), file)
        except pa.ArrowException:
            continue
        yield from read_all(f"{seed} parquet", *split, root)


def attempt_bytes(rng: Any, names: list[str], part: list[tuple[list[Any], bool]]) -> bytes:
    """The CSV file, in UTF-8 where its letters are not in the chosen encoding."""
    state = rng.bit_generator.state
    try:
        return _csv(rng, names, part)
    except UnicodeEncodeError:
        rng.bit_generator.state = state
        return _csv(rng, [n.encode("ascii", "ignore").decode() for n in names], part)
