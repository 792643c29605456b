"""Stands in for sgl_kernel, whose library cannot be loaded without a GPU driver.

Every name and every submodule can be imported; whatever is called says that it is not there. SGLang on the
CPU imports many of them and calls none.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

__version__ = "0.4.10"


class Missing:
    """A kernel that can be imported, but not called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.name}.{name}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"{self.name} needs a GPU")


class Submodule(ModuleType):
    def __getattr__(self, name: str) -> Missing:
        return missing(self.__name__, name)


class Finder(MetaPathFinder, Loader):
    """Finds any submodule of this package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith(f"{__name__}.")
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Submodule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def missing(module: str, name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(f"{module}.{name}")


def __getattr__(name: str) -> Missing:
    return missing(__name__, name)


sys.meta_path.append(Finder())
