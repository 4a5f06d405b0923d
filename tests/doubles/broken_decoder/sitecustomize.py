"""Put first on PYTHONPATH: an image decoder that a certain image (KILLS pixels wide) ends together with its process, as a
fault in a native decoder does, and in which another (HANGS pixels wide) never comes to an end. Only in the actors."""

import signal
import sys
import threading
import time
from typing import Any

KILLS, HANGS = 131, 133

if "--multiprocessing-fork" in sys.orig_argv:
    from PIL import ImageFile

    load = ImageFile.ImageFile.load

    def broken(self: Any) -> Any:
        if self.size[0] == HANGS:
            time.sleep(3600)
        if self.size[0] == KILLS:
            signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)
        return load(self)

    ImageFile.ImageFile.load = broken  # type: ignore[method-assign]
