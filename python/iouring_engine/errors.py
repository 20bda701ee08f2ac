"""The exceptions, and how a code of the C API becomes one.

`Error` is the base of them all and has the numeric `code`. What the system refused is a `SystemFailure`, which is an
OSError with its `errno` too. A missing key is a KeyError, as with a dict, and not an `Error`.
"""

import errno as _errno
import os as _os

NOT_FOUND = -10001
CORRUPT = -10002
POISONED = -10003
INDETERMINATE = -10004
BUSY = -10005
STALE = -10006
CLOSED = -10007
TOO_SMALL = -10008
UNSUPPORTED = -10009
VERSION = -10010
CANCELLED = -10012
STALLED = -10013
TOO_LARGE = -10015


class Error(Exception):
    """Anything that the library refused; `code` is the number of the C API."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


class CorruptionError(Error):
    """Stored bytes fail their check; the message names file and offset."""


class BusyError(Error):
    """Open elsewhere, or something on it is still open."""


class ClosedError(Error):
    """The object was closed."""


class PoisonedError(Error):
    """An earlier write failed: reads work, reopen to write."""


class IndeterminateError(Error):
    """This write may or may not be durable."""


class UnsupportedError(Error):
    """This kernel, file system or driver can't; the message says why."""


class TooLargeError(Error, ValueError):
    """Can never fit a limit: a key over 65,535 bytes, a value over 1 GiB."""


class SystemFailure(Error, OSError):
    """What the system refused: an OSError with its errno."""

    def __init__(self, message, code):
        Error.__init__(self, message, code)
        self.errno = -code
        self.strerror = message

    def __str__(self):
        return f"[Errno {self.errno}] {self.strerror}"


_CLASSES = {
    CORRUPT: CorruptionError,
    POISONED: PoisonedError,
    INDETERMINATE: IndeterminateError,
    BUSY: BusyError,
    STALE: ClosedError,
    CLOSED: ClosedError,
    UNSUPPORTED: UnsupportedError,
    VERSION: UnsupportedError,
    TOO_LARGE: TooLargeError,
}


def from_code(code, message):
    """The exception for a negative code, not raised yet."""
    if code > -4096:
        return SystemFailure(message or _os.strerror(-code), code)
    return _CLASSES.get(code, Error)(message, code)


def interrupted(code):
    """Whether a wait was cut short by a signal, whose handler Python runs before the next try."""
    return code == -_errno.EINTR
