"""The one exception for what a user can put right."""


class UserError(Exception):
    """Bad input, a refused setting or data that cannot be used.

    The message is one sentence that names the thing and what is allowed. The command line prints
    it without a traceback and ends with a non-zero exit code.
    """


class BadMessageError(UserError):
    """A message that cannot be used: whoever sent it has failed, and perhaps nobody else.

    The sentence says what is wrong with the message's form, and none of its values.
    """


class NoUpdateError(UserError):
    """A round in which no client sent an update that can be combined."""
