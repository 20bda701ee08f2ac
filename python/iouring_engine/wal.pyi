import builtins
from types import TracebackType
from typing import Any, Callable, Literal, NamedTuple, Union

from .store import Bytes, Path

class Event(NamedTuple):
    sequence: int
    user_data: int
    result: int

class Recovery(NamedTuple):
    records: int
    bytes: int
    first_sequence: int
    last_sequence: int
    segments: int
    proven_through: int
    unproven_records: int
    unproven_bytes: int
    torn_bytes: int
    torn: int
    sealed: int
    possible_damage: int
    damages: int
    damaged_bytes: int

def open_wal(
    path: Path,
    *,
    driver: Union[Literal["auto", "uring", "posix"], int] = ...,
    segment_bytes: int = ...,
    checkpoint_every: int = ...,
    sync: Union[Literal["auto", "linked", "dsync", "syscall"], int] = ...,
    seal_after_ms: int = ...,
    direct: bool = ...,
) -> Wal: ...
def recover(
    path: Path, deliver: Callable[[int, builtins.bytes], Any], salvage: bool = ...
) -> Recovery | None: ...

class Wal:
    def __init__(self, handle: int) -> None: ...
    def append(self, record: Bytes, user_data: int = ...) -> int: ...
    def submit(self) -> None: ...
    def reap(self, max_events: int = ..., min_complete: int = ..., timeout: float | None = ...) -> list[Event]: ...
    def write(self, record: Bytes) -> int: ...
    def fileno(self) -> int: ...
    def release(self, up_to_sequence: int) -> None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Wal: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
