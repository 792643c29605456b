"""A link with a delay, where the kernel has no netem: `python -m benchmarks.relay SECONDS LISTEN:TARGET…` (ports).

Each byte leaves half of SECONDS after it came, in both directions; a connection begins one round trip later.
"""

import asyncio
import sys
from functools import partial


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, later; what comes meanwhile is not held up by it."""
    loop = asyncio.get_running_loop()
    due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        data = b"-"
        while data:
            at, data = await due.get()
            await asyncio.sleep(at - loop.time())
            writer.write(data)
        writer.write_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(deliver())
        data = b"-"
        while data:
            data = await reader.read(65536)
            due.put_nowait((loop.time() + delay, data))


async def connect(target: int, seconds: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(seconds)
    there, back = await asyncio.open_connection("127.0.0.1", target)
    await asyncio.gather(carry(reader, back, seconds / 2), carry(there, writer, seconds / 2), return_exceptions=True)
    for end in (back, writer):
        end.close()


async def main(seconds: float, ports: list[tuple[int, int]]) -> None:
    for listen, target in ports:
        await asyncio.start_server(partial(connect, target, seconds), "127.0.0.1", listen)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    pairs = [(int(listen), int(target)) for listen, _, target in (port.partition(":") for port in sys.argv[2:])]
    asyncio.run(main(float(sys.argv[1]), pairs))
