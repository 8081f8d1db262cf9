"""Run mutmut over the pieces of ``pieces.toml``: ``python -m tests.mutation [PIECE ...]``.

``--sample N`` tries N mutants of each piece that are drawn by chance, the same ones every time and
among those of any larger N. That takes minutes, and tells how many of all would be killed.

A piece is some source files and the tests that cover them. Results lie in ``.mutants/PIECE``: a
run that was stopped goes on where it was, changed functions are tried again, and so are survivors
when a test of the piece has changed. It fails where fewer than 95 % of a piece's mutants are
killed. A line of the code whose mutants all mean the same says so: ``# pragma: no mutate``.
"""

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / ".mutants"
BAR = 0.95
SAME_PROGRAM = (
    # zip's strict stops a slip in the program; for every input the lengths are equal.
    r"strict=True(?!.* -> .*strict=True)",
    # NumPy's kinds are single letters, and none is an X.
    r"kind not in '([a-z]+)'.* -> .*kind not in 'XX\1XX'",
    # cast is for the type checker and returns what it is given.
    r"cast\([^None].* -> .*cast\(None, ",
    # NumPy takes any negative number for the side that it finds out.
    r"reshape\((.*, )?-1[,)].* -> .*reshape\((.*, )?-2[,)]",
)
"""Changes that no input shows."""
SURVIVED = {0, 5, 33}
"""mutmut's exit codes of a mutant that all tests, or no test, let pass."""
TOO_LONG = {-24, 24, 36, 152, 255}
"""Those of one that was ended: it ran many times as long as its tests do."""
NOT_TRIED = 34
GENERATE = """
from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants
copy_src_dir()
copy_also_copy_files()
create_mutants(1)
"""


def main(words: list[str]) -> int:
    """Run the named pieces, or all; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("pieces", nargs="*", metavar="PIECE")
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants of each piece")
    given = parser.parse_args(words)
    names: list[str] = given.pieces
    pieces = tomllib.loads((Path(__file__).parent / "pieces.toml").read_text())
    if unknown := set(names) - set(pieces):
        print(f"No piece {', '.join(sorted(unknown))}; there are {', '.join(pieces)}")
        return 2
    good = True
    for name in names or pieces:
        files = files_of(pieces[name])
        numba = pieces[name].get("numba", True)
        run(RESULTS / name, files, pieces[name]["tests"], numba, given.sample)
        good = report(name, files) and good
    return 0 if good else 1


def files_of(piece: dict[str, Any]) -> list[str]:
    """Source files of a piece, relative to the repository."""
    files = [
        str(path.relative_to(REPOSITORY))
        for pattern in piece["files"]
        for path in sorted(REPOSITORY.glob(pattern))
        if path.name != "__init__.py"
    ]
    return [file for file in files if file not in piece.get("without", [])]


def run(copy: Path, files: list[str], tests: list[str], numba: bool, sample: int | None) -> None:
    """Let mutmut try the mutants of the piece, or of its sample, that have no result yet."""
    from tests.mutation import snapshot

    changed = snapshot.refresh(REPOSITORY, copy, files, tests, numba)
    metas = [copy / "mutants" / f"{file}.meta" for file in files]
    if not changed and all(meta.is_file() for meta in metas):
        choose(copy, files, sample)
        codes = [json.loads(meta.read_text())["exit_code_by_key"].values() for meta in metas]
        if not any(code is None for values in codes for code in values):
            return
    for file in files:  # mutmut takes one that it could not finish for finished
        if not (copy / "mutants" / f"{file}.meta").is_file():
            (copy / "mutants" / file).unlink(missing_ok=True)
    places = {copy / test.removeprefix("--deselect=").partition("::")[0] for test in tests}
    texts = sorted({file for place in places for file in [place, *place.rglob("*.py")]})
    texts = [file for file in texts if file.is_file()]
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in texts)).hexdigest()
    stamped = copy / "tests.sha256"
    if not stamped.is_file() or stamped.read_text() != stamp:
        (copy / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        for path in (copy / "mutants").rglob("*.meta"):
            meta = json.loads(path.read_text())
            codes = meta["exit_code_by_key"]
            meta["exit_code_by_key"] = {k: None if v in SURVIVED else v for k, v in codes.items()}
            path.write_text(json.dumps(meta))
        stamped.write_text(stamp)
    plugins = str(REPOSITORY / "tests" / "mutation" / "plugins")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": plugins}
    mutmut = str(Path(sys.executable).parent / "mutmut")
    for command in ([sys.executable, "-c", GENERATE], [mutmut, "run", "--max-children", "1"]):
        with (copy / "log.txt").open("w") as log:
            code = subprocess.run(
                ["nice", "-n", "10", *command],
                cwd=copy,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if code:
            raise SystemExit(f"mutmut could not run {copy.name}: see {copy / 'log.txt'}")
        choose(copy, files, sample)


def choose(copy: Path, files: list[str], sample: int | None) -> None:
    """Leave out mutants that change nothing, and those without a result beyond the sample."""
    metas = {file: copy / "mutants" / f"{file}.meta" for file in files}
    codes = {file: json.loads(meta.read_text())["exit_code_by_key"] for file, meta in metas.items()}
    changing = [
        key
        for file in files
        for key, (mutant, _) in zip(codes[file], results(copy, file), strict=True)
        if mutant is not None
    ]
    changing.sort(key=lambda key: hashlib.sha256(key.encode()).digest())
    wanted = set(changing[:sample])
    for file, path in metas.items():
        chosen = {
            key: code if code not in (None, NOT_TRIED) else None if key in wanted else NOT_TRIED
            for key, code in codes[file].items()
        }
        if chosen != codes[file]:
            meta = json.loads(path.read_text())
            path.write_text(json.dumps({**meta, "exit_code_by_key": chosen}))


def report(piece: str, files: list[str]) -> bool:
    """Print a piece's counts and its survivors; whether enough mutants were killed."""
    counts: Counter[str] = Counter()
    survivors: list[tuple[str, str]] = []
    for file in files:
        for mutant, code in results(RESULTS / piece, file):
            if mutant is None:
                continue
            counts["all"] += 1
            if code is None or code == NOT_TRIED:
                continue
            counts["mutants"] += 1
            if code not in SURVIVED:
                counts["killed"] += 1
                counts["too long"] += code in TOO_LONG
            elif any(re.search(change, mutant) for change in SAME_PROGRAM):
                counts["same"] += 1
            else:
                survivors.append((file, mutant))
    other = counts["mutants"] - counts["same"]
    share = counts["killed"] / max(other, 1)
    is_sample = counts["mutants"] < counts["all"]
    of_all = f" of {counts['all']}" if is_sample else ""
    print(
        f"{piece}: {counts['mutants']}{of_all} mutants, "
        f"{counts['killed']} killed ({counts['too long']} as they took too long), "
        f"{len(survivors)} survived, {counts['same']} the same program; {100 * share:.1f} %"
        + (f", {spread(counts['killed'], other)} of all" if is_sample else "")
    )
    for file, group in itertools.groupby(survivors, lambda key: key[0]):
        print(f"  survived: {file}")
        for _, mutant in group:
            print(f"    {mutant}")
    return share >= BAR


def spread(killed: int, tried: int) -> str:
    """Percentages between which the share of all mutants lies in 95 of 100 cases, by Wilson."""
    from scipy.stats import binomtest

    if not tried:
        return "0 to 100 %"
    found = binomtest(killed, tried).proportion_ci(method="wilson")
    return f"{100 * found.low:.1f} to {100 * found.high:.1f} %"


def results(copy: Path, file: str) -> Iterator[tuple[str | None, int | None]]:
    """Mutants of a file as ``function: old -> new``, ``None`` for no change; their results."""
    meta = copy / "mutants" / f"{file}.meta"
    if not meta.is_file():
        return
    tree = ast.parse((copy / "mutants" / file).read_text())
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for key, code in json.loads(meta.read_text())["exit_code_by_key"].items():
        name = key.rpartition(".")[2]
        function = name.partition("__mutmut_")[0]
        texts = []
        for version in (f"{function}__mutmut_orig", name):
            functions[version].name = "f"
            texts.append(ast.unparse(functions[version]).splitlines())
        lines = [line for line in difflib.ndiff(*texts) if line[0] in "+-"]
        old, new = (
            " ".join(line[2:].strip() for line in lines if line[0] == sign) for sign in "-+"
        )
        plain = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        yield (f"{plain}: {change(old, new)}" if lines else None), code


def change(old: str, new: str, around: int = 30) -> str:
    """``old -> new``, without most of what is the same before and after."""
    start = max(alike(old, new) - around, 0)
    end = max(alike(old[start:][::-1], new[start:][::-1]) - around, 0)
    return f"{old[start : len(old) - end]} -> {new[start : len(new) - end]}"


def alike(left: str, right: str) -> int:
    """Characters with which both begin."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return sum(1 for _ in pairs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
