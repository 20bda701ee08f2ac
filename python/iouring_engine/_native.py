"""Finds the shared library, loads it, and turns its results into values and exceptions.

It is looked for in this order: the file that the variable IOURING_ENGINE_LIBRARY names, this package's folder, the
loader's own path. A call's detail is read right behind the call, on the same thread, as the C API asks.
"""

import ctypes
import os

from . import errors
from ._signatures import FUNCTIONS

_NAMES = ("libiouring_engine.so.0", "libiouring_engine.so")


def _candidates():
    named = os.environ.get("IOURING_ENGINE_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, name) for name in _NAMES]
    return [path for path in beside if os.path.exists(path)] + list(_NAMES)


def _load():
    tried = []
    for candidate in _candidates():
        try:
            loaded = ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"{candidate}: {error}")
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
        return loaded
    raise ImportError(
        "libiouring_engine.so can't be loaded. Build it with `cargo build --release` and name it in the variable "
        "IOURING_ENGINE_LIBRARY, or put it beside this package. Tried: " + "; ".join(tried)
    )


lib = _load()


def version():
    """The version of the library that was loaded."""
    return lib.ioe_version().decode()


def failure(code):
    """The exception for a call that has just returned `code` on this thread."""
    text = lib.ioe_strerror(code).decode(errors="replace")
    detail = lib.ioe_last_error().decode(errors="replace")
    return errors.from_code(code, f"{text}: {detail}" if detail else text)


def check(code):
    """The result of a call, or its exception."""
    if code < 0:
        raise failure(code)
    return code


def data(value, what):
    """A bytes-like object as bytes. Text is refused: only the caller knows its encoding."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        raise TypeError(f"{what} must be bytes-like, not str: encode it first, as in {what}.encode()")
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"{what} must be bytes-like, not {type(value).__name__}") from None


def path(value):
    """A file system path as the C API takes it."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("a path can't hold NUL bytes")
    return encoded


def fill_options(options, given, choices):
    """Sets keyword arguments in an options struct; `choices` has the names that stand for numbers, by field."""
    known = {name for name, _ in options._fields_} - {"size", "ring"}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are: {', '.join(sorted(known))}")
        if isinstance(value, str):
            try:
                value = choices[name][value.lower()]
            except KeyError:
                allowed = ", ".join(choices.get(name, {})) or "a number"
                raise ValueError(f"{name} can't be {value!r}; it is one of: {allowed}") from None
        setattr(options, name, int(value))
    return options


DRIVERS = {"auto": 0, "uring": 1, "posix": 2}
SYNCS = {"auto": 0, "linked": 1, "dsync": 2, "syscall": 3}
LEVELS = {"durable": 0, "buffered": 1, "volatile": 2}
COMPRESSIONS = {"none": 0, "lz4": 1, "zstd": 2}
