"""A question that a stage puts to the fetcher or the uploader, and its answer, whichever process gives it.

One at a time: a stage waits for its answer. An actor that dies meanwhile is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from actors.messages import (
    Cleared,
    Published,
    SourceFailed,
    SourcePut,
    SourceRead,
    StoredListed,
    StoredVerified,
    StoreFailed,
)
from batchpod.errors import Cause, Permanent, Transient
from batchpod.services import Service

T = TypeVar("T")
ANSWERS = SourceRead | SourceFailed | SourcePut | StoredListed | Cleared | StoredVerified | Published | StoreFailed


@dataclass(slots=True)
class Question:
    service: Service
    request: object
    answer: type[Any]
    got: Any = None


class Questions:
    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._asked: Question | None = None

    def put(self, service: Service, request: object, answer: type[Any]) -> None:
        """Send a request that `answer` answers."""
        self._asked = Question(service, request, answer)
        service.send(request)

    @property
    def answered(self) -> bool:
        return self._asked is not None and self._asked.got is not None

    def take(self, answer: type[T], stage: str) -> T:
        """The answer.

        Raises:
            Permanent, Transient: the actor says that it cannot be done.
        """
        asked, self._asked = self._asked, None
        got = asked.got if asked is not None else None
        match got:
            case SourceFailed(workdir_full=True, error=error) | StoreFailed(workdir_full=True, error=error):
                raise Transient(stage, error, Cause.WORKDIR_FULL)
            case SourceFailed(permanent=permanent, error=error):
                raise (Permanent if permanent else Transient)(stage, error)
            case StoreFailed(permanent=permanent, error=error):
                cause = Cause.BUCKET if permanent else Cause.STORE_DOWN
                raise (Permanent if permanent else Transient)(stage, f"bucket {self._bucket}: {error}", cause)
        assert isinstance(got, answer)
        return got

    def hear(self, service: Service, message: object) -> bool:
        """Take an answer, if it is to what was asked last (a restarted actor may answer twice); whether it was."""
        asked = self._asked
        if asked is None or asked.service is not service:
            return False
        refused = isinstance(message, StoreFailed) and message.operation == type(asked.request).__name__
        if refused or isinstance(message, asked.answer | SourceFailed):
            asked.got = message
        return asked.got is message

    def again(self, service: Service) -> None:
        """There is a new process of this actor: ask it what the old one was asked."""
        if self._asked is not None and self._asked.service is service:
            service.send(self._asked.request)
