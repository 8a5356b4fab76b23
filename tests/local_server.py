"""A server of our own, on this machine, in the place of the hub from which GPT-2 is fetched."""

import hashlib
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

WEIGHTS = "model.safetensors"


@contextmanager
def hub(files, asked):
    """As long as the block runs, files are fetched from a server that holds GPT-2's.

    Args:
        files: {name: path} of what lies below openai-community/gpt2/resolve/main.
        asked: a list, to which the name of each file that is fetched is added.
    """

    class Handler(BaseHTTPRequestHandler):
        def _content(self):
            name = self.path.removeprefix("/openai-community/gpt2/resolve/main/")
            asked.extend([name] * (self.command == "GET"))
            content = files[name].read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()
            return content

        def do_HEAD(self):
            self._content()

        def do_GET(self):
            self.wfile.write(self._content())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    fetch = partial(huggingface_hub.hf_hub_download, endpoint=endpoint)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # a test may say so
            patch.setattr("huggingface_hub.hf_hub_download", fetch)
            yield
    finally:
        server.shutdown()
        server.server_close()
