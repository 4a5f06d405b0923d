"""Queues: one inbox and one outbox for each start of an actor, over `multiprocessing` pipes.

Bounded, one producer, one consumer, never reused: a process killed at any moment shows as an end of file on its own
outbox, and no lock or half-written message can be left behind for anybody else. The supervisor's ends never block.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from supervisor.clock import Clock
from supervisor.marks import MarkReader, MarkWriter
from supervisor.wire import Codec, FrameBuffer

CREDIT = 4
"""Messages sent and not yet received; a pipe takes 16 frames of the largest size before it refuses."""
READ_BYTES = 65536
"""A pipe that gives fewer is empty, or its writer writes again and it becomes readable again."""


class Outgoing:
    """The supervisor's end of a child's inbox: keeps what the child has no credit for yet."""

    def __init__(self, connection: Connection, codec: Codec, marks: MarkReader, clock: Clock) -> None:
        self._connection, self._codec, self._marks, self._clock = connection, codec, marks, clock
        os.set_blocking(connection.fileno(), False)
        self._waiting: deque[bytes] = deque()
        self._sent = 0
        self._stuck_since: float | None = None
        self.closed = False

    def put(self, message: Any) -> None:
        """Queue `message`; it leaves as soon as the child has credit. After the child's death it goes nowhere."""
        self._waiting.append(self._codec.encode(message))
        self.flush()

    def flush(self) -> None:
        """Send what there is credit for."""
        while self._waiting and not self.closed and self.in_flight < CREDIT:
            try:
                os.write(self._connection.fileno(), self._waiting[0])
            except BlockingIOError:
                break
            except BrokenPipeError:
                self.closed = True
                return
            self._waiting.popleft()
            self._sent += 1
        if not self._waiting:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self._clock.now()

    @property
    def in_flight(self) -> int:
        return self._sent - self._marks.received

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def depth(self) -> int:
        return len(self._waiting)

    def stuck_s(self) -> float:
        """How long a message has been waiting for credit, in seconds."""
        return 0.0 if self._stuck_since is None else self._clock.age(self._stuck_since)

    def close(self) -> None:
        self.closed = True
        self._connection.close()


class Incoming:
    """The supervisor's end of a child's outbox."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection, self._codec = connection, codec
        os.set_blocking(connection.fileno(), False)
        self._frames = FrameBuffer()
        self.received = 0
        self.ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def take(self) -> list[Any]:
        """Every message that is complete by now; sets `ended` at end of file.

        Raises:
            FrameError: the child wrote something that is no message (its process can no longer be trusted).
        """
        messages = []
        while not self.ended:
            try:
                data = os.read(self._connection.fileno(), READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.ended = True
                break
            messages += [self._codec.decode(payload) for payload in self._frames.feed(data)]
            if len(data) < READ_BYTES:
                break
        self.received += len(messages)
        return messages

    @property
    def torn(self) -> bool:
        return self._frames.torn

    def close(self) -> None:
        self.ended = True
        self._connection.close()


class Channel:
    """The child's side of both queues. `send` may be called from any thread; the others from one."""

    def __init__(self, inbox: Connection, outbox: Connection, codec: Codec, marks: MarkWriter) -> None:
        self._inbox, self._outbox, self._codec, self.marks = inbox, outbox, codec, marks
        os.set_blocking(inbox.fileno(), False)
        os.set_blocking(outbox.fileno(), True)
        self._frames = FrameBuffer()
        self._ready: deque[Any] = deque()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(inbox.fileno(), selectors.EVENT_READ)

    def fileno(self) -> int:
        """The inbox's descriptor, for an event loop; call `take` when it is readable."""
        return self._inbox.fileno()

    def send(self, message: Any) -> None:
        """Write one message before returning, so that what follows may hang without losing it."""
        frame = self._codec.encode(message)
        with self._lock:
            os.write(self._outbox.fileno(), frame)

    def take(self) -> list[Any]:
        """Every message that has arrived, without waiting.

        Raises:
            EOFError: the supervisor is gone or has closed the queue.
        """
        while True:
            try:
                data = os.read(self._inbox.fileno(), READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                if self._ready:
                    break
                raise EOFError("the supervisor closed the inbox")
            payloads = self._frames.feed(data)
            self._ready.extend(self._codec.decode(p) for p in payloads)
            if len(data) < READ_BYTES:
                break
        messages = list(self._ready)
        self._ready.clear()
        self.marks.received(len(messages))
        return messages

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the inbox is readable; false after `timeout_s`."""
        return bool(self._selector.select(timeout_s))
