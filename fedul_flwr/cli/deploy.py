"""The command line's ``deploy``: Flower's deployment engine for several data owners."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedul_flwr.cli.options import RunConfigs, with_examples
from fedul_flwr.config.user_files import user_path
from fedul_flwr.errors import UserError

Program = Literal["superlink", "supernode"]
Consortium = Annotated[
    Path,
    typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Folder of deploy init."),
]
OwnerName = Annotated[str, typer.Argument(metavar="NAME", help="Of the owner.")]
PublicKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Public key of an owner who has made it.")
]

deploy = typer.Typer(
    no_args_is_help=True,
    help="Set up machines of data owners who work together.",
    **with_examples("fedul-flwr deploy init consortium --address fl.example.org:8000 --owners 3"),
)


@deploy.command(
    **with_examples(
        "fedul-flwr deploy init consortium --address fl.example.org:8000 --owners 3",
        "fedul-flwr deploy init consortium --address 10.0.0.5:8000 --owner north --owner south",
    )
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New folder to write.")],
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Where owners reach the SuperLink."),
    ] = None,
    owners: Annotated[
        int | None, typer.Option(metavar="N", help="Number of data owners: owner-0, owner-1, …")
    ] = None,
    owner: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Instead of --owners, for each: its name."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Further name of the server; may be repeated."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]", help="IP address where the SuperLink listens, behind a proxy."
        ),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Key of an owner who makes it; may be repeated."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The only method owners allow; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(help="Validity of the server's certificate.")] = 365,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys, for trials on made-up data.")
    ] = False,
) -> None:
    """Write certificates, keys and start scripts for a server and its data owners."""
    from fedul_flwr.deploy.init import Options, describe, plan, write

    names, keys, methods = owner or [], public_key or [], method or []
    consortium = plan(
        Options(address, owners, names, also or [], keys, days, insecure, listen, methods)
    )
    directory = user_path(directory)
    certificates = write(consortium, directory)
    for line in describe(consortium, certificates, directory):
        typer.echo(line)


@deploy.command(
    **with_examples(
        "fedul-flwr deploy check --node-config 'data=\"/data/ward\"' -c run.toml",
        "fedul-flwr deploy check --node-config node.toml -c method=fedul --class-names ill,well",
    )
)
def check(
    node_config: Annotated[
        str, typer.Option(metavar="'KEY=VALUE …'|FILE", help="As flower-supernode gets it.")
    ],
    run_config: RunConfigs = None,
    class_names: Annotated[
        str, typer.Option(metavar="A,B,…", help="Classes of the server's data set.")
    ] = "",
    input_shape: Annotated[
        str, typer.Option(metavar="HxWxC", help="Shape of the server's images.")
    ] = "",
) -> None:
    """Check on an owner's machine whether its data fit a run, and what would be sent."""
    from fedul_flwr.config.user_files import parse_overrides
    from fedul_flwr.deploy.check import check_owner

    overrides = parse_overrides(run_config or [])
    for line in check_owner(node_config, overrides, Path.cwd(), class_names, input_shape):
        typer.echo(line)


@deploy.command(
    **with_examples(
        "fedul-flwr deploy columns north south -o columns.json",
        "fedul-flwr deploy columns /data/ward --label-column diagnosis",
        "fedul-flwr deploy columns north.json south.json west.json -o columns.json",
    )
)
def columns(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…|FILE.json…",
            help="Folders of owners with .csv or .parquet, or columns files to merge.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="New file to write.")
    ] = None,
    label_column: Annotated[
        str, typer.Option(metavar="NAME", help="The column of labels, which is left out.")
    ] = "",
) -> None:
    """Propose the columns file for owners' tables, and say which columns it leaves out and why.

    Of columns files: merge them, and list what differs; exit code 1 if a person has to decide.
    """
    import json

    from fedul_flwr.data.safe_files import write_atomically
    from fedul_flwr.deploy.merge_columns import merge_columns
    from fedul_flwr.deploy.propose_columns import propose_columns

    if output is not None and output.exists():
        raise UserError(f"{output} exists: name a new file, or delete it.", "file-exists")
    is_merge = all(path.suffix.lower() == ".json" for path in folders)
    if is_merge and label_column:
        raise UserError("--label-column is for folders of tables.", "option-without-effect")
    merged = merge_columns(folders) if is_merge else None
    proposal = merged or propose_columns(folders, label_column)
    for line in proposal.lines():
        typer.echo(line, err=output is None)
    content = json.dumps(json.loads(proposal.columns.to_json()), indent=1, ensure_ascii=False)
    if output is None:
        typer.echo(content)
    else:
        write_atomically(output, f"{content}\n")
    if merged and merged.undecided:
        raise typer.Exit(1)


@deploy.command(**with_examples("fedul-flwr deploy status consortium"))
def status(directory: Consortium) -> None:
    """List owners with the states of their nodes; the last run, and the certificates' ends.

    In an owner's folder: what the owner has spent of its privacy.
    """
    from rich.table import Table

    from fedul_flwr.deploy.status import OwnerState, spent, state_of_server
    from fedul_flwr.deploy.status import status as states
    from fedul_flwr.results.facts import print_wide

    if (lines := spent(user_path(directory))) is not None:
        _echo(lines)
        return
    _echo(state_of_server(user_path(directory)))  # also where the SuperLink gives no answer
    table = Table(box=None, padding=(0, 2))
    for name in OwnerState._fields:
        table.add_column(name)
    for row in states(user_path(directory)):
        table.add_row(*row)
    print_wide(table)


@deploy.command(**with_examples("fedul-flwr deploy register consortium"))
def register(directory: Consortium) -> None:
    """Let the SuperLink, which must run here, know the owners' keys, and those of nobody else."""
    from fedul_flwr.deploy.members import register

    _echo(register(user_path(directory)))


@deploy.command(**with_examples("fedul-flwr deploy add consortium east"))
def add(directory: Consortium, name: OwnerName, public_key: PublicKey = None) -> None:
    """Add an owner, with a folder to send."""
    from fedul_flwr.deploy.members import add

    _echo(add(user_path(directory), name, public_key and user_path(public_key)))


@deploy.command(**with_examples("fedul-flwr deploy remove consortium west"))
def remove(directory: Consortium, name: OwnerName) -> None:
    """Let an owner take part in nothing any more."""
    from fedul_flwr.deploy.members import remove

    _echo(remove(user_path(directory), name))


@deploy.command(
    **with_examples(
        "fedul-flwr deploy forget consortium west --run runs/first --output runs/without-west"
    )
)
def forget(
    directory: Consortium,
    name: OwnerName,
    run: Annotated[
        Path, typer.Option(metavar="DIR", exists=True, file_okay=False, help="Of the run.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Of the run without the owner.")
    ],
) -> None:
    """Make a model in closed form again, as if it had never had an owner, who is removed."""
    from fedul_flwr.deploy.forget import removed, settings_again
    from fedul_flwr.deploy.init import CONNECTION
    from fedul_flwr.engine.flower_run import run_deployed
    from fedul_flwr.results.facts import print_summary

    again = settings_again(user_path(run), name, user_path(output))
    _echo(removed(user_path(directory), name))
    if (made := run_deployed(again, CONNECTION)) is not None:
        print_summary(made)
    typer.echo(f"Delete {run}, and withdraw what was made of it: {name} is in it.")


@deploy.command(
    **with_examples(
        "fedul-flwr deploy rotate consortium key north",
        "fedul-flwr deploy rotate consortium certificate",
        "fedul-flwr deploy rotate consortium authority",
    )
)
def rotate(
    directory: Consortium,
    what: Annotated[
        Literal["key", "certificate", "authority"],
        typer.Argument(help="An owner's key, the server's certificate, or the authority and it."),
    ],
    owner: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="With key: of the owner.")
    ] = None,
    public_key: PublicKey = None,
) -> None:
    """Replace an owner's key, the server's certificate, or the authority, by a new one."""
    from fedul_flwr.deploy.members import rotate_certificates, rotate_key

    if (what == "key") != (owner is not None) or (public_key and what != "key"):
        raise UserError(
            "deploy rotate needs the owner's NAME with key, and takes it and --public-key with "
            "nothing else.",
            "options-contradict",
        )
    root = user_path(directory)
    if owner is not None:
        _echo(rotate_key(root, owner, public_key and user_path(public_key)))
    else:
        _echo(rotate_certificates(root, authority=what == "authority"))


@deploy.command(**with_examples("fedul-flwr deploy backup consortium -o monday.tar.gz"))
def backup(
    directory: Consortium,
    output: Annotated[Path, typer.Option("--output", "-o", help="New .tar.gz to write.")],
) -> None:
    """Copy the server's folder, with its database and keys, into one file."""
    from fedul_flwr.deploy.status import backup

    backup(user_path(directory), user_path(output))
    typer.echo(f"Written: {output}. It holds the server's key: keep it as secret.")


runs = typer.Typer(
    no_args_is_help=True,
    help="On an owner's machine: decide on runs, where the owner approves each by itself.",
    **with_examples("fedul-flwr deploy runs list owners/north"),
)
deploy.add_typer(runs, name="runs")
OwnFolder = Annotated[
    Path,
    typer.Argument(metavar="DIR", exists=True, help="The owner's folder, or its node config.toml."),
]
RunDigest = Annotated[
    str, typer.Argument(metavar="DIGEST", help="Of a run, or how it begins; list has them.")
]


@runs.command("list", **with_examples("fedul-flwr deploy runs list owners/north"))
def list_runs(directory: OwnFolder) -> None:
    """List the runs that the server has asked for, and what was decided."""
    from fedul_flwr.deploy.runs import approvals_of, listed

    _echo(listed(approvals_of(user_path(directory))))


@runs.command(**with_examples("fedul-flwr deploy runs show owners/north 3fa9"))
def show(
    directory: OwnFolder,
    digest: RunDigest,
    whole: Annotated[
        bool, typer.Option("--all", help="Also all settings, the setup, digests of the code.")
    ] = False,
) -> None:
    """Show a run: purpose, what would leave, who takes part, and changes since the last one."""
    from fedul_flwr.deploy.runs import approvals_of, shown

    _echo(shown(approvals_of(user_path(directory)), digest, whole=whole))


@runs.command(
    **with_examples("fedul-flwr deploy runs approve owners/north 3fa9 --until 2027-01-31")
)
def approve(
    directory: OwnFolder,
    digest: RunDigest,
    until: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day; without it, no end.")
    ] = None,
) -> None:
    """Let this client take part in a run, and in others that are the same in all that is shown."""
    from fedul_flwr.deploy.runs import approvals_of, decide

    day = until.date() if until else None
    _echo(decide(approvals_of(user_path(directory)), digest, "approved", until=day))


Because = Annotated[str, typer.Option("--because", help="Reason, which the server gets, too.")]


@runs.command(**with_examples("fedul-flwr deploy runs refuse owners/north 3fa9 --because holidays"))
def refuse(directory: OwnFolder, digest: RunDigest, because: Because = "") -> None:
    """Take no part in a run."""
    from fedul_flwr.deploy.runs import approvals_of, decide

    _echo(decide(approvals_of(user_path(directory)), digest, "refused", because=because))


@runs.command(**with_examples("fedul-flwr deploy runs withdraw owners/north 3fa9"))
def withdraw(directory: OwnFolder, digest: RunDigest, because: Because = "") -> None:
    """End this client's part in a run, at the next message."""
    from fedul_flwr.deploy.runs import approvals_of, decide

    _echo(decide(approvals_of(user_path(directory)), digest, "withdrawn", because=because))


@runs.command(
    **with_examples(
        "fedul-flwr deploy runs regroup owners/north",
        "fedul-flwr deploy runs regroup owners/north --without west.json",
    )
)
def regroup(
    directory: OwnFolder,
    without: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, help="Only without the owner who signed it."),
    ] = None,
) -> None:
    """Let the next secure sums be over another group of owners, and say what that can tell."""
    from fedul_flwr.deploy.runs import approvals_of, regrouped

    _echo(regrouped(approvals_of(user_path(directory)), without and user_path(without)))


@runs.command(**with_examples("fedul-flwr deploy runs leave owners/west -o west.json"))
def leave(
    directory: OwnFolder,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="New file.")],
) -> None:
    """Sign that the others may be summed without this owner, and say what that tells of it."""
    from fedul_flwr.deploy.runs import approvals_of
    from fedul_flwr.deploy.runs import leave as signed

    _echo(signed(approvals_of(user_path(directory)), user_path(output)))


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


@deploy.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    **with_examples("fedul-flwr deploy start superlink --host 127.0.0.1 --port 8000"),
)
def start(
    context: typer.Context,
    program: Annotated[Program, typer.Argument(help="Which of Flower's two programs.")],
    runs_from_anywhere: Annotated[
        bool,
        typer.Option("--runs-from-anywhere", help="Let everybody who reaches it start runs."),
    ] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Of its lines and those of its processes.")
    ] = "text",
    metrics: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where Prometheus gets figures of the last run."),
    ] = "",
) -> None:
    """Start a SuperLink or SuperNode that takes orders from this user alone.

    Further options are those of flower-superlink or flower-supernode.
    """
    from fedul_flwr.deploy.start import start

    start(
        program,
        context.args,
        runs_from_anywhere=runs_from_anywhere,
        log_format=log_format,
        metrics=metrics,
    )
