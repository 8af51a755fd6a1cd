"""ALI-DPFL, both versions: `schedule: {name: "experiments.ali_dpfl:AliDpfl"}`."""

from experiments.ali_dpfl.schedules import AliDpfl, AliDpflFirst

__all__ = ["AliDpfl", "AliDpflFirst"]
