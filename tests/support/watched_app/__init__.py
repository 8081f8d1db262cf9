"""The project's app with a client app that records what leaves it, or spoils it.

:func:`make_app` writes it to a directory for ``flwr run``.
"""

import shutil
import tomllib
from pathlib import Path

from fedul_flwr.engine.flower_run import app_directory, copy_app

RECORDED, SPOILED = "WATCHED_APP_RECORDS", "WATCHED_APP_SPOILS"
"""Environment variables of a SuperNode: directory for what leaves it; round in which its update is
no number."""


def make_app(place: Path, *, lies: bool = False) -> Path:
    """Write the app to a new directory below ``place``; its server may lie, too."""
    app, project = place / "watched-app", Path(app_directory())
    copy_app(project, app)
    for name in ("watched_client.py", "lying_server.py"):
        shutil.copyfile(Path(__file__).with_name(name), app / name)
    text = (project / "pyproject.toml").read_text()
    text = text.replace('"fedul_flwr.client_app:app"', '"watched_client:app"')
    text = text.replace(
        "fab-include = [", 'fab-include = ["watched_client.py", "lying_server.py", '
    )
    if lies:
        text = text.replace('"fedul_flwr.server_app:app"', '"lying_server:app"')
    assert tomllib.loads(text)["tool"]["flwr"]["app"]["components"]["clientapp"] == (
        "watched_client:app"
    )
    (app / "pyproject.toml").write_text(text)
    shutil.copyfile(project / "README.md", app / "README.md")
    return app


def recorded(directory: Path) -> bytes:
    """All that left a SuperNode's clients, in the form it travels in."""
    files = sorted(directory.iterdir())
    return b"\n".join(file.read_bytes() for file in files)
