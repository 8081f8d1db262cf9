"""The one sentence that a refused command prints."""


def error_line(output: str) -> str:
    """The only line of an error; it is said once, and no traceback is beside it."""
    assert "Traceback" not in output
    errors = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, output
    return errors[0]
