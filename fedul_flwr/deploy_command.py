"""The command line's ``deploy``: Flower's deployment engine for several data owners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.command_options import RunConfigs
from fedul_flwr.errors import UserError

deploy = typer.Typer(no_args_is_help=True, help="Set up machines of data owners who work together.")


@deploy.command()
def check(
    node_config: Annotated[
        str, typer.Option(metavar="'KEY=VALUE …'|FILE.toml", help="As flower-supernode gets it.")
    ],
    run_config: RunConfigs = None,
    class_names: Annotated[
        str, typer.Option(metavar="A,B,…", help="Classes of the server's data set.")
    ] = "",
    image_shape: Annotated[
        str, typer.Option(metavar="HxWxC", help="Shape of the server's images.")
    ] = "",
) -> None:
    """On an owner's machine: see whether its data fit a run, and what would be sent."""
    from fedul_flwr.deploy.check import check_owner
    from fedul_flwr.overrides import parse_overrides

    try:
        overrides = parse_overrides(run_config or [])
        for line in check_owner(node_config, overrides, Path.cwd(), class_names, image_shape):
            typer.echo(line)
    except UserError as error:
        typer.echo(f"{error.refusal}: {error}", err=True)
        raise typer.Exit(1) from None
