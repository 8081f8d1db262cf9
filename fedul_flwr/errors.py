"""The one exception for what a user can put right."""


class UserError(Exception):
    """Bad input, a refused setting or data that cannot be used.

    The message is one sentence that names the thing and what is allowed. Command line and server app
    print it without a traceback and end with a non-zero exit code.
    """
