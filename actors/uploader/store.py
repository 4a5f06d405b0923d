"""The results bucket: put, get, head, list, delete. The only place that talks to it.

Raises StoreError for whatever the store or the way to it does; MissingObject where there is no such object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError
from urllib3.exceptions import HTTPError

from actors.s3 import StoreError, failure

__all__ = ["Listed", "Store"]


@dataclass(frozen=True, slots=True)
class Listed:
    key: str
    size_bytes: int
    modified: datetime


class Store:
    """One bucket. Safe to share between as many threads as its client has connections."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client, self.bucket = client, bucket

    def put(
        self,
        key: str,
        body: bytes,
        content_type: str,
        *,
        metadata: dict[str, str] | None = None,
        cache_control: str | None = None,
    ) -> None:
        """Store `body`, whatever is there now."""
        extra = {"CacheControl": cache_control} if cache_control else {}
        self._call("PUT", "put_object", key, Body=body, ContentType=content_type, Metadata=metadata or {}, **extra)

    def get(self, key: str) -> tuple[bytes, datetime]:
        """The object's body and when it was stored."""
        answer = self._call("GET", "get_object", key)
        try:
            return answer["Body"].read(), answer["LastModified"]
        except BotoCoreError as e:
            raise failure(e, f"GET {key}") from e
        except (HTTPError, OSError) as e:
            raise StoreError(f"GET {key}: the body broke off ({type(e).__name__})") from e

    def head(self, key: str) -> dict[str, str]:
        """The object's own metadata, names in lower case."""
        answer = self._call("HEAD", "head_object", key)
        return {name.lower(): value for name, value in answer["Metadata"].items()}

    def delete(self, key: str) -> None:
        """Delete the object; one that is not there is no error."""
        self._call("DELETE", "delete_object", key)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object under `prefix`, in key order, however many there are.

        A store that says a listing is cut and gives no token is asked for what comes after the last key; one that
        then gives nothing new is an error, since half a listing would have pages done again.
        """
        more: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            answer = self._call("LIST", "list_objects_v2", prefix, Prefix=prefix, **more)
            entries = answer.get("Contents", [])
            fresh = [e for e in entries if e["Key"] not in seen]
            seen.update(e["Key"] for e in fresh)
            for entry in fresh:
                yield Listed(entry["Key"], entry["Size"], entry["LastModified"])
            if not answer.get("IsTruncated"):
                return
            if not fresh:
                raise StoreError(f"LIST {prefix}: the store cut its listing after {len(seen)} and gives no way on")
            token = answer.get("NextContinuationToken")
            more = {"ContinuationToken": token} if token else {"StartAfter": fresh[-1]["Key"]}

    def _call(self, verb: str, operation: str, key: str, **arguments: Any) -> Any:
        where = arguments if "Prefix" in arguments else {"Key": key, **arguments}
        try:
            return getattr(self._client, operation)(Bucket=self.bucket, **where)
        except StoreError:
            raise
        except Exception as e:  # botocore lets through what a store's odd answer sets off in it.
            raise failure(e, f"{verb} {key}") from e
