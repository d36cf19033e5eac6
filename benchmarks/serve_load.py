"""`laha serve` under load on the loopback: 22,625 labels, random weights of the paper's sizes, documents of 180 words.

    python benchmarks/serve_load.py            # 50 clients, 60 seconds: batched, then one by one
    python benchmarks/serve_load.py --memory   # memory over 50,000 requests

Clients, server and model share the machine; each client waits for its answer before it asks again. The server runs
with --precision bfloat16 where the claim says so; a CPU's own choice is float32, which is measured too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from random_model import WORDS, random_model
from record import record, row

LABELS, CLIENTS, SECONDS, LENGTH = 22_625, 50, 60.0, 180
REQUESTS, WARM = 50_000, 10_000  # of the run for memory: in all, and before the first reading
GAIN, P99, GROWTH = 3.0, 1.0, 0.02


def make_model(folder: Path, labels: int = LABELS) -> None:
    """Write a model folder with random weights."""
    random_model(labels).save(folder)


class Server:
    """`laha serve` as a process of its own."""

    def __init__(self, model: Path, precision: str = "auto", threads: int | None = None, **settings: float):
        chosen = {"log_requests": "false", "keep_feedback": "false", **settings}
        options = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "laha", "serve", str(model), "--port", "0", "--precision", precision, *options]
        cores = str(threads or len(os.sched_getaffinity(0)))
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": cores}
        )
        self.port = 0

    def __enter__(self) -> Self:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"ready: http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return self
        raise RuntimeError("the server ended before it was ready")

    def __exit__(self, *problem: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)

    def figure(self, name: str) -> float:
        """Read one of the server's own figures."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    def texts_a_batch(self) -> float:
        """Return how many texts the model read at once, on average."""
        return self.figure("laha_batch_texts_sum") / self.figure("laha_batch_texts_count")

    def resident(self) -> int:
        """Return the memory the server holds now, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


@dataclass
class Load:
    """What clients saw."""

    requests: int
    errors: int
    seconds: float
    times: list[float]

    @property
    def rate(self) -> float:
        """Requests answered a second."""
        return self.requests / self.seconds

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 requests were answered."""
        return sorted(self.times)[int(0.99 * (len(self.times) - 1))]


def under_load(
    server: Server, clients: int, seconds: float = 1e9, requests: int = 10**9, words: int | tuple[int, int] = LENGTH
) -> Load:
    """Let clients ask for so long, or so often, texts of random words, none twice."""
    return asyncio.run(_under_load(server.port, clients, seconds, requests, words))


async def _under_load(port: int, clients: int, seconds: float, requests: int, words: int | tuple[int, int]) -> Load:
    load = Load(0, 0, 0.0, [])
    began = time.perf_counter()
    asked = 0

    async def client(seed: int) -> None:
        nonlocal asked
        draw = random.Random(seed)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() - began < seconds and asked < requests:
            asked += 1
            count = words if isinstance(words, int) else draw.randint(*words)
            text = " ".join(f"word{number}" for number in draw.choices(range(WORDS), k=count))
            body = json.dumps({"text": text, "top": 10}).encode()
            head = "POST /api/tag HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
            asking = time.perf_counter()
            writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(re.findall(rb"content-length: (\d+)", answer.lower())[0])
            content = await reader.readexactly(length)
            load.times.append(time.perf_counter() - asking)
            load.requests += 1
            load.errors += not answer.startswith(b"HTTP/1.1 200 ") or content.count(b'"score"') != 10
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client(seed) for seed in range(clients)))
    load.seconds = time.perf_counter() - began
    return load


def measure_load(model: Path, seconds: float) -> list[dict[str, object]]:
    """Compare batches with one text after the other, in each precision."""
    rows = []
    for precision in ("bfloat16", "float32"):
        with Server(model, precision) as server:
            under_load(server, CLIENTS, seconds=3.0)  # what is made on first use
            batched = under_load(server, CLIENTS, seconds)
            size = server.texts_a_batch()
        with Server(model, precision, batch_texts=1) as server:
            under_load(server, CLIENTS, seconds=3.0)
            single = under_load(server, CLIENTS, seconds)
        of = f"{CLIENTS} clients, {seconds:.0f} s, {LABELS:,} labels, {LENGTH} words, {precision}"
        gain = batched.rate / single.rate
        barred = precision == "bfloat16"
        errors = batched.errors + single.errors
        rows += [
            row(f"serve-errors-{precision}", f"{of}: errors", errors, "errors", 0, errors == 0, None, "lower"),
            row(f"serve-p99-{precision}", f"{of}: p99", batched.p99, "s", P99, batched.p99 < P99, single.p99, "lower"),
            row(
                *(f"serve-gain-{precision}", f"{of}: micro-batches against one by one ({size:.0f} texts a batch)"),
                *(gain, "times the requests", GAIN if barred else None, gain >= GAIN if barred else None),
                *(None, "higher"),
            ),
            row(
                *(f"serve-rate-{precision}", f"{of}: requests answered a second; baseline: one by one", batched.rate),
                *("requests/s", None, None, single.rate, "higher"),
            ),
        ]
    return rows


def measure_memory(model: Path, requests: int, warm: int) -> list[dict[str, object]]:
    """Read the server's memory early and late in a long run of texts of many lengths."""
    with Server(model, "bfloat16") as server:
        first = under_load(server, CLIENTS, requests=warm, words=(1, 60))
        early = server.resident()
        rest = under_load(server, CLIENTS, requests=requests - warm, words=(1, 60))
        late = server.resident()
    errors = first.errors + rest.errors
    growth = late / early - 1
    of = f"{requests:,} requests by {CLIENTS} clients, {LABELS:,} labels, 1 to 60 words"
    claim = f"{of}: growth of the server's memory after the first {warm:,} ({early / 2**20:.0f} MiB then)"
    return [
        row("serve-memory", claim, 100 * growth, "% more", 100 * GROWTH, growth <= GROWTH, None, "lower"),
        row("serve-memory-errors", f"{of}: errors", errors, "errors", 0, errors == 0, None, "lower"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "random"
        make_model(model)
        if arguments.memory:
            record("serve_memory", measure_memory(model, arguments.requests, min(WARM, arguments.requests // 5)))
        else:
            record("serve_load", measure_load(model, arguments.seconds))


if __name__ == "__main__":
    main()
