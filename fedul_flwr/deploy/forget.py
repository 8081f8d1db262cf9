"""``fedul-flwr deploy forget``: a model in closed form again, without an owner that has left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.deploy.members import read_folder, remove
from fedul_flwr.errors import UserError


def settings_again(directory: Path, name: str, output: Path) -> RunConfig:
    """Settings of a run in closed form, for a run of the others.

    All that follows from an owner's points is in sums, which are made anew: of columns, filters and
    heads. The seed is the same, so that the model is that of a run that never had the owner.

    Raises
    ------
    UserError
        If the run trained, or the owner was not in it.
    """
    run = Run.read(directory)
    method = find_method(str(run.settings["method"]))
    # What had no effect is stored, too, and a run refuses it.
    used = {key: value for key, value in run.settings.items() if key not in method.idle}
    settings = parse_flat({**used, "output": str(output), "resume": ""})
    if method.updates:
        raise UserError(
            f"Method {settings.method!r} of {directory} trains: nobody can take an owner's updates "
            f"out of its model. Remove {name} (deploy remove), and train again with another seed.",
            "method-mismatch",
        )
    if name not in run.owners.values():
        names = ", ".join(run.owners.values()) or "not known"
        raise UserError(
            f"{name} is not in {directory}, whose owners are: {names}.", "unknown-name", name=name
        )
    return settings


def removed(root: Path, name: str) -> Iterator[str]:
    """Remove the owner, unless it has left before."""
    if name in read_folder(root).numbers:
        yield from remove(root, name)
