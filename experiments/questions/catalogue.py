"""All questions by name, in the order of the pages."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.questions.bits import Bits
from experiments.questions.buffers import Buffers
from experiments.questions.cars import Cars
from experiments.questions.depth import Depth
from experiments.questions.devices import Devices
from experiments.questions.faults import Faults
from experiments.questions.labels import Labels
from experiments.questions.liars import Liars
from experiments.questions.observers import Observers
from experiments.questions.secure_sums import SecureSums
from experiments.questions.silos import Silos
from experiments.questions.study import Question
from experiments.questions.trust import Trust

_ALL: tuple[Question, ...] = (
    Trust(),
    SecureSums(),
    Depth(),
    Labels(),
    Observers(),
    Faults(),
    Devices(),
    Bits(),
    Buffers(),
    Cars(),
    Liars(),
    Silos(),
)
QUESTIONS: Mapping[str, Question] = {question.name: question for question in _ALL}
