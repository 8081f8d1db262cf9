"""What an error is about, without its words: ``with refuses("unknown-name", name="x"): …``."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedul_flwr.errors import UserError


@contextmanager
def refuses(
    code: str, kind: type[UserError] = UserError, match: str | None = None, **values: object
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """The block raises an error of this class and code, and with these values among its own.

    ``match`` is a word of its sentence, where other rules have the same code.
    """
    with pytest.raises(kind, match=match) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"{error.with_code}"
    assert {key: error.values.get(key) for key in values} == values, f"{error}: {error.values}"


def code_of(output: str) -> str:
    """The code of the only error that a command has printed; it prints no traceback."""
    assert "Traceback" not in output
    codes = re.findall(r" \[([a-z0-9-]+)\]$", output, re.MULTILINE)
    assert output.count("Error: ") == len(codes) == 1, output
    return str(codes[0])
