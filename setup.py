"""What pyproject.toml cannot say: a wheel carries the records and texts that chapters read.

They lie beside `src` in a checkout, and inside of it in a wheel (`src/tools/places.py`). An
editable install needs no copy.
"""

from pathlib import Path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py

READ = ("results/**/*", "book/**/*.txt", "live/*")  # as in MANIFEST.in


class BuildWithBook(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            root = Path(__file__).parent
            for path in sorted(each for pattern in READ for each in root.glob(pattern)):
                if path.is_file():
                    copy = Path(self.build_lib, "src", "_book", path.relative_to(root))
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copyfile(path, copy)


setup(cmdclass={"build_py": BuildWithBook})
