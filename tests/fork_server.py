"""Children of a process that has imported torch and done nothing else.

To kill a training run forty times, forty processes must start, and to import torch takes each
seconds; a fork takes milliseconds.
"""

import importlib
import time
from multiprocessing import get_context


class ForkServer:
    """`server.call("function", …)` runs a function of `module` in forked children."""

    def __init__(self, module):
        self.module, self.context = importlib.import_module(module), get_context("forkserver")
        self.context.set_forkserver_preload([module])

    def call(self, function, *, children=1, kill_after=None, **arguments):
        """Exit codes of the children; a negative one is the signal that killed the child.

        Args:
            children: how many; each gets its number, rank=, and the arguments.
            kill_after: seconds after which they are killed.
        """
        target = vars(self.module)[function]
        started = [
            self.context.Process(target=target, kwargs=arguments | {"rank": rank})
            for rank in range(children)
        ]
        for child in started:
            child.start()
        if kill_after is not None:
            time.sleep(kill_after)
            for child in started:
                child.kill()
        for child in started:
            child.join()
        return [child.exitcode for child in started]
