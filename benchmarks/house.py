"""Size and shape of the code, counted: ``python -m benchmarks.house``.

"Files for a round" are those whose functions run while one round of a method is trained in one
process, after the clients have registered: the server's part, a client's part and the mathematics.
"""

import ast
import logging
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
IMPORTS = (ast.Import, ast.ImportFrom)
PACKAGES = ("fedul_flwr", "strategies", "client_apps", "baselines")
CONFIG: dict[str, Any] = {"model": "mlp", "num-rounds": 2, "local-epochs": 1, "evaluate-every": 2}
ROUNDS: Mapping[str, Mapping[str, Any]] = {
    "FedUL": {"method": "fedul", "selection": "last"},
    "FedMatch": {"method": "fedmatch", "labels.total": 60, "selection": "last"},
    "XCLP": {
        "method": "xclp",
        "labels.total": 60,
        "semi.labels-only-rounds": 0,
        "xclp.num-bits": 64,
        "selection": "last",
    },
}


def modules(folder: str) -> list[Path]:
    """Modules directly in a folder, without ``__init__``."""
    return sorted(p for p in (ROOT / folder).glob("*.py") if p.stem != "__init__")


def texts(*folders: str) -> list[str]:
    """Contents of all Python files in folders."""
    return [file.read_text() for folder in folders for file in (ROOT / folder).rglob("*.py")]


def lines(files: list[str]) -> int:
    """Number of lines."""
    return sum(len(file.splitlines()) for file in files)


def run_within(overrides: Mapping[str, Any], context: AbstractContextManager[Any]) -> None:
    """Run two rounds of a method with three clients in this process, within ``context``."""
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine.in_process import run_in_process
    from fedul_flwr.engine.shell import flower_logs

    with tempfile.TemporaryDirectory() as folder, flower_logs(logging.ERROR):
        config = resolve({**CONFIG, **overrides, "output": f"{folder}/run"}, Path.cwd())
        with context:
            run_in_process(config, 3)


@contextmanager
def watched(watch: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    """Call ``watch`` for every function that is called or returns within."""
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def code_of_a_round(overrides: Mapping[str, Any]) -> dict[str, set[str]]:
    """Our functions that run in round 2 of a run in this process, by their files."""
    from fedul_flwr.federated.strategy import Strategy

    seen: dict[str, set[str]] = {}
    begun, within = 0, False

    def watch(frame: FrameType, event: str, argument: object) -> None:
        del argument
        nonlocal begun, within
        code = frame.f_code
        if code.co_name == "configure_train" and event == "call":
            begun += code is Strategy.configure_train.__code__
            within = begun == 2
        if event == "call" and within:
            file = Path(code.co_filename)
            if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in PACKAGES:
                name = f"{code.co_qualname}:{code.co_firstlineno}"
                seen.setdefault(str(file.relative_to(ROOT)), set()).add(name)
        if code.co_name == "aggregate_train" and event == "return":
            within = False

    run_within(overrides, watched(watch))
    return seen


def size_of_a_round(code: Mapping[str, set[str]]) -> str:
    """Files, their lines, and functions of a round."""
    total = lines([(ROOT / file).read_text() for file in code])
    return f"{len(code)} / {total:,} / {sum(map(len, code.values()))}"


CROSSING = {
    "differential privacy": r"DPSettings|PrivateMean|(^|[._])dp([._]|$)",
    "secure sums": r"secure_?sum|sums_updates|has_sums|sums_of_sets|SumMember|sum_(client|server)",
    "standardize": r"standardize|(?<!class_)scaling",
    "heads": r"HeadSettings|makes_heads|sums_heads|closed_form|head_every",
    "tracking": r"(^|[._])tracking$|tracked$",
}
"""Features, and names in the code of a file that knows of one."""


def names_in(file: Path) -> Iterator[str]:
    """Names that the code of a module uses, without its texts and comments."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from (f"{module}.{alias.name}" for alias in aliases)


def crossing(pattern: str) -> str:
    """Files and rooms that know of a feature."""
    knows = re.compile(pattern, re.IGNORECASE)
    files = [
        file.relative_to(ROOT).parts
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if any(map(knows.search, names_in(file)))
    ]
    rooms = {parts[1] if parts[0] == "fedul_flwr" else parts[0] for parts in files}
    return f"{len(files)} / {len(rooms)}"


def public_methods(kind: type) -> int:
    """Methods of a class itself whose names have no underscore, properties apart."""
    plain = (FunctionType, classmethod, staticmethod)
    return sum(isinstance(v, plain) for name, v in vars(kind).items() if name[0] != "_")


def conversions_to_text() -> int:
    """How often a run of two rounds and three clients turns settings, those of a whole run or of
    one table, into a flat table; all in one process, which is the command, the server and the
    clients."""
    from fedul_flwr.config.base import Settings
    from fedul_flwr.config.run_config import RunConfig

    calls = []

    def counted(to_flat: Any) -> Any:
        def call(settings: Settings, prefix: str = "") -> dict[str, Any]:
            calls.append(type(settings))
            found: dict[str, Any] = to_flat(settings, prefix)
            return found

        return call

    with ExitStack() as stack:
        for kind in (Settings, RunConfig):
            stack.enter_context(patch.object(kind, "to_flat", counted(kind.to_flat)))
        run_within({}, nullcontext())
    return len(calls)


def climbs() -> tuple[int, int]:
    """How often a run's settings climb, and the files that they come through.

    In a run of two rounds and three clients in this process, from the command's settings to the
    clients' training: pairs of functions of which one calls the other, both of ours, the called one
    takes a :class:`RunConfig` as an argument, and its package stands after the caller's in
    ``ORDER`` of ``tests/test_house.py``. Files are those of all functions that take one.
    """
    from fedul_flwr.config.run_config import RunConfig
    from tests.test_house import ORDER

    pairs: set[tuple[CodeType, CodeType]] = set()
    files: set[Path] = set()

    @cache
    def place_of(code: CodeType) -> Path | None:
        file = Path(code.co_filename)
        own = file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in PACKAGES
        return file.relative_to(ROOT) if own else None

    def floor(file: Path) -> int:
        parts = file.with_suffix("").parts
        return ORDER.index(parts[1] if parts[0] == "fedul_flwr" else parts[0])

    def watch(frame: FrameType, event: str, argument: object) -> None:
        del argument
        code, file = frame.f_code, place_of(frame.f_code) if event == "call" else None
        if file is None:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = (frame.f_locals.get(name) for name in names if name != "self")
        if not any(isinstance(value, RunConfig) for value in given):
            return
        files.add(file)
        caller = frame.f_back
        while caller is not None and place_of(caller.f_code) is None:
            caller = caller.f_back
        above = caller and place_of(caller.f_code)
        if caller and above and floor(above) < floor(file):
            pairs.add((caller.f_code, code))

    run_within({}, watched(watch))
    if "--files" in sys.argv:
        for one, other in sorted((a.co_qualname, b.co_qualname) for a, b in pairs):
            print(f"  {one} -> {other}")
    return len(pairs), len(files)


def sentences_of(test: str) -> Iterator[int]:
    """Lines of a test that ask for a sentence, which is frozen in ``tests/golden`` already.

    ``match=`` with two words or more, and ``in`` or ``==`` that compare three words or more with
    something else than a literal.
    """

    def words(node: ast.AST) -> int:
        if not isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            return 0
        parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        text = "".join(part for part in parts if isinstance(part, str))
        return 1 + len(re.findall(r"(?<=[^\W\d]) (?=[^\W\d])", text))

    for node in ast.walk(ast.parse(test)):
        if isinstance(node, ast.keyword) and node.arg == "match":
            inner = [node.value, *(node.value.args if isinstance(node.value, ast.Call) else [])]
            if max(map(words, inner)) >= 2:
                yield node.value.lineno
        elif isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.In | ast.Eq):
                    sides = sorted(map(words, [part.left, part.comparators[0]]))
                    if sides[0] == 0 and sides[1] >= 3:
                        yield part.lineno


FEDPROTO = ROOT / "tests" / "method" / "fedproto.py"
MOST_PARAMETERS = 6


def figures_of_a_method(file: Path) -> str:
    """Lines of a method's file, and names and modules of this package that it imports."""
    text = file.read_text()
    imports = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    ours = [n for n in imports if str(n.module).startswith("fedul_flwr")]
    names = sum(len(n.names) for n in ours)
    return f"{lines([text])} / {names} / {len({n.module for n in ours})}"


def functions_with_many_parameters() -> list[str]:
    """Functions outside the commands with more than :data:`MOST_PARAMETERS`, without ``self``."""
    many = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if file.is_relative_to(ROOT / "fedul_flwr" / "cli"):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    named = [arg for arg in given if arg.arg not in ("self", "cls")]
                    if len(named) > MOST_PARAMETERS:
                        many.append(f"{file.relative_to(ROOT)}:{node.name}")
    return many


def files_of_the_newest_method() -> str:
    """Files of the commit that added the newest built-in method, by git."""
    from fedul_flwr.config.methods import METHODS

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(ROOT), "log", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    added = []
    for name, method in METHODS.items():
        kind = method.client_class if method.asks_clients else method.strategy_class
        file = kind.__module__.removeprefix("fedul_flwr.").replace(".", "/") + ".py"
        time, commit = git("-1", "--diff-filter=A", "--format=%ct %h", "--", file)
        added.append((int(time), name, commit))
    _, name, commit = max(added)
    return f"{len(git('-1', '--name-only', '--format=', commit))} ({name}, {commit})"


def rows() -> Iterator[tuple[str, object]]:
    """Names of figures and their values."""
    import fedul_flwr.method
    from fedul_flwr.config.run_config import default_flat
    from fedul_flwr.federated.client import Client
    from fedul_flwr.federated.strategy import Strategy

    own, tests = texts(*PACKAGES), texts("tests")
    yield "files / lines of the four packages", f"{len(own)} / {lines(own):,}"
    yield "lines of federated", f"{lines(texts('fedul_flwr/federated')):,}"
    rooms = ("run", "data/run_files", "results", "engine", "api", "cli")
    yield (
        "run, run_files, results, engine, api, cli",
        f"{lines(texts(*(f'fedul_flwr/{room}' for room in rooms))):,}",
    )
    yield "lines of experiments in the package", f"{lines(texts('fedul_flwr/experiments')):,}"
    for feature, pattern in CROSSING.items():
        yield f"files / rooms that know of {feature}", crossing(pattern)
    yield (
        "public methods of Strategy / Client",
        f"{public_methods(Strategy)} / {public_methods(Client)}",
    )
    for name, options in (("FixMatch", {}), ("FixMatch in a secure sum", {"secure-sum": "on"})):
        fixmatch = {"method": "fixmatch", "labels.total": 60, "selection": "last", **options}
        code = code_of_a_round(fixmatch)
        yield f"{name}, a round: files / lines / functions", size_of_a_round(code)
        if "--files" in sys.argv:
            yield "", " ".join(sorted(code))
    kit = [name for name in vars(fedul_flwr.method) if name[0] != "_"]
    yield "names in fedul_flwr.method", len({*kit, "Network"} - {"TYPE_CHECKING", "Any"})
    yield "FedProto: lines / names / modules", figures_of_a_method(FEDPROTO)
    yield "files that the newest method touched", files_of_the_newest_method()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield "core dependencies", len(project["dependencies"])
    many = functions_with_many_parameters()
    yield f"functions with more than {MOST_PARAMETERS} parameters", len(many)
    if "--files" in sys.argv:
        yield "", " ".join(many)
    yield "raise in 1,000 lines", round(1000 * sum(t.count("raise ") for t in own) / lines(own))
    yield "lines of tests", f"{lines(tests):,}"
    yield "assertions on sentences", sum(len(list(sentences_of(test))) for test in tests)
    yield "settings", len(default_flat())
    yield "settings to text, 2 rounds and 3 clients", conversions_to_text()
    yield "climbs of a setting / files", "{} / {}".format(*climbs())
    yield "experiment files", len([*(ROOT / "experiments").rglob("*.py")])
    for name, overrides in ROUNDS.items():
        yield (
            f"{name}, a round: files / lines / functions",
            size_of_a_round(code_of_a_round(overrides)),
        )


def main() -> None:
    """Print the figures."""
    for name, value in rows():
        print(f"{name:52} {value}")


if __name__ == "__main__":
    main()
