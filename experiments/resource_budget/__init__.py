"""A resource budget as a schedule: `schedule: {name: "experiments.resource_budget:ResourceBudgetSchedule"}`."""

from experiments.resource_budget.schedule import ResourceBudgetSchedule

__all__ = ["ResourceBudgetSchedule"]
