"""`python -m tools.origin FOLDER`: run the origin until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal

from tools.origin.server import Origin


async def serve(arguments: argparse.Namespace) -> None:
    origin = Origin(
        arguments.folder, pages=arguments.pages, service=not arguments.files, level=arguments.level,
        host=arguments.host, port=arguments.port,
    )  # fmt: skip
    await origin.start()
    print(origin.manifest_url, flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await origin.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.origin", description="Serve images as IIIF.")
    parser.add_argument("folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--pages", type=int, help="repeat or cut the images to so many pages")
    parser.add_argument("--level", type=int, default=2, choices=(0, 2), help="of the image service")
    parser.add_argument("--files", action="store_true", help="bare file URLs, no image service")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
