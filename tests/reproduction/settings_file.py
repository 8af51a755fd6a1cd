"""Settings for the small reproduction: of two drawn ones, one learns nothing."""

from tests.reproduction.small import folder

SETTINGS = """
design: {seed: 1, settings: 3, working: 2}
axes:
  training.step_size: {least: 0.0001, most: 1}
  training.batch_size: {least: 4, most: 16, whole: true}
  control.alpha2: {least: 0.1, most: 1, figures: [three]}
products: {both: [training.step_size, training.batch_size]}
changes: {privacy.c2: 1.2}
trial: {figure: one, seeds: [1], intervals: 2, sweep: {method: [hfl]}}
works: [{at: {method: hfl}, least: 20, otherwise: it learns too little}]
figures:
  one: {method: [hfl, h2fdp]}
screen: {seeds: [1, 2], intervals: 2}
confirm: {plausible: {method: h2fdp}, seeds: [7, 8], intervals: 3, figures: [one]}
decisions:
  design: {seed: 1, settings: 2}
  axes: {weight: {least: 1, most: 10}, control.solver: {of: [exact, two-level]}}
  figures: {three: control.alpha2}
  seeds: [1, 2]
  intervals: 2
"""


LADDER = ("control.alpha1: [0.01, 1, 1000]", '"control.alpha1, control.alpha2": [[0.01, 1], [1, 1], [1000, 1]]')


def folder_with_settings(path):
    """The small reproduction with a file of settings, and a second weight that the controller's ladder leaves alone."""
    folder(path, three=LADDER)
    (path / "settings.yaml").write_text(SETTINGS)
    return path
