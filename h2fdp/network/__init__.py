"""The tree of cloud, edge servers and devices: read, checked, drawn from a seed, generated, written and pictured."""

from h2fdp.network import mobility  # noqa: F401 - registers itself
from h2fdp.network.adversaries import Adversaries as Adversaries
from h2fdp.network.channel import Access as Access
from h2fdp.network.channel import Fading as Fading
from h2fdp.network.channel import PathLoss as PathLoss
from h2fdp.network.devices import Column as Column
from h2fdp.network.drawing import draw as draw
from h2fdp.network.files import from_document as from_document
from h2fdp.network.files import imported as imported
from h2fdp.network.files import read as read
from h2fdp.network.files import write as write
from h2fdp.network.links import Link as Link
from h2fdp.network.links import Wire as Wire
from h2fdp.network.network import CLOUD as CLOUD
from h2fdp.network.network import TRUSTS as TRUSTS
from h2fdp.network.network import Aggregator as Aggregator
from h2fdp.network.network import Subnet as Subnet
from h2fdp.network.network import Trust as Trust
from h2fdp.network.radio import Radio as Radio
from h2fdp.network.topology import GENERATORS as GENERATORS
from h2fdp.network.topology import Topology as Topology
