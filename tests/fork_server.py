"""A process that has imported torch, done nothing else, and forks a child for each request.

To kill a training run forty times, forty processes must start, and to import torch takes each
seconds; a fork takes milliseconds. Run as a program it reads requests, one JSON object a line, and
answers each with the children's exit codes; a negative one is the signal that killed the child.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent


class ForkServer:
    """`server.call("function", …)` runs a function of `module` in a forked child."""

    def __init__(self, module):
        paths = os.pathsep.join([str(HERE), str(HERE.parent)])
        self._process = subprocess.Popen(
            [sys.executable, __file__, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def call(self, function, *, children=1, kill_after=None, **arguments):
        """Exit codes of the children, in order of rank; each gets rank= and the arguments.

        Args:
            kill_after: seconds after which they are killed.
        """
        request = {
            "function": function,
            "arguments": arguments,
            "children": children,
            "kill_after": kill_after,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def start(function, arguments):
    """Fork a child that calls the function and ends without returning; its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(2, 1)  # what is printed must not look like an answer
        function(**arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve(module):
    functions = importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        function = getattr(functions, request["function"])
        children = [
            start(function, request["arguments"] | {"rank": rank})
            for rank in range(request["children"])
        ]
        if request["kill_after"] is not None:
            time.sleep(request["kill_after"])
            for child in children:
                os.kill(child, signal.SIGKILL)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        print(json.dumps([os.waitstatus_to_exitcode(status) for status in statuses]), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
