"""Runs the Pulsar side: its listeners, sessions and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import OptionError
from .admin import AdminHttp
from .session import Session
from .state import PulsarState

if TYPE_CHECKING:
    from ..server import Connection


class PulsarSide(PulsarState):
    """Serves Pulsar's binary protocol on ``main`` and its admin HTTP interface on ``admin``."""

    def offer(self, protocol_version: int) -> None:
        """Behave as an older broker: announce this version of the protocol."""
        self.protocol_version = protocol_version

    def configure(self, **settings: Any) -> None:
        """Change `Settings` from now on; a new keepalive applies to new connections only.

        Raises:
            OptionError: there is no such setting.
        """
        for name, value in settings.items():
            if not hasattr(self.settings, name):
                raise OptionError(f"the dev broker has no setting {name!r} of Pulsar")
            setattr(self.settings, name, value)

    async def start(self) -> None:
        """Open both listeners."""
        await self.listen("main")
        await self.listen("admin", streams=AdminHttp(self).serve)

    def query(self) -> str:
        """Return the URL of the admin interface, as an option."""
        return f"admin=http{'s' if self.tls else ''}://{self.address('admin')}"

    async def serve(self, connection: Connection) -> None:
        """Run one client's session."""
        session = Session(self, connection)
        connection.state = session
        try:
            await session.run()
        finally:
            session.gone()
