"""The program of a run on Ray: ``python -m fedul_flwr.engine.ray_program``.

It reads its order, a line of JSON, from its standard input, and ends when that is closed: when the
command that has started it ends, however it does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from dataclasses import replace
from logging import ERROR
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.flower_simulation import MARK, REASON, end_marked
from fedul_flwr.engine.shell import plain_log
from fedul_flwr.errors import UserError
from fedul_flwr.federated.owner.door import build_client, make_client_app
from fedul_flwr.server_app import serve


def _end_with_the_command(home: Path) -> None:
    sys.stdin.read()
    end_marked(home, 0.0)  # who resumes the run must not wait for Ray
    os._exit(1)


def main() -> None:
    """Carry out the order; a failure leaves its reason in the folder of the simulation."""
    home = Path(os.environ[MARK])
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_command, args=(home,), daemon=True).start()
    plain_log()
    settings = order["settings"]
    server_app = ServerApp()

    @server_app.main()
    def serve_run(grid: Grid, context: Context) -> None:
        del context  # it has no settings
        serve(grid, resolve(settings, home))

    def with_settings(message: Message, context: Context, answer: ClientAppCallable) -> Message:
        plain_log()
        return answer(message, replace(context, run_config=settings))

    code = 1
    try:
        run_simulation(
            server_app,
            make_client_app(build_client, mods=[with_settings]),
            order["clients"],
            backend_config={"client_resources": order["each"]},
        )
        code = 0
    except UserError as error:
        log(ERROR, "%s", error)
        (home / REASON).write_text(str(error), encoding="utf-8")
    except BaseException as error:
        traceback.print_exc()
        first = error
        while first.__cause__ is not None:
            first = first.__cause__
        (home / REASON).write_text(f"{type(first).__name__}: {first}", encoding="utf-8")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the server app may still wait in its thread


if __name__ == "__main__":
    main()
