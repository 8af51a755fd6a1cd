"""Every mistake in a topology file is told with file, line and key, all at once."""

from pathlib import Path

import pytest

from h2fdp.config import Document, parse
from h2fdp.errors import UserError
from h2fdp.network import from_document

DEVICE = "devices: {count: 2}"


def mistakes(text):
    with pytest.raises(UserError) as caught:
        from_document(Document("a.yaml", parse(text, "a.yaml"), Path()), 1)
    return str(caught.value).splitlines()


def edge(body):
    return f"edges:\n  - {{name: a, {body}}}\n"


@pytest.mark.parametrize(("text", "line"), [
(edge("trusted: true"), "2: edges[0]: expected `devices:` or `edges:`, found neither"),
(edge("devices: {count: 2, distance_m: -3}"), "2: edges[0].devices.distance_m: expected a finite number above"),
(edge("devices: {count: 2, distance_m: [1]}"), "2: edges[0].devices: expected as many distance_m as devices"),
(edge("devices: {count: 2, distance_m: {uniform: [9, 1]}}"),
     "2: edges[0].devices.distance_m.uniform: expected the lowest value first, found [9, 1]"),
(edge(f"{DEVICE}, trustd: true"), "2: edges[0].trustd: unknown key; did you mean `trusted`?"),
(edge(f"{DEVICE}, trust: some"),
     '2: edges[0].trust: expected one of untrusted, relay, secure-sum, trusted, true or false, found "some"'),
(edge(f"{DEVICE}, trust: trusted, trusted: true"),
     "2: edges[0].trusted: is another word for `trust`; expected one of the two, found both"),
(edge(DEVICE) + "trust: {trusted: 0.8, secure-sum: 0.3, exact: true}",
     "3: trust: expected shares whose sum is at most 1, found 0.8 and 0.3"),
(edge(DEVICE) + "trust: {trusted: 0.8, probability: 0.3}",
     "3: trust.probability: is another word for `trusted`; expected one of the two, found both"),
(edge(DEVICE) + 'trust: {trusted: 0.8, exact: "yes"}', '3: trust.exact: expected true or false, found "yes"'),
(edge(DEVICE) + "trust: {share: 0.8}", "3: trust.share: unknown key; did you mean `exact`?"),
(edge(DEVICE) + "cloud: {trust: trusted}",
     '3: cloud.trust: expected one of untrusted, secure-sum, found "trusted"'),
(edge(f"{DEVICE}, link: {{rate_mbps: 0}}"), "2: edges[0].link.rate_mbps: expected a number above 0, or `unl"),
(edge(DEVICE) + "trust: {probability: 1.2}", "3: trust.probability: expected a number from 0 to 1, found 1.2"),
(edge("devices: {count: 2, power_dbm: 24000}"), "2: edges[0].devices.power_dbm: expected a number from -300 to"),
(edge(DEVICE) + "radio: {access: cdma}",
     '3: radio.access: expected one of tdma, ofdma, over-the-air, or module:Name, found "cdma"; did you mean `tdma`?'),
(edge(DEVICE) + "radio: {access: {name: ofdma, shares: fair}}",
     "3: radio.access.shares: expected "),
(edge(DEVICE) + "radio: {access: {name: over-the-air, truncate_db: 3}}",
     "3: radio.access.truncate_db: expected a number from -100 to 0, found 3"),
(edge("devices: [{name: x}, {name: x}]"), '2: edges[0].devices[1].name: duplicate name "x" (first on line 2)'),
(edge("devices: [{name: b/3}]") + "  - {name: b, devices: {count: {uniform: [2, 3]}}}",
     '2: edges[0].devices[0].name: the name "b/3" is that of a device of edge server "b" already'),
(edge("devices: [{name: a/2}, {}]"),
     '2: edges[0].devices[0].name: the name "a/2" is that of a device of edge server "a" already'),
(edge("devices: [{name: cloud}]"), '2: edges[0].devices[0].name: the name "cloud" is reserved'),
('edges: [{name: "a\\nb", devices: [{}]}]', "1: edges[0].name: a name has printable characters only"),
("edges: {a: 1}", "1: edges: expected a list of at least one edge server, found keys and values"),
])  # fmt: skip
def test_one_mistake_is_one_line(text, line):
    found = mistakes(text)
    assert len(found) == 1
    assert found[0].startswith(f"a.yaml:{line}")


def test_mistakes_of_all_sorts_come_together_in_the_order_of_their_lines():
    found = mistakes("""name: campus
trust: {probability: 1.2}
radoi: {bandwidth_mhz: 1}
edges:
  - name: library
    trusted: maybe
    devices: [{name: cam-1, distance_m: -4}]
  - name: library
    devices: {count: 0}
""")
    assert [line.split(": ")[0] for line in found] == [f"a.yaml:{line}" for line in (2, 3, 6, 7, 9)]
