"""Compile the modules of the hot path (decision 0011); setup.cfg has all other settings.

Compiling needs Cython (3, or 0.29.32 as in Debian 12) and a C compiler. If one of them is missing,
or PLOG_INTERPRETED is set, nothing is compiled, and plog runs the same sources interpreted.
"""

import ast
import os
import runpy
import shutil
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGES = ("plog.records", "plog.wire")
"""Packages with compiled modules, which their `COMPILED` names."""
DIRECTIVES = {
    "language_level": 3,
    # Only the .pxd declares C types; annotations keep their Python meaning.
    "annotation_typing": False,
    "always_allow_keywords": True,
}


def main() -> None:
    """Build plog; pip, build and dpkg-buildpackage run this script."""
    # Run without importing plog: an installer may lack the packages that it imports.
    compiled = runpy.run_path("plog/compiled.py")
    # On 32-bit platforms, the positions in the codec could overflow their C integers.
    wanted = not os.environ.get(compiled["INTERPRETED"]) and struct.calcsize("P") == 8
    extensions = [
        extension
        for package in PACKAGES
        if wanted
        for extension in _extensions(package, compiled["folder_name"])
    ]
    setup(ext_modules=extensions, cmdclass={"build_ext": CompileOrDoWithout})


def _extensions(package: str, folder_name: Callable[[str, Sequence[str]], str]) -> list[Extension]:
    folder = _folder(package)
    modules = _assigned("COMPILED", folder / "__init__.py")
    return [
        # Only the name of the folder differs from the module's own name, which Cython uses.
        Extension(
            f"{package}.{folder_name(str(folder), modules)}.{module}",
            [str(folder / f"{module}.py")],
            depends=[str(folder / f"{module}.pxd")],
            extra_compile_args=["-O2", "-g0", "-w"],
        )
        for module in modules
    ]


def _folder(package: str) -> Path:
    return Path(*package.split("."))


def _assigned(name: str, path: Path) -> tuple[str, ...]:
    """Return the value that a module assigns to a name, without running the module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value: tuple[str, ...] = ast.literal_eval(node.value)
            return value
    raise LookupError(f"{path} does not assign {name}")


class CompileOrDoWithout(build_ext):
    """Compiles all extensions; if one fails, prints the reason and builds without them."""

    def run(self) -> None:
        try:
            for extension in self.extensions:
                extension.sources = [self._c_source(extension)]
                if self.inplace:
                    Path(*extension.name.split(".")[:-1]).mkdir(exist_ok=True)
            super().run()
        except Exception as reason:
            why = str(reason).partition("\n")[0]
            print(f"plog: built without its compiled modules: {why}", file=sys.stderr)
            self.extensions = []
        if self.inplace:
            self._remove_others()

    def _c_source(self, extension: Extension) -> str:
        from Cython import __version__
        from Cython.Build import cythonize

        # With binding, functions have signatures; Cython 0.29 then fails on annotations.
        directives = {**DIRECTIVES, "binding": not __version__.startswith("0.")}
        package, _, name = extension.name.rpartition(".")
        # Without the folder of the compiled form, which is not a package.
        module = Extension(f"{package.rpartition('.')[0]}.{name}", extension.sources)
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
        """Remove what was compiled from older sources."""
        current = {extension.name.split(".")[-2] for extension in self.extensions}
        for package in PACKAGES:
            for folder in _folder(package).glob("compiled_*"):
                if folder.name not in current:
                    shutil.rmtree(folder)


main()
