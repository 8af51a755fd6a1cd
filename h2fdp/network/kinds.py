"""A catalogue of hardware: published numbers of devices, which fill columns where a topology file states none.

A processor's capacitance follows from the watts that it draws at full load above idling, P = alpha f^3 / 2, with all
its cores at work: `cycles_per_record` are then those of one core where the work is divided among all. What has no
source is left out, and has the column's default. Joules of a message are those that are radiated (`power_dbm`), as
everywhere; a radio draws more from its supply.
"""

from __future__ import annotations

from collections.abc import Mapping


def _capacitance(watts: float, ghz: float) -> float:
    """alpha, at which a processor spends so many watts at this frequency."""
    return 2 * watts / (ghz * 1e9) ** 3


KINDS: Mapping[str, Mapping[str, float]] = {
    "raspberry-pi-4": {
        "cpu_ghz": 1.8,  # four Cortex-A72 (github.com/geerlingguy/sbc-reviews/issues/4)
        "idle_w": 1.6,  # at the wall, the same
        "capacitance": _capacitance(5.0 - 1.6, 1.8),  # 5.0 W under `stress-ng --matrix 0`, the same
    },
    "jetson-orin-nano": {
        "cpu_ghz": 1.5104,  # six Cortex-A78AE, mode of 15 W (NVIDIA's nvpmodel file of the 8 GB module)
        "idle_w": 2.6,  # the whole board, tuned to idle (forums.developer.nvidia.com/t/348662)
        "capacitance": _capacitance(15.0 - 2.6, 1.5104),  # at most: all that this mode lets the module draw
    },
    "phone-mid": {  # a Fairphone 4, Snapdragon 750G
        "cpu_ghz": 2.2,  # its two fast cores (github.com/LineageOS/android_device_fairphone_FP4)
        "battery_j": 3.905 * 3.7 * 3600,  # 3905 mAh, the same; at the 3.7 V of a lithium-ion cell
        "power_dbm": 23.0,  # handheld terminals, power class 3 (3GPP TS 36.101, Table 6.2.2-1)
    },
    "esp32": {  # Espressif's data sheet, at 3.3 V (docs.deneyapkart.org, power consumption of ESP32)
        "cpu_ghz": 0.24,
        "idle_w": 0.099,  # 30 mA at 240 MHz, radio asleep
        "capacitance": _capacitance((0.068 - 0.030) * 3.3, 0.24),  # up to 68 mA at work
        "power_dbm": 19.5,  # 802.11b, 1 Mbps, for which it draws 240 mA
    },
}
