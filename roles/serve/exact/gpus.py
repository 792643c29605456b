"""GPUs that are not there: torch is told that they exist, and every tensor meant for them is made on `meta`."""

import contextlib
import ctypes
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from roles.serve.exact import Question

MIB = 2**20
CONTEXT = 700 * MIB

tensors_go_to = torch.device("cpu")
"""Where a tensor for `cuda` is made: tables that the code reads stay on the CPU, the model goes to `meta`."""


def pretend(question: Question) -> None:
    """Makes torch describe the GPUs of `question`. May be called again for other GPUs."""
    if not _entered:
        _without_libcuda()
        _entered.append(_CudaGoesElsewhere())
        _entered[0].__enter__()
    cuda = torch.cuda
    major, _, minor = question.compute_capability.partition(".")
    capability = (int(major), int(minor or 0))
    total = question.memory_mib * MIB
    properties = types.SimpleNamespace(
        name=question.gpu,
        major=capability[0],
        minor=capability[1],
        total_memory=total,
        multi_processor_count=question.processors,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=102400,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=101376,
        L2_cache_size=128 * MIB,
        max_threads_per_multi_processor=1536,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        clock_rate=2_600_000,
    )
    facts: dict[str, object] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": question.gpus,
        "get_device_capability": capability,
        "get_device_name": question.gpu,
        "get_device_properties": properties,
        "current_device": 0,
        "mem_get_info": (total - CONTEXT, total),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
        "is_bf16_supported": True,
        "can_device_access_peer": True,
        "is_current_stream_capturing": False,
        "get_arch_list": [f"sm_{capability[0]}{capability[1]}"],
    }
    for name, value in facts.items():
        setattr(cuda, name, _returning(value))
    for name in (
        "_lazy_init",
        "init",
        "set_device",
        "synchronize",
        "empty_cache",
        "ipc_collect",
        "manual_seed",
        "manual_seed_all",
        "reset_peak_memory_stats",
    ):
        setattr(cuda, name, _returning(None))
    for name in ("Stream", "Event"):
        setattr(cuda, name, _Anything)
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_, **__: _Anything())
    for name in ("stream", "device"):
        setattr(cuda, name, lambda *_, **__: contextlib.nullcontext())


def _returning(value: object) -> Callable[..., object]:
    """A new function each time: torch's compiler refuses one function under two names."""
    return lambda *_, **__: value


class _Anything:
    """Stands in for streams and events: takes every call, does nothing."""

    cuda_stream = 0
    stream_id = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cuda", 0)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def __enter__(self) -> "_Anything":
        return self

    def __exit__(self, *_: object) -> None:
        return None


@contextlib.contextmanager
def on_meta(default: bool) -> Iterator[None]:
    """While it lasts, `cuda` means `meta`; with `default`, so does a tensor for no device in particular."""
    global tensors_go_to  # noqa: PLW0603 -- read by the mode, which is entered for the life of the process
    before, tensors_go_to = tensors_go_to, torch.device("meta")
    try:
        with torch.device("meta") if default else contextlib.nullcontext():
            yield
    finally:
        tensors_go_to = before


def _is_gpu(device: object) -> bool:
    name = device.type if isinstance(device, torch.device) else device
    return isinstance(name, str) and name.startswith("cuda")


VALUES = {"item": 1.0, "__bool__": True, "__float__": 1.0, "__int__": 1, "__index__": 1, "tolist": 1.0}
"""What a tensor without data is read as: all of SGLang's uses at load are scales and sanity checks."""

SMALL = 4096
"""Elements up to which a meta tensor that is wanted on the CPU is made of ones."""


class _CudaGoesElsewhere(TorchFunctionMode):  # type: ignore[misc]
    """Redirects each creation of, and move to, a `cuda` tensor; and lets data-less tensors pass through reads."""

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)
        name = getattr(function, "__name__", "")
        if _is_gpu(kwargs.get("device")) or type(kwargs.get("device")) is int:
            kwargs["device"] = tensors_go_to
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if tensor is None:
            return function(*args, **kwargs)
        match name:
            case "cuda":
                return tensor.to(tensors_go_to)
            case "pin_memory":
                return tensor
            case "to":
                args = (tensor, *(tensors_go_to if _is_gpu(value) else value for value in args[1:]))
        has_data = tensor.device.type != "meta"
        if not has_data and name in VALUES:
            return VALUES[name]
        if not has_data and name in ("cpu", "to") and _wants_cpu(name, args, kwargs):
            return _data(tensor, args, kwargs)
        source = args[2] if name == "__setitem__" else args[1] if name == "copy_" else None
        if has_data and isinstance(source, torch.Tensor) and source.device.type == "meta":
            return tensor if name == "copy_" else None
        return function(*args, **kwargs)


def _wants_cpu(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    wanted = kwargs.get("device", args[1] if len(args) > 1 else None)
    return name == "cpu" or (isinstance(wanted, str | torch.device) and torch.device(wanted).type == "cpu")


def _data(tensor: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    said = [value for value in (*args[1:], kwargs.get("dtype")) if isinstance(value, torch.dtype)]
    dtype = said[0] if said else tensor.dtype
    if tensor.numel() > SMALL:
        return tensor.to(dtype)
    return torch.ones(tuple(tensor.shape), dtype=dtype, device="cpu")


_entered: list[_CudaGoesElsewhere] = []


def _without_libcuda() -> None:
    """SGLang's kernel package links to the driver: where there is none, its names exist and cannot be called."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        sys.meta_path.insert(0, _Absent())


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "sgl_kernel":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        from importlib.metadata import version

        module.__path__ = []
        module.__dict__["__version__"] = version("sglang-kernel")


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> "_AbsentName":
        if name.startswith("__"):
            raise AttributeError(name)
        return _AbsentName(f"{self.__name__}.{name}")


class _AbsentName:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(self._name)

    def __getattr__(self, name: str) -> "_AbsentName":
        if name.startswith("__"):
            raise AttributeError(name)
        return _AbsentName(f"{self._name}.{name}")
