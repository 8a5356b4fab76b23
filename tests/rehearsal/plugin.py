"""``pytest -p rehearsal.plugin``: unit tests with the rehearsed device as that of this process.

Programs that a test starts stay on the CPU.
"""

from rehearsal.chapter import put_in_place
from rehearsal.device import install


def pytest_configure(config):
    put_in_place(install())
