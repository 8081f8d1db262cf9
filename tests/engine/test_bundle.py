"""Flower's own build of the app bundle, and the rules that its Hub checks."""

import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from flwr.cli.app_cmd.publish import _validate_app_name, _validate_description, _validate_files
from flwr.cli.build import build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import filter_paths_for_publish
from flwr.common.config import get_fab_config

from fedul_flwr.engine.flower_run import METHODS, app_directory

ROOT = app_directory()
MOST_FILES = 400
PACKAGES = ("fedul_flwr/", *(f"{name}/" for name in METHODS))


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    """Files of the repository, as ``flwr app publish`` sees them in a clean checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = {name: ROOT / name for name in done.stdout.splitlines()}
    return {name: path for name, path in paths.items() if path.is_file() and not path.is_symlink()}


def test_given_flowers_build_then_the_bundle_has_all_modules(files: dict[str, Path]) -> None:
    bundle, metadata = build_fab_from_files(files)
    assert metadata.fab_format_version == 1
    assert (metadata.flwr_version_min, metadata.flwr_version_target) == ("1.42", "1.42.0")
    with zipfile.ZipFile(BytesIO(bundle)) as archive:
        names = set(archive.namelist()) - {".info/CONTENT"}
    modules = {name for name in files if name.startswith(PACKAGES) and name.endswith(".py")}
    card = "fedul_flwr/results/model_card.template.md"  # a deployed run writes its card from it
    assert names == {"pyproject.toml", "README.md", "LICENSE", card, *modules}
    assert len(names) <= MOST_FILES
    assert get_fab_config(bundle)["tool"]["flwr"]["app"]["publisher"] == "fedul"


def test_given_the_hubs_rules_then_all_files_of_the_packages_pass_and_are_published(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config, warnings = load_and_validate(ROOT / "pyproject.toml")
    assert warnings == []
    _validate_app_name(config["project"]["name"], "name")
    _validate_description(config["project"]["description"])
    published = filter_paths_for_publish(files)
    _validate_files([Path(str(path)) for path in published.values()])
    assert "Validation passed" in capsys.readouterr().out
    missing = {name for name in files if name.startswith(PACKAGES) and name not in published}
    assert missing <= {"fedul_flwr/py.typed"}  # for type checkers
