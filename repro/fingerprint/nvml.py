"""Access to NVML: every call goes through `ask`, which never raises.

A binding may be newer or older than the driver, a function may not exist for this GPU, a container may lack a right,
and some functions of the binding hide that a call failed. Each of these becomes a status with its reason, beside the
missing value. Field ids are used only where they never changed (82, 83, 186). Those of clock events were renumbered
between releases 575 and 580, so an older driver would understand the binding's numbers differently.
Source: pynvml.py of nvidia-ml-py 13.615.71.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from repro import config
from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found

STATUS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no_permission",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "function_not_found",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "absent",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "absent",
}
# Members of a field's union, by its valueType.
UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
UNTOUCHED = -(1 << 31)


def plain(value: Any) -> Any:
    """Return bytes as text, and any other value unchanged."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def why(error: BaseException) -> str:
    """Return a status of `STATUS`, or `failed`, with the reason after a colon."""
    code = getattr(error, "value", None)
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return "function_not_found: the driver is older than the binding"
    if isinstance(error, AttributeError):
        return f"function_not_found: {error}"
    if isinstance(error, pynvml.NVMLError):
        return f"{STATUS.get(code, 'failed')}: NVML error {code}, {error}"
    return f"failed: {type(error).__name__}: {error}"


def ask(function: str, *given: Any, take: Callable[[Any], Any] = plain) -> Found:
    """Return the entry of one NVML call. function: its name after `nvml`; take: extracts the value from the answer.

    Never raises: an answer that cannot be read is `failed`.
    """
    try:
        return entry(take(getattr(pynvml, f"nvml{function}")(*given)), f"nvml{function}")
    except Exception as error:  # drivers of other releases may answer in unexpected ways
        return entry(None, f"nvml{function}", why(error))


def start() -> str:
    """Initialise NVML. Return why it cannot be used, or the empty string."""
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return why(error)
    return ""


def device(uuid: str = "") -> tuple[Any, str]:
    """Return (handle, why there is none) of the GPU with this UUID.

    Without a UUID it is the GPU that this process was given, else the first.
    """
    uuid = uuid or config.visible_gpu()
    found = ask("DeviceGetHandleByUUID", uuid) if uuid else ask("DeviceGetHandleByIndex", 0)
    return found.value, "" if found.value is not None else found.status


def field(handle: Any, number: int, take: Callable[[Any], Any] = plain) -> Found:
    """Return the entry of one field id. Each field has its own return code."""

    def read(values: Any) -> Any:
        one = values[0]
        if one.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(one.nvmlReturn)
        return take(getattr(one.value, UNION[one.valueType]))

    found = ask("DeviceGetFieldValues", handle, [number], take=read)
    return found.model_copy(update={"source": f"nvmlDeviceGetFieldValues({number})"})


def clock_offset(handle: Any, clock: int) -> Found:
    """Return the offset over the default of P0, MHz. The binding drops the return code, so a mark detects no answer."""
    try:
        asked = pynvml.c_nvmlClockOffset_t()
        asked.version, asked.type, asked.pstate = pynvml.nvmlClockOffset_v1, clock, 0
    except AttributeError as error:
        return entry(None, "nvmlDeviceGetClockOffsets", why(error))
    asked.clockOffsetMHz = UNTOUCHED
    found = ask("DeviceGetClockOffsets", handle, ctypes.byref(asked))
    if found.status != "ok":
        return found
    value = None if asked.clockOffsetMHz == UNTOUCHED else asked.clockOffsetMHz
    status = "ok" if value is not None else "not_supported: no answer, and the binding drops the reason"
    return entry(value, "nvmlDeviceGetClockOffsets", status)
