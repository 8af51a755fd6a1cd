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
    (edge("trusted: true"), "2: edges[0].devices: the key is missing; expected a list of at least one device"),
    (edge("devices: []"), "2: edges[0].devices: expected a list of at least one device or {count: ...}, or `edges:`"),
    (edge("devices: {count: 0}"), "2: edges[0].devices.count: expected a whole number of at least 1"),
    (edge("devices: {count: 2, distance_m: -3}"), "2: edges[0].devices.distance_m: expected a finite number above"),
    (edge("devices: {count: 2, distance_m: .nan}"), "2: edges[0].devices.distance_m: expected a finite number"),
    (edge("devices: {count: 2, distance_m: [1, 0]}"), "2: edges[0].devices.distance_m[1]: expected a finite number"),
    (edge("devices: {count: 2, distance_m: [1]}"), "2: edges[0].devices: expected as many distance_m as devices"),
    (edge("devices: {count: 2, distance_m: {uniform: [9, 1]}}"),
     "2: edges[0].devices.distance_m.uniform: expected the lowest value first, found [9, 1]"),
    (edge("devices: {count: 2, distance_m: {uniform: [9]}}"),
     "2: edges[0].devices.distance_m.uniform: expected [lowest, highest], found a list"),
    (edge("devices: [{distance_m: near}]"), "2: edges[0].devices[0].distance_m: expected a finite number above 0"),
    (edge("devices: 3"), "2: edges[0].devices: expected a list of at least one device or {count: ...}, or `edges:`"),
    (edge(f"{DEVICE}, trusted: 1"), "2: edges[0].trusted: expected true or false, found 1"),
    (edge(f"{DEVICE}, trustd: true"), "2: edges[0].trustd: unknown key; did you mean `trusted`?"),
    (edge(f"{DEVICE}, trust: some"),
     '2: edges[0].trust: expected one of untrusted, secure-sum, trusted, found "some"'),
    (edge(f"{DEVICE}, trusted: true, trust: trusted"), "2: edges[0]: expected `trust:` or `trusted:`, found both"),
    (edge(DEVICE) + "trust: {probability: 0.1, secure-sum: 0.2}",
     "3: trust: expected `probability:`, `share:`, or `trusted:` and `secure-sum:`, found several"),
    (edge(DEVICE) + "trust: {share: {trusted: 0.8, secure-sum: 0.3}}",
     "3: trust: expected shares whose sum is at most 1, found 0.8 and 0.3"),
    (edge(DEVICE) + "trust: {trusted: 0.8, secure-sum: 0.3}",
     "3: trust: expected probabilities whose sum is at most 1, found 0.8 and 0.3"),
    (edge(DEVICE) + "trust: {secure-sum: 2}", "3: trust.secure-sum: expected a number from 0 to 1, found 2"),
    (edge(DEVICE) + "trust: {secure_sum: 1}", "3: trust.secure_sum: unknown key; did you mean `secure-sum`?"),
    (edge(f"{DEVICE}, link: {{rate_mbps: 0}}"), "2: edges[0].link.rate_mbps: expected a number above 0, or `unl"),
    (edge(f"{DEVICE}, repeat: 3"), "2: edges[0].name: expected {i} in a name of 3 nodes, as in \"a-{i}\""),
    (edge(DEVICE) + "trust: {probability: 1.2}", "3: trust.probability: expected a number from 0 to 1, found 1.2"),
    (edge("devices: {count: 2, power_dbm: 24000}"), "2: edges[0].devices.power_dbm: expected a number from -300 to"),
    (edge("devices: {count: 2, power_dbm: [1, 101]}"),
     "2: edges[0].devices.power_dbm[1]: expected a number from -300 to 100, found 101"),
    (edge("devices: [{power_dbm: -301}]"), "2: edges[0].devices[0].power_dbm: expected a number from -300 to 100"),
    (edge(f"{DEVICE}, link: {{power_dbm: 500}}"), "2: edges[0].link.power_dbm: expected a number from -300 to 100"),
    *[(edge(DEVICE) + f"radio: {{{key}: {value}}}", f"3: radio.{key}: expected {words}, found {value}")
      for key, words, values in (
          ("fading_floor_db", "a number from -100 to 20", (-101, 21)),
          ("noise_dbm_per_hz", "a number from -300 to 100", (-301, 101)),
          ("bandwidth_mhz", "a number from 1e-6 to 1e6", (0, 20000000)),
          ("bits_per_parameter", "a whole number from 1 to 1024", (0, 1025)))
      for value in values],
    *[(edge(DEVICE) + f"radio: {{pathloss: {{{key}: {value}}}}}",
       f"3: radio.pathloss.{key}: expected a number from {words}, found {value}")
      for key, words, value in (("beta0_db", "-300 to 100", -301), ("exponent", "0 to 20", 21))],
    (edge(DEVICE) + "radio: {access: cdma}",
     '3: radio.access: expected one of tdma, ofdma, or module:Name, found "cdma"; did you mean `tdma`?'),
    (edge(DEVICE) + "  - {name: a, devices: {count: 1}}", '3: edges[1].name: duplicate name "a" (first on line 2)'),
    (edge("devices: [{name: x}, {name: x}]"), '2: edges[0].devices[1].name: duplicate name "x" (first on line 2)'),
    (edge("devices: [{name: a}]"), '2: edges[0].devices[0].name: duplicate name "a" (first on line 2)'),
    (edge(DEVICE) + "  - {name: b, devices: [{name: a/2}]}",
     '3: edges[1].devices[0].name: the name "a/2" is that of a device of edge server "a" already'),
    (edge("devices: [{name: cloud}]"), '2: edges[0].devices[0].name: the name "cloud" is reserved'),
    (edge(DEVICE) + "  - {name: cloud, devices: {count: 1}}", '3: edges[1].name: the name "cloud" is reserved'),
    ('edges: [{name: " a", devices: [{}]}]', "1: edges[0].name: a name has printable characters only"),
    ('edges: [{name: "a\\nb", devices: [{}]}]', "1: edges[0].name: a name has printable characters only"),
    ("edges: [{name: '', devices: [{}]}]", "1: edges[0].name: expected a text of 1 to 200 characters"),
    ("edges: [{name: 3, devices: [{}]}]", "1: edges[0].name: expected a text of 1 to 200 characters, found 3"),
    ("edges: []", "1: edges: expected a list of at least one edge server, found an empty list"),
    ("name: x", "1: edges: the key is missing; expected a list of at least one edge server"),
    ("edges: {a: 1}", "1: edges: expected a list of at least one edge server, found keys and values"),
    ("edges: [3]", "1: edges[0]: expected keys and values, found 3"),
    ("edges: [{name: 'a-{i}', repeat: 2000000000, devices: {count: 1}}]", "1: edges: expected at most 100,000 edge"),
    ("edges: [{name: a, devices: {count: 2000000000}}]", "1: edges: expected at most 10,000,000 devices"),
    ("edges: [{name: a, devices: {count: {uniform: [1, 2000000000]}}}]", "1: edges: expected at most 10,000,000"),
])  # fmt: skip
def test_one_mistake_is_one_line(text, line):
    found = mistakes(text)
    assert len(found) == 1
    assert found[0].startswith(f"a.yaml:{line}")


def test_edge_servers_under_an_edge_server_are_known_by_a_misspelt_key_too():
    assert mistakes(edge("edgs: [{name: b}]")) == [
        "a.yaml:2: edges[0].edges: the key is missing; expected a list of at least one edge server",
        "a.yaml:2: edges[0].edgs: unknown key; did you mean `edges`?",
    ]


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


def test_a_template_that_collides_is_told_once():
    found = mistakes("edges:\n  - {name: h-3, devices: [{}]}\n  - {name: 'h-{i}', repeat: 50, devices: [{}]}\n")
    assert found == ['a.yaml:3: edges[1].name: duplicate name "h-3" (first on line 2)']
