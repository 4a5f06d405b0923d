"""Pages on their way out: handed to the uploader, stored, or lost to the store.

Owns the bound on what waits for the store, and the verdict that the store is down.
"""

from __future__ import annotations

from pathlib import Path

from actors.messages import Upload, Uploaded, UploadFailed, UploadStarted
from batchpod.errors import Cause, Transient
from batchpod.flow.ledger import FINISHED, Page, State
from batchpod.flow.register import Register
from batchpod.services import Service
from batchpod.settings.config import Config
from batchpod.verdict import Trouble
from supervisor.events import Events

STORE_S = 600.0
"""A page that is checked and stored for longer hangs: a store that answers late or never is given up earlier."""
STORE_FAILURES = 5
STORE_HANGS = 2


class Outlet:
    def __init__(self, config: Config, events: Events, uploader: Service, register: Register) -> None:
        self._config, self._events, self._uploader, self._register = config, events, uploader, register
        self._store_failures = 0
        self._hangs: dict[int, int] = {}
        self._backlog_said = False

    @property
    def backlog_bytes(self) -> int:
        """Exported files that wait for the store."""
        return sum(page.exported_bytes for page in self._register.ledger.each(State.EXPORTED, State.UPLOADING))

    def full(self) -> bool:
        """Whether so much waits for the store that nothing more should be made for now; said the first time."""
        most = self._config.upload_backlog_bytes
        full = self.backlog_bytes >= most
        if full and not self._backlog_said:
            self._backlog_said = True
            text = f"{most} bytes wait for upload, no page goes to the GPU until some are stored"
            self._register.say(f"WARNING the store is slow: {text}")
        return full

    def upload(self, page: Page) -> None:
        self._uploader.send(Upload(page.number, page.directory, page.width, page.height))

    def hear(self, message: object) -> None:
        """Take what the uploader says of pages.

        Raises:
            Transient: five pages in a row were lost to the store.
        """
        match message:
            case UploadStarted(page=number):
                self._begun(number)
            case Uploaded(page=number, lines=lines, seconds=seconds):
                if (page := self._begun(number)) is not None:
                    page.upload_s, page.lines, page.exported_bytes = seconds, lines, 0
                    self._store_failures = 0
                    self._register.ok(page)
            case UploadFailed():
                self._failed(message)

    def _begun(self, number: int) -> Page | None:
        page = self._register.expected(number, State.EXPORTED, State.UPLOADING)
        if page is not None and page.state is State.EXPORTED:
            self._register.ledger.move(number, State.UPLOADING, "", "uploader")
        return page

    def _failed(self, message: UploadFailed) -> None:
        page = self._register.expected(message.page, State.UPLOADING, State.EXPORTED)
        if page is None:
            return
        page.exported_bytes = 0
        if message.outcome == State.FAILED:
            self._register.fail(page.number, message.reason, Trouble.TEXT_LOST if message.text_lost else None)
            return
        self._register.defer(page.number, message.reason, Trouble.STORE if message.store else None)
        self._store_failures += message.store
        if self._store_failures >= STORE_FAILURES:
            text = f"{STORE_FAILURES} pages in a row could not be stored, the last because: {message.reason}"
            raise Transient("stream", text, Cause.STORE_DOWN)

    def died(self, stuck: int | None) -> None:
        """The uploader is gone; a page is stored again if it was not said to be stored. One at which it was `stuck`
        fails the second time."""
        ledger = self._register.ledger
        if stuck is not None and ledger[stuck].state is State.UPLOADING:
            self._hangs[stuck] = self._hangs.get(stuck, 0) + 1
            if self._hangs[stuck] >= STORE_HANGS:
                ledger[stuck].exported_bytes = 0
                self._register.fail(stuck, f"its export made no progress for {STORE_S:g} s, {STORE_HANGS} times")
        for number in ledger.numbers(State.UPLOADING):
            ledger.move(number, State.EXPORTED, "the uploader died")
        if waiting := ledger.count(State.EXPORTED):
            self._events.note("requeue", f"{waiting} pages are stored again after the uploader's death")
        for page in ledger.each(*FINISHED):
            _discard(page)

    def again(self) -> None:
        """There is a new uploader: it gets everything that is exported."""
        for page in self._register.ledger.each(State.EXPORTED):
            self.upload(page)


def _discard(page: Page) -> None:
    """Unlink the files of a finished page: an uploader that dies may have told its outcome and no more."""
    if page.directory:
        for path in Path(page.directory).glob(f"{page.name}.*"):
            path.unlink(missing_ok=True)
        page.directory = ""
