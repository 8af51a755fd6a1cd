"""A second run of one process: in another thread, or in a process that was forked from it."""

import json
import os
import threading

import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.arithmetic import one_thread
from h2fdp.runtime import ray_session
from tests.forks import in_a_child


def run_into(out):
    network = Topology.regular(edges=2, devices=3, trust=0.5, seed=1)
    settings = {"local_steps": 2, "noise_key": "seed", "runtime": {"backend": "inline", "hosts": 2}}
    return Experiment(network, epsilon=20.0, intervals=2, **settings).run(out, progress=False).summary["model_sha256"]


def in_a_thread(action, *arguments):
    thread = threading.Thread(target=action, args=arguments)
    thread.start()
    return thread


def test_runs_of_two_threads_have_the_bits_of_one_and_their_own_logs(tmp_path):
    bits = {}

    def run(name):
        bits[name] = run_into(tmp_path / name)

    for thread in [in_a_thread(run, name) for name in ("one", "other")]:
        thread.join()
    run("alone")
    assert bits["one"] == bits["other"] == bits["alone"]
    for name in ("one", "other"):
        events = [json.loads(line)["event"] for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        assert (events.count("start"), events.count("end")) == (1, 1)


@pytest.mark.process
def test_a_fork_of_a_process_that_ran_runs_to_the_same_bits(tmp_path):
    before = run_into(tmp_path / "before")

    def again():
        assert run_into(tmp_path / "again") == before

    assert in_a_child(again) == 0


def test_a_thread_that_leaves_does_not_give_others_more_threads():
    """MKL has one number for a process, which torch sets from any thread."""
    before, entered, left = torch.get_num_threads(), threading.Event(), threading.Event()

    def other():
        with one_thread():
            entered.set()
            left.wait()

    torch.set_num_threads(2)
    try:
        thread = None
        with one_thread():
            thread = in_a_thread(other)
            entered.wait()
        assert torch.get_num_threads() == 1  # the other one is not done
        left.set()
        thread.join()
        with one_thread():
            pass
        assert torch.get_num_threads() == 1
    finally:
        left.set()
        torch.set_num_threads(before)


def test_two_threads_do_not_use_ray_at_once():
    refused = []

    def session():
        with pytest.raises(UserError, match="another thread of this process runs on Ray") as found:
            ray_session.ray_session(None, 0).__enter__()
        refused.append(found)

    with ray_session._one_thread:
        in_a_thread(session).join()
    assert refused


def test_a_fork_of_a_process_that_used_ray_does_not_use_it(monkeypatch):
    monkeypatch.setattr(ray_session, "_processes", {os.getppid()})
    with pytest.raises(UserError, match="Ray does not survive a fork"):
        ray_session.ray_session(None, 0).__enter__()
