"""An owner's log of what its client was asked, and what left.

The client app writes it on the owner's machine, if the node config names a file (`log`): a line for
every message, added before the answer is sent. The server has no part in it. It has sizes and the
words of the declarations, and no value of an answer.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedul_flwr.data.csv_files import write_cell
from fedul_flwr.data.safe_files import require_regular_file
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client_data import ClientState, settings_from
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import (
    CONFIG,
    END,
    SETTINGS,
    SETUP,
    item_sizes,
    payload_bytes,
    phase_of,
    printable,
)
from fedul_flwr.federated.payload import Parts, part_of

COLUMNS = (
    *("time", "run", "client", "method", "settings", "message", "round"),
    *("bytes_received", "bytes_sent", "sent", "outcome"),
)
"""Columns of the file. `settings` is the SHA-256 of the run's settings (:func:`settings_digest`),
`sent` what was in the answer, for whom, and how large it is."""
ANSWERED = "answered"
_LONGEST = 5000
"""Most characters of a cell."""


def settings_digest(flat: Mapping[str, Any]) -> str:
    """SHA-256 of a run's settings, in hexadecimal digits.

    Parameters
    ----------
    flat : all settings by name. `resume` does not count: it says how a run came to go on.
    """
    counted = {key: value for key, value in flat.items() if key != "resume"}
    return sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def refuse_unwritable(path: Path) -> None:
    """Raise an OwnDataError if the log cannot be written; it is not created."""
    try:
        require_regular_file(path)
        target = path if path.exists() else path.parent
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(path, error) from None


def answer_with_log(
    path: Path, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """The answer to a message, after a line about it was added to the owner's log.

    Without the line the answer is not sent.
    """
    line, flat = _asked(message, context)
    try:
        reply = call_next(message, context)
    except Exception as error:
        _add(path, {**line, "outcome": f"not answered: {printable(str(error))}"})
        raise
    phase = str(line["message"])
    # Now that the client has answered, the owner's limits allow the modules that these name.
    parts = declared(settings_from(json.dumps(flat, sort_keys=True))).get(phase, {})
    content = reply.content if reply.has_content() else RecordDict()
    line |= {"bytes_sent": payload_bytes(content), "outcome": line["outcome"] or ANSWERED}
    _add(path, {**line, "sent": "; ".join(_in_words(content, parts))})
    return reply


def _asked(message: Message, context: Context) -> tuple[dict[str, object], dict[str, Any]]:
    """The line of a message before it is answered, and the flat settings of the run.

    Nothing that these name is imported here: the client checks first whether its owner allows it.
    """
    config = dict(message.content.config_records.get(CONFIG) or {})
    kind = phase_of(message) or message.metadata.message_type
    settings = ClientState(context.state).values(SETUP).get(SETTINGS)
    text = config.get(SETTINGS) if kind == SETUP else settings
    flat: dict[str, Any] = {} if text else dict(context.run_config)
    with contextlib.suppress(ValueError, TypeError):  # the client refuses what cannot be read
        flat = flat or dict(json.loads(str(text)))
    number, end = config.get("server-round", ""), str(config.get(END, "ended"))
    line: dict[str, object] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": context.run_id,
        "client": context.node_config.get("partition-id", 0),
        "method": flat.get("method", ""),
        "settings": settings_digest(flat) if text else "",
        "message": kind,
        "round": f"{int(number)} of {flat.get('num-rounds')}" if isinstance(number, int) else "",
        "bytes_received": payload_bytes(message.content),
        "bytes_sent": 0,
        "sent": "",
        "outcome": f"the run has {end}" if kind == END else "",
    }
    return line, flat


def _in_words(content: RecordDict, parts: Parts) -> Iterator[str]:
    """What an answer contains, as it is declared, to whom, and its bytes."""
    sizes: Counter[str] = Counter()
    for record, name, size in item_sizes(content):
        part = part_of(parts, record, name)
        assert part is not None  # the client sends nothing that is not declared
        sizes[f"{part.says}, to {part.reader}"] += size
    yield from (f"{what} ({size} bytes)" for what, size in sizes.items())


def _add(path: Path, line: Mapping[str, object]) -> None:
    """Add a line to the log, which only its owner can read, and wait until it is on the disk."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    try:
        require_regular_file(path)
        path.touch(mode=0o600)
        with path.open("ab") as file:
            if not os.fstat(file.fileno()).st_size:
                writer.writerow(COLUMNS)
            writer.writerow([write_cell(printable(str(line[name]), _LONGEST)) for name in COLUMNS])
            file.write(text.getvalue().encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        print(_unwritable(path, error), file=sys.stderr, flush=True)
        raise UserError(
            "The client cannot write its owner's log; its own log says why.", "file-not-writable"
        ) from error


def say_here(client: object, error: BaseException) -> None:
    """Print on the owner's machine alone why a client has nothing to send."""
    sender = f"Client {client}" if isinstance(client, int) else "A client"
    print(f"{sender}: {error}", file=sys.stderr, flush=True)


def note_decision(path: Path, digest: str, words: str) -> None:
    """Add a line about an owner's decision on a run to the log: its digest stands in `settings`."""
    line = dict.fromkeys(COLUMNS, "")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _add(path, {**line, "time": now, "settings": digest, "message": "decision", "outcome": words})


def _unwritable(path: Path, error: OSError) -> OwnDataError:
    return OwnDataError(
        f"Node config log = {str(path)!r} cannot be written: {error.strerror or error}.",
        "file-not-writable",
    )
