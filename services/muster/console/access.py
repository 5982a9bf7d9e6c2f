"""Identity and rights of readers: by TokenReview and SubjectAccessReview of the API server.

Answers are cached for a minute by a digest of the token, which itself is neither kept nor logged.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from muster.console.metrics import REVIEWS
from muster.kube.session import ApiStatusError, KubeSession, KubeUnreachable

_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 (a path)
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

ALLOWED_SECONDS: Final = 60.0
"""Time after which a right is reviewed again."""
_DENIED_SECONDS: Final = 10.0
_MAX_CACHED: Final = 10_000
_REVIEW_SECONDS: Final = 5.0
_REVIEWS_AT_ONCE: Final = 16
_MAX_WAITING: Final = 500
"""Reviews that wait for others; more are rejected."""
_MAX_TOKEN: Final = 8192
MAX_NAMESPACES: Final = 200
"""Namespaces that are reviewed for a reader without rights in all of them; others must be named."""
_MAX_RESPONSE_BYTES: Final = 1024 * 1024

_log = structlog.get_logger()

T = TypeVar("T")


class NotAuthenticated(Exception):
    """There is no token, or the API server does not accept it."""


class NotReviewed(Exception):
    """The API server did not answer, or too many reviews wait: try again."""


class User(Struct, frozen=True, rename="camel"):
    """A person or program, as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class Access(Protocol):
    """Rights of readers."""

    @property
    def needs_token(self) -> bool: ...

    async def user(self, token: str) -> User:
        """Raises NotAuthenticated and NotReviewed."""
        ...

    async def sees_all(self, user: User) -> bool:
        """Whether the user may read pods in all namespaces, and nodes. Raises NotReviewed."""
        ...

    async def readable(self, user: User, namespaces: Iterable[str]) -> frozenset[str]:
        """Returns the namespaces, of these, in which the user may read pods. Raises NotReviewed."""
        ...


class OpenAccess:
    """Without authentication: everybody sees everything."""

    needs_token = False

    async def user(self, token: str) -> User:
        return User("anyone on this machine")

    async def sees_all(self, user: User) -> bool:
        return True

    async def readable(self, user: User, namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces)


class ReviewedAccess:
    """Rights by reviews of the API server."""

    needs_token = True

    def __init__(self, session: KubeSession, clock: Callable[[], float]) -> None:
        """`clock`: seconds, for the age of answers."""
        self._session = session
        self._users: _Cache[User | None] = _Cache(clock)
        self._rights: _Cache[bool] = _Cache(clock)
        self._slots = asyncio.Semaphore(_REVIEWS_AT_ONCE)
        self._waiting = 0

    async def user(self, token: str) -> User:
        if not token or len(token) > _MAX_TOKEN:
            raise NotAuthenticated("a token of the cluster is needed")
        key = hashlib.sha256(token.encode()).hexdigest()
        user = await self._users.get(key, lambda: self._review_token(token), lambda user: user is not None)
        if user is None:
            raise NotAuthenticated("the cluster does not accept the token; it may have expired")
        return user

    async def sees_all(self, user: User) -> bool:
        return await self._may(user, "pods", "") and await self._may(user, "nodes", "")

    async def readable(self, user: User, namespaces: Iterable[str]) -> frozenset[str]:
        asked = sorted(set(namespaces))[:MAX_NAMESPACES]
        rights = await asyncio.gather(*(self._may(user, "pods", namespace) for namespace in asked))
        return frozenset(namespace for namespace, allowed in zip(asked, rights, strict=True) if allowed)

    async def _may(self, user: User, resource: str, namespace: str) -> bool:
        """Whether the user may get all objects of a resource; namespace "": in all namespaces."""
        key = hashlib.sha256(msgspec.json.encode((user, resource, namespace), order="sorted")).hexdigest()
        return await self._rights.get(key, lambda: self._review_access(user, resource, namespace), bool)

    async def _review_token(self, token: str) -> User | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._review("token", _TOKEN_REVIEWS, review, _TokenReview)).status
        REVIEWS.labels("token", "allowed" if status.authenticated else "denied").add()
        return status.user if status.authenticated else None

    async def _review_access(self, user: User, resource: str, namespace: str) -> bool:
        attributes = {"verb": "get", "resource": resource, "namespace": namespace}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._review("access", _ACCESS_REVIEWS, review, _AccessReview)).status
        REVIEWS.labels("access", "allowed" if status.allowed else "denied").add()
        return status.allowed

    async def _review(self, kind: str, path: str, review: Mapping[str, Any], type_: type[T]) -> T:
        if self._waiting >= _MAX_WAITING:
            raise NotReviewed("too many reviews wait: try again")
        self._waiting += 1
        try:
            async with self._slots:
                response = await self._session.request(
                    "POST",
                    path,
                    body=msgspec.json.encode(review),
                    timeout_seconds=_REVIEW_SECONDS,
                    max_bytes=_MAX_RESPONSE_BYTES,
                )
            if response.status >= 300:
                raise ApiStatusError.from_response(response)
            return msgspec.json.decode(response.body, type=type_)
        except (KubeUnreachable, ApiStatusError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            REVIEWS.labels(kind, "failed").add()
            _log.warning("review_failed", kind=kind, error=str(error))
            raise NotReviewed(f"the API server did not review the {kind}: try again") from error
        finally:
            self._waiting -= 1


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _Answer(Struct, Generic[T], frozen=True):
    until: float
    value: T


class _Cache(Generic[T]):
    """Answers by key, at most _MAX_CACHED: the oldest are dropped. Equal questions at the same time are asked once, end
    with their answers, and wait in a queue of at most _MAX_WAITING (I11).
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, _Answer[T]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def get(self, key: str, ask: Callable[[], Awaitable[T]], is_allowed: Callable[[T], bool]) -> T:
        """The answer, which is kept longer if it allows something."""
        known = self._answers.get(key)
        if known is not None and self._clock() < known.until:
            return known.value
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask, is_allowed))
            task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _ask(self, key: str, ask: Callable[[], Awaitable[T]], is_allowed: Callable[[T], bool]) -> T:
        try:
            value = await ask()
            seconds = ALLOWED_SECONDS if is_allowed(value) else _DENIED_SECONDS
            self._answers[key] = _Answer(self._clock() + seconds, value)
            self._answers.move_to_end(key)
            while len(self._answers) > _MAX_CACHED:
                self._answers.popitem(last=False)
            return value
        finally:
            del self._asked[key]


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Its error is of interest only to those that still wait."""
    if not task.cancelled():
        task.exception()
