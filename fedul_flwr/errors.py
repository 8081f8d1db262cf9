"""The one exception for what a user can put right."""


class UserError(Exception):
    """Bad input, a refused setting or data that cannot be used.

    The message is one sentence that names the thing and what is allowed. The command line prints
    it without a traceback and ends with a non-zero exit code.
    """
