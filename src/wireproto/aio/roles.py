"""Wraps roles as coroutines: each method runs the steps of the role's own method (`net.task.steps_of`).

There is one class for each kind of role, over any protocol's role. A role is made at its first use, or by ``async with`` or ``await``,
which looks topics up. A method that the protocol has not written as steps yet raises AsyncUnsupported. Everything runs in the event loop's
thread; nothing blocks or starts a thread. The module knows no protocol.

Errors beside those that a method lists: what making the role raises, at its first use; Closed when the role or client was closed;
UsageError in another event loop than the client's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from wireproto.deadlines import NEVER, deadline_after
from wireproto.errors import AsyncUnsupported, BrokerError, Closed, TimedOut
from wireproto.net.task import Steps, steps_of
from wireproto.position import LATEST, Position, TopicPartition, Where
from wireproto.records import Batch, GroupInfo, TopicInfo

from .host import Host, Waiter

R = TypeVar("R")
_DEFAULT = 30.0
"""Seconds of a call without `timeout`, as of the synchronous roles."""
_YIELD_AFTER = 0.005
"""Seconds after which an iterator that always finds a batch lets other coroutines run."""


class AsyncRole(Generic[R]):
    """Base of the roles.

    Args:
        host: the client's engine in the event loop.
        what: the kind of role, for errors' texts.
        make: returns the steps that make the synchronous role.
        forget: called with this object when it was closed.
    """

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[R]], forget: Callable[[Any], object]) -> None:
        self._host = host
        self._what = what
        self._make = make
        self._forget = forget
        self._opening: asyncio.Task[R] | None = None
        self._role: R | None = None
        self._closed = self._cut_off = False
        self._inside: set[Waiter] = set()

    async def _opened(self, deadline: float = NEVER) -> R:
        """Return the synchronous role. The first call makes it, in a task; later ones wait for the same task, which no deadline ends.

        Raises:
            TimedOut: it is not made at `deadline`. Why it cannot be made. Closed, Forked, UsageError (another event loop).
        """
        if self._closed:
            raise Closed(f"the {self._what} was closed")
        self._host.check()
        self._host.here()
        if self._role is not None:
            return self._role
        opening = self._opening
        if opening is None:
            opening = self._opening = self._host.io.create_task(self._open())
            opening.add_done_callback(self._tried)
        if deadline != NEVER:
            await asyncio.wait([opening], timeout=max(0.0, deadline - time.monotonic()))
            if not opening.done():
                raise TimedOut(f"the {self._what} is not open yet")
        return await asyncio.shield(opening)

    def _tried(self, opening: asyncio.Task[R]) -> None:
        """Forget an attempt that failed: those that waited for it get its error, and the next use tries again."""
        if (opening.cancelled() or opening.exception() is not None) and self._opening is opening:
            self._opening = None

    async def _open(self) -> R:
        role = await self._host.drive(self._make())
        self._role = role
        self._ready(role)
        return role

    def _ready(self, role: R) -> None:
        """Prepare for use; called once, when the role was made."""

    async def _do(self, name: str, *args: Any, **options: Any) -> Any:
        """Run the role's operation of this name, making the role first. Raises AsyncUnsupported where it is no operation."""
        role = self._role
        if role is None or self._closed:
            deadline = deadline_after(options.get("timeout", _DEFAULT))
            role = await self._opened(deadline)
            options["timeout"] = max(0.0, deadline - time.monotonic())
        else:
            self._host.check()
        return await self._run(self._steps(role, name)(*args, **options))

    async def _run(self, steps: Steps[Any]) -> Any:
        return await self._host.drive(steps, inside=self._inside)

    def _steps(self, role: Any, name: str) -> Callable[..., Steps[Any]]:
        method = getattr(role, name, None)
        if method is None:
            raise AsyncUnsupported(f"{type(role).__name__} has no {name}")
        return self._made_of(method)

    def _made_of(self, method: Callable[..., Any]) -> Callable[..., Steps[Any]]:
        steps = steps_of(method)
        if steps is None:
            raise AsyncUnsupported(f"{getattr(method, '__qualname__', method)} cannot be awaited yet; use the synchronous client for it")
        return steps

    async def _come(self, name: str, timeout: float) -> Any:
        """Run the steps of the role's method `name`, such as `polling`; None when nothing came, or the role was not made, in time."""
        role = self._role
        if role is None or self._closed:
            deadline = deadline_after(timeout)
            try:
                role = await self._opened(deadline)
            except TimedOut:
                if self._opening is None:  # making the role failed with this TimedOut
                    raise
                return None
            timeout = max(0.0, deadline - time.monotonic())
        else:
            self._host.check()
        return await self._run(self._being(role, name)(timeout))

    def _being(self, role: Any, name: str) -> Callable[[float], Steps[Any]]:
        """Return the role's method `name`, which makes steps, as `polling` beside `poll`: `poll` is too frequent to be an operation."""
        found: Callable[[float], Steps[Any]] | None = getattr(role, name, None)
        if found is None:
            raise AsyncUnsupported(f"{type(role).__name__} cannot be awaited yet; use the synchronous client for it")
        return found

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._opened().__await__()
        return self

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close(*(() if error is None else (5.0,)))
        except Exception as why:
            if error is None:
                raise
            error.add_note(f"and closing the {self._what} raised {type(why).__name__}: {why}")

    async def close(self, timeout: float = 30.0) -> None:
        """Close the role; coroutines that are inside a call of it get Closed.

        Closing it again does nothing, unless the first close was cancelled: then it waits for the rest, as far as the role can.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut, and what else ending the role raises; the role is closed all the same.
        """
        if self._closed:
            if self._cut_off and self._role is not None:
                await self._end(self._role, timeout)
                self._cut_off = False
                self._forget(self)
            return
        deadline = deadline_after(timeout)
        self._closed = True
        try:
            await self._closing(deadline, timeout)
        except asyncio.CancelledError:
            self._cut_off = True  # not forgotten, so that the client closes it again
            beside = getattr(self._role, "close_in_background", None)
            if beside is not None:
                beside(deadline)
            raise
        except BaseException:
            self._forget(self)
            raise
        self._forget(self)

    async def _closing(self, deadline: float, timeout: float) -> None:
        if self._opening is not None and self._role is None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        while self._inside and time.monotonic() < deadline:
            for waiter in list(self._inside):
                waiter.stop(Closed(f"the {self._what} was closed"))
            await asyncio.sleep(0)
        if self._role is not None:
            await self._end(self._role, timeout)

    async def _end(self, role: Any, timeout: float) -> None:
        closing = getattr(role, "ending", None)
        if closing is not None:
            await self._host.drive(closing(timeout))


class Reading(AsyncRole[R]):
    """Base of the roles that return batches."""

    async def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout` or the stop is reached.

        Args:
            timeout: seconds to wait for a record, making the role included.

        Raises:
            ConcurrentUse: another coroutine is in a call of this role. Closed: the role or its client was closed.
            What `wireproto.roles.Reader.poll` or `wireproto.roles.Consumer.poll` raises.
        """
        batch: Batch | None = await self._come("polling", timeout)
        return batch

    async def __aiter__(self) -> AsyncIterator[Batch]:
        role: Any = await self._opened()
        rested = time.monotonic()
        while not getattr(role, "done", False):
            batch = await self._run(self._being(role, "polling")(3600.0))
            if batch is not None:
                yield batch
            if time.monotonic() - rested > _YIELD_AFTER:
                await asyncio.sleep(0)
                rested = time.monotonic()

    async def seek(self, where: Where, **options: Any) -> None:
        """Continue reading at another place; see `wireproto.roles.Reader.seek` and `wireproto.roles.Consumer.seek`.

        Args:
            where: EARLIEST, LATEST, AtTime, a position, or a mapping of those by partition.
            options: `timeout`, in seconds.
        """
        await self._do("seek", where, **options)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """The position that each partition is read at next; empty before the role is made."""
        role: Any = self._role
        return {} if role is None else role.positions


class Reader(Reading[Any]):
    """A reader; see `wireproto.roles.Reader`. ``async for batch in reader`` ends at the stop, or follows the log."""

    @property
    def stops(self) -> Mapping[TopicPartition, Position]:
        """The first position of each partition that is not read; empty without a stop, and before the role is made."""
        role: Any = self._role
        return {} if role is None else role.stops

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        return self._role is not None and bool(self._role.done)


class Consumer(Reading[Any]):
    """A consumer; see `wireproto.roles.Consumer`. Rebalance callbacks are called in `poll`, and must not block."""

    async def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """Commit where the group resumes.

        Args:
            positions: the first position not processed, by partition; None: behind the records that poll has returned.
            timeout: seconds to wait for the broker.

        Raises:
            Revoked, OptionError, TimedOut, Unreachable, ConcurrentUse: see `wireproto.roles.Consumer.commit`.
        """
        await self._do("commit", positions, timeout=timeout)

    async def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Return the group's committed positions of the partitions assigned here; partitions without one are left out.

        Args:
            timeout: seconds to wait for the broker.

        Raises:
            TimedOut, Unreachable, ConcurrentUse: see `wireproto.roles.Consumer.committed`.
        """
        found: Mapping[TopicPartition, Position] = await self._do("committed", timeout=timeout)
        return found

    async def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        """Return how far each assigned partition is behind its end; see `wireproto.roles.Consumer.lag`.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: a partition has no leader, say. TimedOut, Unreachable, ConcurrentUse: see `wireproto.roles.Consumer.lag`.
        """
        found: Mapping[TopicPartition, int] = await self._do("lag", timeout=timeout)
        return found

    async def rewind(self, *, timeout: float = 30.0) -> None:
        """Go back to the group's committed positions, after a transaction was rolled back. Kafka only.

        Args:
            timeout: seconds to wait for the broker.

        Raises:
            AsyncUnsupported: the protocol's consumer has no rewind. TimedOut, Unreachable: the broker could not be asked.
        """
        await self._do("rewind", timeout=timeout)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions from poll until `resume` (Kafka: or until a rebalance).

        Args:
            partitions: pairs of topic and partition.

        Raises:
            Revoked: a partition is not assigned to this consumer. Closed: the consumer is not made yet, poll it first.
        """
        self.made().pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End the pause of these partitions.

        Args:
            partitions: pairs of topic and partition.

        Raises:
            Revoked: a partition is not assigned to this consumer. Closed: the consumer is not made yet, poll it first.
        """
        self.made().resume(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member has, as pairs of topic and partition; empty before the role is made."""
        role: Any = self._role
        return frozenset() if role is None else role.assignment

    def made(self) -> Any:
        """Return the synchronous consumer.

        Raises:
            Closed: it is not made yet: poll first.
        """
        if self._role is None:
            raise Closed(f"the {self._what} is not open: poll it first")
        return self._role


class Admin(AsyncRole[Any]):
    """An admin; see `wireproto.roles.Admin`. `more` arguments are the protocol's own, as of its synchronous admin.

    The protocol's own calls are there too; `wireproto.aio.kafka` and its siblings have their types.
    """

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], plain: Any) -> None:
        super().__init__(host, what, make, forget)
        self._plain = plain

    if not TYPE_CHECKING:  # or any name would be one of an admin

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or steps_of(getattr(self._plain, name)) is None:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            return partial(self._do, name)

    async def list_topics(self, *, timeout: float = 30.0) -> list[str]:
        """Return the names of all topics, without the brokers' internal ones.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            TimedOut, Unreachable, AuthError: the cluster could not be asked, or does not allow it.
        """
        found: list[str] = await self._do("list_topics", timeout=timeout)
        return found

    async def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo:
        """Return a topic's partitions, their leaders and the protocol's own details.

        Args:
            topic: its name. timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such topic, or it may not be seen. TimedOut, Unreachable: the cluster could not be asked.
        """
        found: TopicInfo = await self._do("describe_topic", topic, timeout=timeout)
        return found

    async def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0, **more: Any
    ) -> None:
        """Create a topic; returns when it can be used.

        Args:
            topic: its name. partitions: how many it has. config: its settings by the broker's names; None: the broker's defaults.
            timeout: seconds to wait until it can be used.

        Raises:
            BrokerError: it exists already, or the broker refuses it. TimedOut, Unreachable: not created in time, as far as is known.
        """
        await self._do("create_topic", topic, partitions=partitions, config=config, timeout=timeout, **more)

    async def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None:
        """Delete a topic and its records.

        Args:
            topic: its name. timeout: seconds to wait until it is gone.

        Raises:
            BrokerError: there is no such topic, or it may not be deleted. TimedOut, Unreachable: not deleted in time, as far as is known.
        """
        await self._do("delete_topic", topic, timeout=timeout)

    async def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0, **more: Any
    ) -> Mapping[TopicPartition, Position]:
        """Return the position that a place has now in each partition.

        Args:
            topic: its name. at: EARLIEST, LATEST, AtTime, or a mapping of those by partition.
            partitions: numbers of the partitions to look at; None: all.
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError, TimedOut, Unreachable: see `wireproto.roles.Admin.positions`; `known` has the positions that were found.
        """
        found: Mapping[TopicPartition, Position] = await self._do("positions", topic, at, partitions=partitions, timeout=timeout, **more)
        return found

    async def list_groups(self, *, timeout: float = 30.0) -> list[str]:
        """Return the names of all consumer groups (Pulsar: subscriptions).

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            TimedOut, Unreachable, AuthError: the cluster could not be asked, or does not allow it.
        """
        found: list[str] = await self._do("list_groups", timeout=timeout)
        return found

    async def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupInfo:
        """Return a group's state and members, and what each member is assigned.

        Args:
            group: its name. timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such group, or it may not be seen. TimedOut, Unreachable: the cluster could not be asked.
        """
        found: GroupInfo = await self._do("describe_group", group, timeout=timeout)
        return found

    async def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Return a group's committed positions in a topic; partitions without one are left out.

        Args:
            group: its name. topic: the topic's name. timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such topic or group, or it may not be seen. TimedOut, Unreachable: the cluster could not be asked.
        """
        found: Mapping[TopicPartition, Position] = await self._do("group_positions", group, topic, timeout=timeout)
        return found

    async def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> frozenset[TopicPartition]:
        """Store where a group resumes that has no members; returns the partitions for which nothing was stored.

        Args:
            group: its name. places: the first position not processed, by partition.
            timeout: seconds to wait for the broker.

        Raises:
            BrokerError: the group has members (Kafka, Pulsar), or the commit is not allowed.
            TimedOut, Unreachable: no answer; the positions may have been stored.
        """
        found: frozenset[TopicPartition] = await self._do("commit", group, places, timeout=timeout)
        return found

    # Transactions: AsyncUnsupported where the protocol's admin has no such method (most are Kafka's)

    async def list_transactions(self, *, timeout: float = 30.0, **filters: Any) -> list[Any]:
        """List the transactional ids that the cluster knows. Kafka only.

        Args:
            filters: see `KafkaAdmin.list_transactions`. timeout: seconds to wait for the brokers.

        Raises:
            OptionError: no broker knows such a state. UnsupportedVersion: a broker is too old. TimedOut, Unreachable, AuthError.
        """
        found: list[Any] = await self._do("list_transactions", timeout=timeout, **filters)
        return found

    async def describe_transactions(self, names: str | Iterable[str], *, timeout: float = 30.0) -> dict[str, Any]:
        """Return what coordinators know of transactional ids, by id. Kafka only.

        Args:
            names: one id or several. timeout: seconds to wait for the brokers.

        Raises:
            TransactionalIdNotFound: no coordinator knows one. CoordinatorNotAvailable, TimedOut, Unreachable: `known` has the others.
            AuthError.
        """
        found: dict[str, Any] = await self._do("describe_transactions", names, timeout=timeout)
        return found

    async def describe_producers(
        self, topic: str | Iterable[str], *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> dict[TopicPartition, Any]:
        """Return the producers that each partition's leader knows. Kafka only.

        Args:
            topic: one name or several. partitions: their numbers; None: all.
            timeout: seconds to wait for the brokers.

        Raises:
            UnknownTopicOrPartition, AuthError.
            LeaderNotAvailable, TimedOut, Unreachable: a leader could not be asked; `known` has the others.
        """
        found: dict[TopicPartition, Any] = await self._do("describe_producers", topic, partitions=partitions, timeout=timeout)
        return found

    async def abort_transaction(self, key: TopicPartition, producer: Any, *, timeout: float = 30.0) -> None:
        """End a transaction that hangs in one partition, as rolled back; see `KafkaAdmin.abort_transaction`. Kafka only.

        Args:
            key: topic and partition. producer: as `describe_producers` has just returned it.
            timeout: seconds to wait for the leader.

        Raises:
            UsageError: it has no transaction open there. InvalidProducerEpoch, TransactionCoordinatorFenced: it is not the newest any more.
            AuthError, TimedOut, Unreachable.
        """
        await self._do("abort_transaction", key, producer, timeout=timeout)

    async def commit_transaction(self, key: TopicPartition, producer: Any, *, timeout: float = 30.0) -> None:
        """End a transaction that hangs in one partition, as committed; see `KafkaAdmin.commit_transaction`. Kafka only.

        Args:
            key: topic and partition. producer: as `describe_producers` has just returned it.
            timeout: seconds to wait for the leader.

        Raises:
            UsageError: it has no transaction open there. InvalidProducerEpoch, TransactionCoordinatorFenced: it is not the newest any more.
            AuthError, TimedOut, Unreachable.
        """
        await self._do("commit_transaction", key, producer, timeout=timeout)

    async def end_transactions(self, transactions: Iterable[Any], *, commit: bool, timeout: float = 30.0) -> dict[Any, BrokerError]:
        """End transactions that were handed over (`Transaction.hand_over`); returns those that had ended otherwise, with the error.

        Args:
            transactions: what `hand_over` returned. commit: make their records visible, else roll them back.
            timeout: seconds to wait for the coordinators.

        Raises:
            TimedOut: not all have ended; calling it again continues. AuthError, Unreachable.
        """
        found: dict[Any, BrokerError] = await self._do("end_transactions", transactions, commit=commit, timeout=timeout)
        return found

    async def open_transactions(self, transactions: Iterable[Any], *, timeout: float = 30.0) -> frozenset[Any]:
        """Return those of these transactions that could still be committed. Pulsar only; changes nothing.

        Args:
            transactions: what `hand_over` returned. timeout: seconds to wait for the coordinators.

        Raises:
            TimedOut: not all coordinators have answered. NotAllowedError, AuthError.
        """
        found: frozenset[Any] = await self._do("open_transactions", transactions, timeout=timeout)
        return found

    async def fence_producers(self, names: str | Iterable[str], *, timeout: float = 30.0) -> None:
        """Refuse the current users of transactional ids, and roll back what they have open (KIP-588). Kafka only.

        Args:
            names: one id or several. timeout: seconds to wait for the coordinators.

        Raises:
            TimedOut: not all are fenced; calling it again continues. AuthError.
        """
        await self._do("fence_producers", names, timeout=timeout)
