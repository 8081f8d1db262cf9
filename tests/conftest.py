"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Networks and inputs here are tiny: two threads wait for each other a hundred times as long. It
# counts for the programs that tests start, too, and must stand before torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

if TYPE_CHECKING:  # fixtures import what they need: the process that only deals out tests does not
    from fedul_flwr.config.run_config import RunConfig

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def nothing_noted_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the list of runs with modules of their own out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def pytest_configure() -> None:
    """No test of a property has a time limit: a busy machine would fail it."""
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Do not look for garbage while tests are collected, nor ever again among what was loaded.

    Millions of objects stay until the end: looking through them is a quarter of the time that
    collecting takes.
    """
    gc.disable()
    try:
        import_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(700, 10, 100)
        gc.enable()


def import_own_share(config: pytest.Config) -> None:
    """Import some of the modules before all are collected; other workers import the others.

    Pytest rewrites a module's assertions where it is imported first, and stores the bytecode. In a
    fresh clone all workers would rewrite every module, one beside the other.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    for file in files[int(worker.removeprefix("gw")) :: workers]:
        name = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # collection says what is wrong
            importlib.import_module(name)


@pytest.hookimpl(trylast=True)  # when the slow ones are out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal real programs to half of the workers, first of all: they wait while the others compute.

    pytest-xdist gives every worker an equal stretch of the list, and later what others have left.
    The first worker has those that share a SuperLink.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    superlinks = {"shared_superlink", "superlink_of_two"}
    shared = [item for item in items if superlinks & set(getattr(item, "fixturenames", ()))]
    real = [item for item in items if is_real(item) and item not in shared]
    rest = [item for item in items if not is_real(item) and item not in shared]
    half = max(workers // 2, 1)
    firsts = [real[worker::half] for worker in range(half)] + [[]] * (workers - half)
    firsts[0] = shared + firsts[0]
    order: list[pytest.Item] = []
    for worker, first in enumerate(firsts, 1):
        order += first
        left = max(len(items) * worker // workers - len(order), 0)
        order += rest[:left]
        del rest[:left]
    items[:] = order + rest


def is_real(item: pytest.Item) -> bool:
    """Whether a test starts Ray, a SuperLink or other programs, or takes ten seconds by itself."""
    long = {"end_to_end", "benchmarks", "robustness", "docs"} & set(item.path.parts)
    return bool(long) or item.get_closest_marker("ray") is not None


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Decoded data and federations lie in a directory that all processes of the tests share."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDUL_CACHE", str(shared / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Files of the tests need not outlive a power failure: a short run syncs a dozen of them.

    Tests of what is synced, and of disks that fail, replace this function with their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_plots() -> Iterator[None]:
    """Runs in this process draw nothing: pictures are nine tenths of a short run's time.

    Of the session, so that it holds for runs that a module's tests share. Tests of pictures call
    what draws them; runs of the real programs draw theirs.
    """
    from fedul_flwr.results import plots

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw_plots", lambda run, directory: [])
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of reports are an empty one, and none is saved: for tests of the page alone."""
    from fedul_flwr.results import report

    monkeypatch.setattr(report, "draw_svg", lambda figure: b"<svg/>")
    monkeypatch.setattr(report, "save_plots", lambda figures, directory: [])


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:
    """``settings(num_rounds=2, **{"fedul.num-sets": 10})``, results in a fresh directory.

    What follows from the size of the data has the values of the digits, unless it is named: so
    clients can be built without a server that chooses.

    Similarities are compared in the clear, which is quick and can be repeated, unless
    ``xclp.secure`` is named.
    """
    from fedul_flwr.config.methods import find_method
    from fedul_flwr.config.run_config import resolve
    from tests.support.digits_settings import of_digits

    def build(**overrides: Any) -> RunConfig:
        flat = {key.replace("_", "-"): value for key, value in overrides.items()}
        if "resume" not in flat:
            flat = of_digits() | flat
        if flat.get("method") in ("xclp", "xclp-predict"):
            flat.setdefault("xclp.secure", "plaintext")
        flat.setdefault("output", str(tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"))
        # What a method that trains nothing has no use for is refused where somebody sets it.
        method = find_method(str(flat.get("method", "fedul")))
        idle = method.idle if method.updates else method.idle - {"num-rounds"}
        of_training = {k.replace("-", "_"): flat.pop(k) for k in idle & flat.keys()}
        return resolve(flat, tmp_path).model_copy(update=of_training)

    return build


@pytest.fixture
def identity() -> Iterator[None]:
    """For tests that make messages, which name who sends them."""
    from fedul_flwr.engine.in_process import task_identity

    with task_identity():
        yield


@pytest.fixture
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's Bulyan collects garbage for every client, which takes longer than all else here."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


@pytest.fixture
def real_data() -> Callable[[str], str]:
    """Return a function from the name of a real data set to its folder; skips where missing."""

    def folder(name: str) -> str:
        named = os.environ.get("FEDUL_DATA")
        root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
        if not (root / name).is_dir():
            pytest.skip(f"no data set {root / name}; FEDUL_DATA names another place")
        return str(root / name)

    return folder
