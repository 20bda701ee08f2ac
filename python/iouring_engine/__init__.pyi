from .errors import BusyError as BusyError
from .errors import ClosedError as ClosedError
from .errors import CorruptionError as CorruptionError
from .errors import Error as Error
from .errors import IndeterminateError as IndeterminateError
from .errors import PoisonedError as PoisonedError
from .errors import SystemFailure as SystemFailure
from .errors import TooLargeError as TooLargeError
from .errors import UnsupportedError as UnsupportedError
from .store import Store as Store
from .store import WriteBatch as WriteBatch
from .store import open as open
from .wal import Event as Event
from .wal import Recovery as Recovery
from .wal import Wal as Wal
from .wal import open_wal as open_wal
from .wal import recover as recover

__all__: list[str]

def version() -> str: ...
