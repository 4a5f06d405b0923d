"""Whether the model Hub answers at all, asked once before a warm-up loads anything.

huggingface_hub makes six tries of every request, each with a timeout and a pause, and a pipeline makes many requests:
where a network policy swallows them all, a warm-up would last until its Job's deadline and then say nothing.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from actors.redact import for_log

TRIES = 2
ANSWER_S = 10.0
PAUSE_S = 1.0


def unreached() -> str | None:
    """Why the Hub cannot be reached, and huggingface_hub then uses its cache alone; None when it answers.

    Also None where only huggingface_hub itself can tell: through a proxy, or by its own list of certificates.
    """
    if importlib.util.find_spec("huggingface_hub") is None or {"http", "https", "all"} & set(urllib.request.getproxies()):
        return None
    constants: Any = importlib.import_module("huggingface_hub.constants")
    why = _silence(constants.ENDPOINT)
    for _ in range(TRIES - 1):
        if why is not None:
            time.sleep(PAUSE_S)
            why = _silence(constants.ENDPOINT)
    if why is None:
        return None
    constants.HF_HUB_OFFLINE = True  # Read at each request, and by transformers when it is imported.
    return f"the Hub at {for_log(constants.ENDPOINT)} cannot be reached ({why})"


def _silence(endpoint: str) -> str | None:
    """Why no answer comes from `endpoint`; None when one does, whatever it is."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=ANSWER_S):
            return None
    except (urllib.error.HTTPError, http.client.HTTPException, ValueError):
        return None
    except TimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except OSError as e:
        cause = e.reason if isinstance(e, urllib.error.URLError) else e
        if isinstance(cause, TimeoutError):
            return f"no answer within {ANSWER_S:g} s"
        return None if isinstance(cause, ssl.SSLError) else str(cause)
