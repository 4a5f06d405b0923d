"""A IIIF origin that can be told to misbehave: serves a folder of images, for the demo and for every whole-run test.

By hand::

    python -m tools.origin FOLDER --port 8080         # prints the manifest's URL on its first line
    curl -X POST 'http://127.0.0.1:8080/faults?target=3&verb=status&status=503&times=2'
    curl -X DELETE http://127.0.0.1:8080/faults
    curl http://127.0.0.1:8080/requests               # what was asked, as JSON

From a test::

    with running_origin(folder, faults={2: status(404), 5: [status(503, times=1), html()]}) as origin:
        run(origin.manifest_url)
        assert origin.asked(2) == 1
        origin.fault(7, silent())

Routes: `/manifest.json` and `/iiif/<any volume>/manifest.json` (Presentation 3), `manifest2.json` beside each
(Presentation 2), `/iiif/<image>/info.json`, `/iiif/<image>/full/{max|full|w,|w,h}/0/default.jpg`,
`/files/<image>` (the file's own bytes). A fault's target is a page number, an image name, `manifest`,
`images` (every page, each with a count of its own) or `*`; see faults.py for the verbs.
"""

from tools.origin.faults import (
    Fault,
    bomb,
    chain,
    delay,
    drip,
    encoded,
    endless,
    headers,
    html,
    limit,
    loop,
    redirect,
    reset,
    short,
    silent,
    stall,
    status,
    typed,
)
from tools.origin.server import Asked, Origin, running_origin

__all__ = [
    "Asked", "Fault", "Origin", "bomb", "chain", "delay", "drip", "encoded", "endless", "headers", "html",
    "limit", "loop", "redirect", "reset", "running_origin", "short", "silent", "stall", "status", "typed",
]  # fmt: skip
