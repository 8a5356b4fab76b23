"""A server of our own, on this machine, in the place of the hub from which GPT-2 is fetched."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

WEIGHTS = "model.safetensors"


@contextmanager
def serving(handler):
    """The address of a server that answers with `handler`, as long as the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.MonkeyPatch.context() as patch:  # a test may have said: no network
            patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
            yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def hub(files, headers, asked):
    """A handler that holds GPT-2's files and redirects whoever asks for the weights' head.

    Args:
        files: {name: path} of what lies below gpt2/resolve/main.
        headers: sent with that redirection; may be changed later.
        asked: a list, to which the name of each file that is fetched is added.
    """

    class Handler(BaseHTTPRequestHandler):
        def _name(self):
            return self.path.removeprefix("/gpt2/resolve/main/")

        def do_HEAD(self):
            self.send_response(302 if self._name() == WEIGHTS else 404)
            for name, value in (headers | {"Location": "https://elsewhere.invalid"}).items():
                self.send_header(name, value)
            self.end_headers()

        def do_GET(self):
            asked.append(self._name())
            content = files[self._name()].read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    return Handler
