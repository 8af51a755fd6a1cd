"""The cost of one message: the model's Q M bits over every device's channel and over every wired link.

H2FDP, Appendix D: a device at distance d that sends with power p over bandwidth W has the signal-to-noise ratio
(SNR) p beta(d) |u|^2 / (N0 W); the rate is R = W log2(1 + SNR). |u|^2, the power of the fading, is drawn for each
interval and holds all through it (block fading). A message takes t = Q M / R seconds and p t joules; one that a stage
makes shorter has fewer bits. Everything is a flat array over the whole network, devices in the order of the tree.

Where devices choose their power (:mod:`h2fdp.costs.device_costs`), that is what they send with. What comes down to
them takes as long as it would at their own power: an edge server does not send with less because a device does. (The
paper has the same rate both ways.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from h2fdp.costs.device_costs import FrequencyRule, PowerRule, StepCosts, analog_sums, step_costs
from h2fdp.errors import UserError
from h2fdp.network import Link, Topology
from h2fdp.network.devices import Floats, Integers
from h2fdp.network.radio import ratio
from h2fdp.streams import Streams

DBM_OF_A_WATT = 30.0
_LN2 = float(np.log(2.0))


def watts(power_dbm: Floats | float) -> Floats:
    """Power in watts from decibels above a milliwatt.

    >>> watts(np.array([30.0, 0.0])).tolist()
    [1.0, 0.001]
    """
    return ratio(np.asarray(power_dbm, dtype=np.float64) - DBM_OF_A_WATT)


def path_gain_db(topology: Topology, streams: Streams) -> Floats:
    """(I,) 10 log10 beta, the gain of every device's channel where |u|^2 = 1, in the order of the tree.

    What a path loss draws, it draws from a stream of each access point, the same in every interval.

    >>> from h2fdp.network import Subnet
    >>> near = Topology("net", (Subnet("a", True, {"distance_m": [1.0, 10.0, 100.0]}),))
    >>> path_gain_db(near, Streams(1)).tolist()
    [-30.0, -67.5, -105.0]
    """
    distance_m = topology.table.columns["distance_m"]
    names, sizes = topology.access_points
    return np.concatenate(
        [
            topology.radio.gain_db(of_point, streams.open(name, "path loss"))
            for name, of_point in zip(names, np.split(distance_m, np.cumsum(sizes)[:-1]), strict=True)
        ]
    )


def mean_snr(topology: Topology, streams: Streams) -> Floats:
    """(I,) p beta / (N0 W), each device's signal-to-noise ratio over the whole bandwidth where |u|^2 = 1.

    It is added up in decibels: power and gain alone may be too small for a float where their ratio to the noise is not.
    """
    radio = topology.radio
    power_dbm = topology.table.columns["power_dbm"]
    noise_dbm = radio.noise_dbm_per_hz + 10 * np.log10(radio.bandwidth_hz)
    return ratio(power_dbm + path_gain_db(topology, streams) - noise_dbm)


def rate_bps(snr: Floats, bandwidth_hz: float) -> Floats:
    """R = W log2(1 + SNR), in bits a second; accurate for the smallest ratios too.

    >>> rate_bps(np.array([1.0, 3.0]), bandwidth_hz=1e6).tolist()
    [1000000.0, 2000000.0]
    """
    return bandwidth_hz * np.log1p(snr) / _LN2


def fading_power(topology: Topology, streams: Streams, interval: int) -> Floats:
    """(I,) |u|^2 of every device in one interval, in the order of the tree.

    Each access point has a stream of its own for each interval, so a draw depends on no other part of the network, and
    is the same in a tree and in its star.
    """
    names, sizes = topology.access_points
    return np.concatenate(
        [
            topology.radio.fading_power(streams.open(name, "fading", interval), size)
            for name, size in zip(names, sizes.tolist(), strict=True)
        ]
    )


_NO_LINK = "the rate and power of its link give no finite cost of a message"
_SNR_RANGE = 1e-290, 1e290  # far beyond any channel, and far enough from what overflows


class Ways:
    """The cost of a message on each of n links, up to the node above and down again; arrays are read-only.

    Attributes:
        seconds: (n,) the mean of both directions, of messages that are ready at the start of the run.
        steady: (n,) the seconds of wires, which do not depend on the moment; 0 for other links, see `more`.
        joules: (n,) of a message up.
        wait: whether any link is no wire.
    """

    def __init__(self, links: Sequence[Link], up_bits: int, down_bits: int) -> None:
        """Ask links that stand for several nodes once.

        Args:
            up_bits, down_bits: of a message in each direction. Wires take the mean of both in either.
        """
        self._links, self._up_bits, self._down_bits = links, up_bits, down_bits
        asked = {id(link): self._asked(link) for link in links}
        answers = np.array([asked[id(link)] for link in links], dtype=np.float64).reshape(-1, 2)
        waits = np.array([not link.plain for link in links], dtype=bool)
        self.wait, self.seconds, self.joules = bool(waits.any()), answers[:, 0].copy(), answers[:, 1].copy()
        self.steady = np.where(waits, 0.0, self.seconds)
        for values in (self.seconds, self.joules, self.steady):
            values.flags.writeable = False

    def _asked(self, link: Link) -> tuple[float, float]:
        up, down = self._up_bits, self._down_bits
        seconds = link.seconds((down + up) / 2) if link.plain else (link.seconds(up) + link.down(down)) / 2
        return seconds, link.joules(up)

    def more(self, number: int, ready_s: float, up: bool) -> float:
        """Seconds of a message over a link that asks for the moment at which it is ready; 0 for a wire."""
        link = self._links[number]
        if link.plain:
            return 0.0
        return link.seconds(self._up_bits, ready_s) if up else link.down(self._down_bits, ready_s)

    def of(self, numbers: Integers, ready_s: float, up: bool) -> Floats:
        """(k,) seconds of messages in one direction over these links that are ready at a moment."""
        seconds = self.steady[numbers]
        if self.wait:
            seconds = seconds + [self.more(number, ready_s, up) for number in numbers.tolist()]
        return seconds


@dataclass(frozen=True, eq=False)
class MessageCosts:
    """The cost of one message on each link of a network; the arrays are read-only.

    Attributes:
        seconds: (I,) t_j, of an upload from a device to its edge server over the whole bandwidth.
        down_seconds: (I,) from the edge server down to the device: t_j at the device's own power.
        joules: (I,) e_j = p_j t_j.
        link_seconds: (N,) tbar_c, from a lowest edge server to the node above it, the cloud in a network of two tiers;
            0 where the link is infinitely fast.
        link_joules: (N,) ebar_c = pbar_c tbar_c.
        relay_seconds: (I,) in a star, over the wire from a device's access point to the cloud; 0 where there is none.
        relay_joules: (I,) the energy of that, spent by the access point.
        links, upper_links: from each access point, and from each aggregator, at any moment of the clock.
        step: of local steps, at the devices' own frequencies.
        upload_bits, uplink_bits: of what a device, and an edge server, sends up. Where these are fewer than come down,
            seconds on wires, which count twice, are the mean of both ways, and joules those of the way up.
    """

    seconds: Floats
    down_seconds: Floats
    joules: Floats
    link_seconds: Floats
    link_joules: Floats
    relay_seconds: Floats
    relay_joules: Floats
    links: Ways
    upper_links: Ways
    step: StepCosts
    upload_bits: int
    uplink_bits: int

    def __post_init__(self) -> None:
        for each in fields(self):
            values = getattr(self, each.name)
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    @property
    def sooner(self) -> Floats:
        """(I,) seconds by which a message comes down sooner than it goes up; 0 where no power is chosen."""
        return self.seconds - self.down_seconds


@dataclass(frozen=True, eq=False)
class DrawnCosts(MessageCosts):
    """The costs of one interval, whose channels are drawn.

    Attributes:
        snr: (I,) p |h|^2 / (N0 W), each device's signal-to-noise ratio over the whole bandwidth. Devices that share the
            bandwidth need it: over a part of it the noise is less.
        down_snr: (I,) the same at the device's own power.
        power_dbm: (I,) with which each device sends.
    """

    snr: Floats
    down_snr: Floats
    power_dbm: Floats


Shortened = Callable[[float, int], float]


def _whole(bits: float, size: int) -> float:
    """The size of a message that nothing makes smaller."""
    return bits


class NetworkCosts:
    """Message costs of a network, for each interval and in the mean.

    >>> network = NetworkCosts(Topology.regular(edges=3, devices=2), parameters=7840, streams=Streams(1))
    >>> network.drawn(interval=0).seconds.shape, network.expected().link_seconds.tolist()
    ((6,), [0.0025088, 0.0025088, 0.0025088])
    """

    def __init__(
        self,
        topology: Topology,
        parameters: int,
        streams: Streams,
        power: PowerRule | None = None,
        records: Floats | None = None,
        upload: Shortened = _whole,
        uplink: Shortened = _whole,
        downlink: Shortened = _whole,
        frequency: FrequencyRule | None = None,
    ) -> None:
        """Work out what does not change from interval to interval.

        Args:
            topology: the network.
            parameters: M, the number of the model's parameters; a message has `radio.bits_per_parameter` bits for each.
            streams: the run's randomness; path loss and fading are drawn from it.
            power: how devices choose their power; None where each sends with its own. It is below all of these.
            records: (I,) the mean number of records in a local step of each device; None for one record.
            upload: from the bits of a message and the numbers in it to the bits of a device's upload.
            uplink, downlink: likewise to those of what an edge server sends up, and of a model that is sent down.
            frequency: how devices choose how fast they compute; None where each does it as fast as it can.

        Raises:
            UserError: a channel or link whose costs no float can hold; a user's own radio model that fails.
        """
        self._topology, self._parameters, self._streams, self._power = topology, parameters, streams, power
        self._own_dbm = topology.table.columns["power_dbm"]
        self._mean_snr = mean_snr(topology, streams)
        self._own_w = watts(self._own_dbm)
        sizes = topology.access_points[1]
        self._sums = analog_sums(topology.radio, parameters, self._own_w, self._own_dbm, self._mean_snr, sizes)
        self.step = step_costs(
            topology.table.columns, np.ones(topology.devices) if records is None else records, frequency
        )
        message = self.message_bits
        self.upload_bits = math.ceil(upload(message, parameters))
        self.uplink_bits = math.ceil(uplink(message, parameters))
        down_bits = math.ceil(downlink(message, parameters))
        self._down = down_bits / self.upload_bits  # a message down over one up
        self._wired = _wired_costs(topology, down_bits, self.upload_bits, self.uplink_bits)
        self.links: Ways = self._wired["links"]
        self._refuse_what_no_float_holds()

    @property
    def chooses_power(self) -> bool:
        """Whether devices choose the power that they send with."""
        return self._power is not None

    @property
    def message_bits(self) -> int:
        """Q M, the bits of one message."""
        return self._topology.radio.bits_per_parameter * self._parameters

    def drawn(self, interval: int) -> DrawnCosts:
        """The costs under the fading of one interval; the same again for the same seed and interval."""
        fading = fading_power(self._topology, self._streams, interval)
        own = self._sent(self._own_dbm, self._own_w, self._mean_snr * fading)
        sent = own if self._power is None else self._at_chosen_power(self._power, own["snr"])
        if self._sums is not None:
            sent = self._sums.sent(fading)
        down: dict[str, Any] = {"down_seconds": own["seconds"] * self._down, "down_snr": own["snr"]}
        return DrawnCosts(**sent, **down, **self._wired, step=self.step)

    @property
    def sends(self) -> Callable[[int], np.ndarray] | None:
        """Interval -> (I,) whether a device's channel lets it take part; None where it always does."""
        return None if self._sums is None else self._sending

    def _sending(self, interval: int) -> np.ndarray:
        assert self._sums is not None, "channels keep devices from sums over the air alone"
        return self._sums.sends(fading_power(self._topology, self._streams, interval))

    def expected(self) -> MessageCosts:
        """The mean costs over the fading, by quadrature; computed once.

        Raises:
            UserError: with a power that devices choose, a user's own fading that is no `Fading`.
        """
        return self._expected

    @cached_property
    def _expected(self) -> MessageCosts:
        own = self._topology.radio.mean_seconds(self.upload_bits, self._mean_snr)
        seconds, joules = own, self._own_w * own
        if self._power is not None:
            seconds, joules = self._expected_at_chosen_power(self._power)
        if self._sums is not None:
            seconds, joules = np.full(len(own), self._sums.seconds), self._sums.mean_joules(self._topology.radio)
        down = own * self._down
        return MessageCosts(seconds=seconds, down_seconds=down, joules=joules, **self._wired, step=self.step)

    def _sent(self, power_dbm: Floats, power_w: Floats, snr: Floats) -> dict[str, Any]:
        """The messages of devices: (I,) `seconds` and `joules` of a message, `snr` and `power_dbm`."""
        seconds = self.upload_bits / rate_bps(snr, self._topology.radio.bandwidth_hz)
        return {"seconds": seconds, "joules": power_w * seconds, "snr": snr, "power_dbm": power_dbm}

    def _at_chosen_power(self, power: PowerRule, own_snr: Floats) -> dict[str, Any]:
        """The messages of devices that would have this signal-to-noise ratio at their own power."""
        chosen_dbm = power.chosen_dbm(self._own_dbm, own_snr)
        return self._sent(chosen_dbm, watts(chosen_dbm), own_snr * ratio(chosen_dbm - self._own_dbm))

    def _expected_at_chosen_power(self, power: PowerRule) -> tuple[Floats, Floats]:
        """(I,) mean seconds and joules, each over the power that is chosen under each fading.

        Seconds and joules bend where the choice meets an end of its range: they are right to some three digits, their
        weighed sum, which does not bend, to five.
        """
        seconds, joules = np.zeros_like(self._mean_snr), np.zeros_like(self._mean_snr)
        for fading, weight in zip(*self._topology.radio.quadrature(), strict=True):
            sent = self._at_chosen_power(power, self._mean_snr * fading)
            seconds, joules = seconds + weight * sent["seconds"], joules + weight * sent["joules"]
        return seconds, joules

    def _refuse_what_no_float_holds(self) -> None:
        radio = self._topology.radio
        with np.errstate(all="ignore"):
            least = self._mean_snr * radio.least_fading()
            if self._power is not None:
                least = least * ratio(self._power.least_dbm - self._own_dbm)
            possible = (least > _SNR_RANGE[0]) & (np.maximum(least, self._mean_snr) < _SNR_RANGE[1])
            dearest = self._own_w * self.message_bits / rate_bps(least, radio.bandwidth_hz)
        names, sizes = self._topology.access_points
        upper = self._topology.aggregators, self._wired["upper_links"].joules
        for servers, link_joules in ((self._topology.subnets, self._wired["link_joules"]), upper):
            link_well = np.isfinite(link_joules)
            if not link_well.all():
                raise UserError(_NO_LINK, key=servers[int(np.argmin(link_well))].name)
        relay_well = np.isfinite(self._wired["relay_joules"])
        if not relay_well.all():
            raise UserError(_NO_LINK, key=names[_place(sizes, int(np.argmin(relay_well)))[0]])
        device_well = possible & np.isfinite(dearest)
        if not device_well.all():
            number, row = _place(self._topology.sizes, int(np.argmin(device_well)))
            name = self._topology.subnets[number].device_name(row)
            raise UserError("its distance, power and channel give no finite cost of a message", key=name)


def _place(sizes: Integers, device: int) -> tuple[int, int]:
    """The group that a device of the network is in, and its row there."""
    starts = np.cumsum(sizes) - sizes
    group = int(np.searchsorted(starts, device, side="right")) - 1
    return group, device - int(starts[group])


def _wired_costs(topology: Topology, bits: int, upload_bits: int, uplink_bits: int) -> dict[str, Any]:
    """The costs of a message over the wires: links to the node above, and relays in a star."""
    relays, devices = topology.subnets[0].relays, topology.devices
    with np.errstate(all="ignore"):  # what is not finite is refused with the name of its node
        low = Ways([each.link for each in topology.subnets], uplink_bits, bits)
        upper = Ways([each.link for each in topology.aggregators], uplink_bits, bits)
        links = low if relays is None else Ways(relays.links, upload_bits, bits)
    return {
        "link_seconds": low.seconds,
        "link_joules": low.joules,
        "relay_seconds": np.zeros(devices) if relays is None else relays.of_devices(links.seconds),
        "relay_joules": np.zeros(devices) if relays is None else relays.of_devices(links.joules),
        "links": links,
        "upper_links": upper,
        "upload_bits": upload_bits,
        "uplink_bits": uplink_bits,
    }
