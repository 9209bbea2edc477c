"""Compile the record codec (decision 0011); setup.cfg has the rest of the build.

This needs Cython (3, or 0.29.32 as in Debian 12) and a C compiler. If one of them is missing or
PLOG_INTERPRETED is set, nothing is compiled, and plog interprets the same sources.
"""

import ast
import os
import runpy
import shutil
import struct
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = "plog.records"
FOLDER = Path("plog/records")
DIRECTIVES = {
    "language_level": 3,
    # Types come from the .pxd alone; annotations keep their meaning in Python.
    "annotation_typing": False,
    "always_allow_keywords": True,
}


def main() -> None:
    """Run the command of pip, build or dpkg-buildpackage."""
    # Run as a script: an installer may lack the dependencies of `import plog`.
    compiled = runpy.run_path("plog/compiled.py")
    modules = _assigned("COMPILED", FOLDER / "__init__.py")
    # With 32 bits, the codec's positions could overflow their integers.
    wanted = not os.environ.get(compiled["INTERPRETED"]) and struct.calcsize("P") == 8
    folder = compiled["folder_name"](str(FOLDER), modules)
    extensions = [
        # Only the folder differs from the name under which Cython compiles the module.
        Extension(
            f"{PACKAGE}.{folder}.{module}",
            [str(FOLDER / f"{module}.py")],
            depends=[str(FOLDER / f"{module}.pxd")],
            extra_compile_args=["-O2", "-g0", "-w"],
        )
        for module in modules
        if wanted
    ]
    setup(ext_modules=extensions, cmdclass={"build_ext": CompileOrDoWithout})


def _assigned(name: str, path: Path) -> tuple[str, ...]:
    """Return the value that the module at `path` assigns to `name`, without running it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value: tuple[str, ...] = ast.literal_eval(node.value)
            return value
    raise LookupError(f"{path} does not assign {name}")


class CompileOrDoWithout(build_ext):
    """Compiles all modules; if one fails, prints why in one line and builds without them."""

    def run(self) -> None:
        try:
            for extension in self.extensions:
                extension.sources = [self._c_source(extension)]
                if self.inplace:
                    Path(*extension.name.split(".")[:-1]).mkdir(exist_ok=True)
            super().run()
        except Exception as reason:
            why = str(reason).partition("\n")[0]
            print(f"plog: built without its compiled record codec: {why}", file=sys.stderr)
            self.extensions = []
        if self.inplace:
            self._remove_others()

    def _c_source(self, extension: Extension) -> str:
        from Cython import __version__
        from Cython.Build import cythonize

        # It gives functions a signature; Cython 0.29 then fails at annotations.
        directives = {**DIRECTIVES, "binding": not __version__.startswith("0.")}
        module = Extension(f"{PACKAGE}.{Path(extension.sources[0]).stem}", extension.sources)
        [made] = cythonize(
            [module],
            build_dir=self.build_temp,
            compiler_directives=directives,
            force=True,
            quiet=True,
        )
        source: str = made.sources[0]
        return source

    def _remove_others(self) -> None:
        """Delete the folders compiled from older sources."""
        current = {extension.name.split(".")[-2] for extension in self.extensions}
        for folder in FOLDER.glob("compiled_*"):
            if folder.name not in current:
                shutil.rmtree(folder)


main()
