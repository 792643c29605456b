"""A slow link, where the kernel has no netem: `python -m benchmarks.relay DELAY RATE LISTEN:TARGET…` (ports).

DELAY, in seconds, is added to each round trip, half of it in each direction; a connection begins one round trip
later. RATE, in bytes per second, is what all connections share in each direction; 0 is no limit.
"""

import asyncio
import sys
from dataclasses import dataclass
from functools import partial

_CHUNKS = 64
"""As many may be under way on each connection: 4 MiB."""


@dataclass
class Direction:
    """One of both directions of the link."""

    delay: float
    rate: float
    free: float = 0.0
    """When the last byte that was put on it has left."""

    def arrival(self, now: float, count: int) -> float:
        """When `count` bytes that are sent now arrive."""
        self.free = max(self.free, now) + (count / self.rate if self.rate else 0)
        return self.free + self.delay

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, later; what comes meanwhile is not held up by it."""
        loop = asyncio.get_running_loop()
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS)

        async def deliver() -> None:
            data = b"-"
            while data:
                at, data = await due.get()
                await asyncio.sleep(at - loop.time())
                writer.write(data)
                await writer.drain()
            writer.write_eof()

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            data = b"-"
            while data:
                data = await reader.read(65536)
                await due.put((self.arrival(loop.time(), len(data)), data))


async def connect(
    target: int, there: Direction, back: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await asyncio.sleep(there.delay + back.delay)
    answers, requests = await asyncio.open_connection("127.0.0.1", target)
    await asyncio.gather(there.carry(reader, requests), back.carry(answers, writer), return_exceptions=True)
    for end in (requests, writer):
        end.close()


async def main(delay: float, rate: float, ports: list[tuple[int, int]]) -> None:
    there, back = Direction(delay / 2, rate), Direction(delay / 2, rate)
    for listen, target in ports:
        await asyncio.start_server(partial(connect, target, there, back), "127.0.0.1", listen)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    pairs = [(int(listen), int(target)) for listen, _, target in (port.partition(":") for port in sys.argv[3:])]
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), pairs))
