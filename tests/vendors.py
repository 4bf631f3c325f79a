"""Stand-ins for the bindings of vendors' libraries: NVIDIA's pynvml and AMD's amdsmi."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Bindings:
    """Functions by name, with what each of them returns or does; those that are missing fail."""

    class NVMLError(Exception):
        """What every function raises."""

    AmdSmiException = NVMLError

    def __init__(self, answers: dict[str, Any], missing: Any = (), **constants: Any) -> None:
        self.answers, self.missing = answers, missing
        self.called: list[tuple[Any, ...]] = []
        vars(self).update(constants)

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.called.append((name, *arguments))
            if name in self.missing:
                raise self.NVMLError("Not Supported")
            answer = self.answers[name]
            return answer(*arguments) if callable(answer) else answer

        return call

    def watched(self) -> set[Any]:
        """Handles of the devices whose clocks were read."""
        names = ("nvmlDeviceGetClockInfo", "amdsmi_get_clock_info")
        return {one[1] for one in self.called if one[0] in names}


def nvml(*gpus: str, missing: Any = (), **answers: Any) -> Bindings:
    """GPUs of these products, whose handles are their numbers and whose UUIDs end with them."""

    def by_index(index: int) -> int:
        if index >= len(gpus):
            raise Bindings.NVMLError("Invalid Argument")
        return index

    return Bindings({
        "nvmlInit": None, "nvmlShutdown": None, "nvmlSystemGetDriverVersion": "575.57",
        "nvmlDeviceGetCount": len(gpus), "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.partition("-")[2]),
        "nvmlDeviceGetName": lambda handle: gpus[handle], "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetCudaComputeCapability": (9, 0), "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, free=7),
        "nvmlDeviceGetPowerManagementLimit": 700_000, "nvmlDeviceGetPowerUsage": 684_500,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1755 if kind == "sm" else 2619,
        "nvmlDeviceGetTemperature": 61, "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetTotalEnergyConsumption": 2500, **answers,
    }, missing, NVML_CLOCK_SM="sm", NVML_CLOCK_MEM="memory", NVML_TEMPERATURE_GPU=0,
        nvmlClocksEventReasonSwPowerCap=4, nvmlClocksEventReasonGpuIdle=1,
        nvmlClocksEventReasonHwThermalSlowdown=64)  # fmt: skip


def amdsmi(count: int = 1, *, missing: Any = (), power: Any = 612, **answers: Any) -> Bindings:
    """Bindings that see `count` MI300X; a kind of clock may be missing too."""

    def clock(_handle: int, kind: str) -> dict[str, int]:
        if kind in missing:
            raise Bindings.NVMLError(kind)
        return {"clk": 2100 if kind == "gfx" else 1300}

    chip = {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}
    return Bindings({
        "amdsmi_init": None, "amdsmi_shut_down": None, "amdsmi_get_gpu_device_uuid": "ff",
        "amdsmi_get_processor_handles": list(range(count)), "amdsmi_get_gpu_asic_info": chip,
        "amdsmi_get_gpu_driver_info": {"driver_version": "6.14"}, "amdsmi_get_clock_info": clock,
        "amdsmi_get_power_info": {"current_socket_power": power}, "amdsmi_get_temp_metric": 74,
        **answers,
    }, missing, AmdSmiClkType=SimpleNamespace(GFX="gfx", MEM="mem"),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT="hotspot"),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT="current"))  # fmt: skip
