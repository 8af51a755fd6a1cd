"""Where nodes live: this process or Ray actors, and which subnets on which host."""

from h2fdp.runtime.backends import start_hosts
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.host import run_interval
from h2fdp.runtime.section import RuntimeSection, chosen_backend

__all__ = ["Blueprint", "RuntimeSection", "chosen_backend", "run_interval", "start_hosts"]
