"""What an owner has spent, in its folder of ``deploy init``."""

from pathlib import Path

from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger


def test_status_of_an_owners_folder_says_what_is_spent(tmp_path: Path) -> None:
    (tmp_path / "node.env").write_text(f"# of a ward\nDATA='{tmp_path / 'ward'}'\nLOG=''\n")
    run = CliRunner().invoke(app, ["deploy", "status", str(tmp_path)])
    assert (run.exit_code, run.output.count("\n")) == (0, 1)
    ledger = Ledger(tmp_path / "ward.ledger" / LEDGER)
    ledger.spend("updates", 1.0, 0)
    ledger.spend("codes", 0.25, 0)
    run = CliRunner().invoke(app, ["deploy", "status", str(tmp_path)])
    assert run.output.splitlines() == ledger.spent()
