"""One run in its directory, finished or not: it reads and writes itself."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import METRICS as METRICS
from fedul_flwr.config.user_files import read_object, read_text
from fedul_flwr.data.run_files.parts import (
    DataInfo,
    Disclosures,
    LabelScores,
    Measured,
    Personal,
    Summary,
)
from fedul_flwr.data.run_files.records import (
    CRITERION,
    ClientRecord,
    Federation,
    best_line,
    incidents,
    number,
    read_metrics,
)
from fedul_flwr.data.safe_files import (
    PARTS,
    append_line,
    load_arrays_of,
    require_whole,
    save_arrays,
    write_atomically,
)
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

NamedArrays = Mapping[str, NDArray[Any]]

CONFIG, ENVIRONMENT = "config.json", "environment.json"
FEDERATION, SUMMARY, ERROR = "federation.json", "summary.json", "error.txt"
LABELS, MEASURES, PERSONAL = "labels.json", "measures.json", "personal.json"
DISCLOSURES = "disclosures.json"
BEST_MODEL = "model.safetensors"
HAS_STATE = "has_state"
"""Key in the header of ``last.safetensors``: whether a state of the strategy lies beside it."""
TRAINED_FOR = "test_prior"
"""Key of the class priors that a model is trained for, in its header."""
TEMPERATURE = "temperature"
"""Key in the header of ``model.safetensors``: by what predictions divide its logits."""
COVERAGE = "coverage"
"""Key there: how often sets of classes have a point's class, by class and margin
(:func:`fedul_flwr.learning.calibration.coverage_by_margin`)."""
SPLIT, SPLIT_PICTURE = "split.npz", "split.png"
PERSONAL_MODEL = "personal.safetensors"
"""File of each personal model of a simulation."""
_FILES = {
    **dict.fromkeys(("settings", "content", "data"), CONFIG),
    "federation": FEDERATION,
    "environment": ENVIRONMENT,
    "disclosures": DISCLOSURES,
    "labels": LABELS,
    "measures": MEASURES,
    "personal": PERSONAL,
    "summary": SUMMARY,
}
"""File of each part of a run; of one file alone, it is all of its content."""
_IN_ONE_LINE = (FEDERATION, MEASURES, PERSONAL)
"""Files of one line: there may be thousands of clients."""


def state_file(round_number: int) -> str:
    """Name of the file with a strategy's state after a round."""
    return f"state-{round_number}.safetensors"


class Run(BaseModel):
    """One run: what it is, its rounds, what came of it, and the files of all that.

    Files are replaced atomically, so a reader or a resumed run sees the complete old or new file.
    A run resumes from ``last.safetensors``, whose header has its round.

    Attributes
    ----------
    path : its directory.
    settings : by the names that the command line uses.
    content : digests of the files with data, by the setting that names them.
    lines : a mapping for each round, in the order of the rounds, every round once.
    summary : what came of it; None while it is unfinished.
    error : why the run ended early, ``error.txt``; None if it did not.
    labels : scores of labels that clients gave their points, if they are known.
    measures : all measures on the test set, by the predictions that were measured.
    disclosures : of a run among owners, what left each of them; None in a simulation.
    personal : errors of a simulation's personal models; None without any.
    check : raises an error if the directory is no longer this run's.
    """

    path: Path
    settings: dict[str, Scalar] = Field(default_factory=dict)
    content: dict[str, str] = Field(default_factory=dict)
    data: DataInfo = DataInfo()
    lines: list[dict[str, Any]] = Field(default_factory=list)
    summary: Summary | None = None
    federation: Federation | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None
    labels: LabelScores = LabelScores()
    measures: dict[str, Measured] = Field(default_factory=dict)
    disclosures: Disclosures | None = None
    personal: Personal | None = None
    check: Callable[[], None] = lambda: None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run's directory.

        Raises
        ------
        UserError
            If it is none, or a file of it is damaged.
        """
        if not path.is_dir():
            raise UserError(
                f"{path} is not a directory; name the output directory of a run.", "folder-missing"
            )
        config = read_object(path / CONFIG) or {}
        if not all(isinstance(config.get(key), dict) for key in ("settings", "data")):
            raise UserError(
                f"{path} is not the directory of a run: it holds no config.json with settings and "
                "data.",
                "run-missing",
            )
        error = (read_text(path / ERROR, errors="replace") or "").strip() or None
        parts = {
            name: config.get(name) if file == CONFIG else read_object(path / file)
            for name, file in _FILES.items()
        }
        parts = {name: part for name, part in parts.items() if part is not None}
        try:
            return cls(path=path, lines=read_metrics(path / METRICS), error=error, **parts)
        except ValidationError as wrong:
            first = wrong.errors()[0]
            name, *inside = map(str, first["loc"])
            raise UserError(
                f"{path / _FILES.get(name, METRICS)} is damaged: {'.'.join(inside) or name}: "
                f"{first['msg']}.",
                "run-file-wrong",
            ) from None

    @property
    def trains(self) -> bool:
        """Whether it has rounds and a model; a run that only labels clients' points has neither."""
        method = METHODS.get(str(self.settings.get("method")))
        if method is not None:
            return method.trains
        # The code of a user's own method may be missing here: look at the outcome.
        return bool(self.lines) or self.summary is None or self.summary.answered_clients is None

    @property
    def finished(self) -> bool:
        """Whether the run wrote its summary, the last step of a run."""
        return self.summary is not None

    @property
    def label(self) -> str:
        """Method, data set and seed."""
        parts = [str(self.settings.get("method", "run"))]
        # A path of a data set is long and the same in a comparison: take its last part.
        if name := str(self.settings.get("dataset", "")).rstrip("/").rsplit("/", maxsplit=1)[-1]:
            parts.append(name)
        if "seed" in self.settings:
            parts.append(f"seed {self.settings['seed']}")
        return " · ".join(parts)

    @property
    def outcome(self) -> Summary:
        """Its summary; of an unfinished run what its settings and its rounds so far say."""
        if self.summary is not None:
            return self.summary
        errors = dict(zip(*self.series("test_error"), strict=True))
        best, last = self.best_round(), self.last_round
        sums = {key: sum(self.series(key)[1]) for key in ("seconds", "bytes_up", "bytes_down")}
        seconds = sums.pop("seconds")
        sums |= {"seconds_total": seconds, "seconds_per_round": seconds / last if last else 0}
        names = ("method", "base", "selection", "evaluate")
        return Summary.model_validate(
            {
                **{name: self.settings[name] for name in names if name in self.settings},
                **{"best_round": best, "rounds": last},
                "test_error": errors.get(best or 0),
                "final_test_error": next(reversed(errors.values()), None),
                "num_clients": len(self.clients) or None,
                **{key: value for key, value in sums.items() if value},
                **incidents(self.lines),
            }
        )

    @property
    def rounds(self) -> pd.DataFrame:
        """A row for each round that was evaluated, by its number; errors in percent."""
        import pandas as pd

        columns = None if self.lines else ["round"]
        return pd.DataFrame(self.lines, columns=columns).set_index("round")

    @property
    def model(self) -> str:
        """What names its model, of points of a shape that is known."""
        name, data = self.settings.get("model"), self.data
        if not isinstance(name, str):
            raise UserError(f'{self.path / CONFIG}: needs the setting "model".', "run-file-wrong")
        if not data.is_known:
            raise UserError(
                f'{self.path / CONFIG}: "input_shape" {data.input_shape!r} and "num_classes" '
                f"{data.num_classes!r} are not those of points.",
                "run-file-wrong",
            )
        return name

    @property
    def last_round(self) -> int:
        """Number of the last round in the lines, 0 without one."""
        return int(self.lines[-1]["round"]) if self.lines else 0

    @property
    def clients(self) -> tuple[ClientRecord, ...]:
        """Its clients in the order of their numbers; none before they are known."""
        return self.federation.clients if self.federation is not None else ()

    @property
    def owners(self) -> dict[int, str]:
        """Names of the clients' owners by client, of those that have one."""
        return {client.id: client.name for client in self.clients if client.name}

    def names_of(self, num_classes: int) -> tuple[str, ...]:
        """Names of so many classes: the run's, or numbers where it has others."""
        names = (self.federation and self.federation.class_names) or self.data.class_names
        return names if len(names) == num_classes else tuple(map(str, range(num_classes)))

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Rounds in which ``key`` was measured, and its values, without null and NaN."""
        pairs = [(row["round"], number(row.get(key))) for row in self.lines]
        measured = [(step, value) for step, value in pairs if value is not None]
        return [step for step, _ in measured], [value for _, value in measured]

    def figure(self, key: str) -> float | None:
        """A finite number of the summary, by its name in the file; None if it is not there."""
        return number(getattr(self.summary, key, None))

    def best_round(self) -> int | None:
        """Round of the saved model; without a summary, the best so far by ``selection``.

        Test errors are never used for this: the result would be too optimistic.
        """
        if self.summary is not None:
            return self.summary.best_round
        chosen = str(self.settings.get("selection"))
        for selection in [chosen] if chosen in CRITERION else ["validation", "heldout"]:
            if line := best_line(self.lines, selection):
                return int(line["round"])
        return None

    # What it writes.

    def store(self, **parts: Any) -> None:
        """Set parts of the run, and write their files.

        Parameters
        ----------
        **parts : attributes by name, but for the lines.
        """
        for name, part in parts.items():
            setattr(self, name, part)
        for file in dict.fromkeys(_FILES[name] for name in parts):
            of_file = {name for name in _FILES if _FILES[name] == file}
            written = self.model_dump(include=of_file, exclude_unset=True)
            content = written if file == CONFIG else next(iter(written.values()))
            text = json.dumps(content, indent=None if file in _IN_ONE_LINE else 2)
            self.write_text(file, text + "\n")

    def write_error(self, text: str) -> None:
        """Write the sentence that says why the run ended."""
        self.write_text(ERROR, text + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace text file ``name``."""
        write_atomically(self.path / name, text)

    def add_line(self, line: dict[str, Any]) -> None:
        """Add a round's line."""
        append_line(self.path / METRICS, json.dumps(line))
        self.lines.append(line)

    def keep_lines(self, lines: Sequence[dict[str, Any]]) -> None:
        """Replace all lines by ``lines``."""
        self.lines = [*lines]
        self.write_text(METRICS, "".join(json.dumps(line) + "\n" for line in lines))

    def remove_unfinished(self) -> None:
        """Delete half-written files of processes that were killed, see :func:`replace_file`.

        Only for who holds the directory's lock, before its clients begin.
        """
        for path in self.path.rglob(PARTS):
            if path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)

    def save_model(self, name: str, arrays: NamedArrays, about: Mapping[str, Any]) -> None:
        """Replace model ``name``; its header gets ``about`` as JSON."""
        save_arrays(self.path / name, arrays, about)

    def load_model(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays of model ``name``, and the content of its header."""
        return load_arrays_of(self.path / name)

    def save_state(self, round_number: int, arrays: NamedArrays) -> None:
        """Save a strategy's state after ``round_number``, if it has any."""
        if arrays:
            self.save_model(state_file(round_number), arrays, {"round": round_number})

    def load_state(self, round_number: int) -> dict[str, NDArray[Any]]:
        """The state saved after ``round_number``; empty if there is none."""
        name = state_file(round_number)
        return self.load_model(name)[0] if (self.path / name).exists() else {}

    def require_whole(self, besides: Collection[str] = ()) -> None:
        """Refuse files of arrays, also of clients, whose bytes are not those that were written;
        ``besides`` were read already."""
        for path in sorted(self.path.rglob("*.safetensors")):
            if not path.is_symlink() and str(path.relative_to(self.path)) not in besides:
                require_whole(path)

    def drop_states_before(self, round_number: int) -> None:
        """Delete states of earlier rounds."""
        for path in self.path.glob("state-*.safetensors"):
            if path.name != state_file(round_number):
                path.unlink()

    @property
    def plots(self) -> Path:
        """Folder of the pictures; it exists once all are drawn."""
        return self.path / "plots"

    def replace_plots(self, draw: Callable[[Path], object]) -> None:
        """Let ``draw`` fill a folder with pictures, then replace the earlier ones by it."""
        part = self.path / ".plots.part"
        try:
            for earlier in (part, self.plots):
                shutil.rmtree(earlier, ignore_errors=True)
            part.mkdir()
            draw(part)
            part.replace(self.plots)
        except Exception as error:  # of matplotlib, its fonts, the disk
            shutil.rmtree(part, ignore_errors=True)
            why = str(error).strip().rstrip(".") or type(error).__name__
            raise UserError(
                f"The run in {self.path} is complete, but not its pictures ({why}): "
                f"fedul-flwr run --resume {self.path} draws them.",
                "run-not-finished",
            ) from error

    @property
    def memory(self) -> Path:
        """Folder in which clients of a simulation store arrays between rounds."""
        return self.path / "clients"

    @property
    def exchanged(self) -> Path:
        """Folder in which the server stores its copies of the parts that clients have."""
        return self.path / "held"

    def drop_client_versions(self, round_number: int) -> None:
        """Delete old versions of clients' arrays, of rounds up to ``round_number``.

        Of each client's files NAME-ROUND.safetensors, written by the client or by the server, the
        newest one up to that round stays, because a run resumes from it, and all later ones stay.
        Clients may write at the same time.
        """
        versions: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
        pattern = "*/*-*.safetensors"
        for path in (*self.memory.glob(pattern), *self.exchanged.glob(pattern)):
            name, _, number = path.stem.rpartition("-")
            if int(number) <= round_number:
                versions.setdefault((path.parent, name), []).append((int(number), path))
        for version in versions.values():
            for _, path in sorted(version)[:-1]:
                path.unlink(missing_ok=True)

    def remove_clients(self) -> None:
        """Delete clients' state of an earlier attempt, and the server's copies."""
        shutil.rmtree(self.memory, ignore_errors=True)
        shutil.rmtree(self.exchanged, ignore_errors=True)


def distinct_labels(runs: Sequence[Run]) -> list[str]:
    """The labels of ``runs``; equal ones get the settings in which the runs differ."""
    labels = [run.label for run in runs]
    for extra in ("name", "number"):
        count = Counter(labels)
        labels = [
            label
            if count[label] == 1
            else f"{label} · {run.path.resolve().name if extra == 'name' else position}"
            for position, (label, run) in enumerate(zip(labels, runs, strict=True), start=1)
        ]
    return labels
