"""A small reproduction: two figures on digits, a few intervals, a claim of each kind that matters."""

SWEEP = """
name: {name}
topology:
  name: four
  edges: [{{name: "edge-{{i}}", repeat: 2, devices: {{count: 2, distance_m: {{uniform: [10, 100]}}}}}}]
data: {{name: digits, partition: iid}}
model: softmax
training: {{extends: paper, intervals: 6, local_steps: 4, {aggregation_times}, batch_size: 8, step_size: 0.3,
           sampling: poisson}}
privacy: {{epsilon: 50, calibration: paper, accountant: rdp}}
tracking: {{tensorboard: false}}
control: {{tau_max: 8}}
sweep:
  seed: [1, 2]
{grid}
"""
FILES = {
    "one.yaml": SWEEP.format(
        name="one",
        aggregation_times="aggregate_every: 2",
        grid='  "method, privacy.calibration": [[hfl, paper], [h2fdp, paper]]',
    ),
    "two.yaml": SWEEP.format(
        name="two", aggregation_times="aggregate_every: 2", grid="  training.step_size: [0.3, 0.03]"
    ),
    "three.yaml": SWEEP.format(
        name="three",
        aggregation_times="aggregations_per_interval: 1",
        grid="  method: [h2fdp-adaptive]\n  control.alpha1: [0.01, 1, 1000]",
    ),
    "figures.yaml": """
quick: {training.intervals: 4}
accounted: {privacy.epsilon: 20, privacy.calibration: accounted}
data_sets:
  digits: {title: Digits}
  other: {title: Other, set: {training.batch_size: 4}, page: other.md}
  wide: {title: "Digits, wide", like: digits, set: {model: mlp}}
figures:
  one:
    file: one.yaml
    title: noise and none
    data_sets: [digits, other]
    accounted:
      "sweep.method, privacy.calibration": [[hfl, paper], [h2fdp, accounted]]
      privacy.epsilon: 20
    panels:
      - kind: curves
        lines:
          - {label: no noise, at: {method: hfl}}
          - {label: "noise, p_c", at: {method: h2fdp}}
  two:
    file: two.yaml
    title: steps
    data_sets: [digits]
    panels:
      - {kind: levels, measure: final accuracy, axis: step, x: [0.3, 0.03],
         lines: [{label: noise, points: {training.step_size: [0.3, 0.03]}}]}
      - {kind: bars, measure: energy to target, target: 99, lines: [{label: noise, at: {training.step_size: 0.3}}]}
  three:
    file: three.yaml
    title: control
    decided: true
    data_sets: [digits]
    accounted: {privacy.c2: 2}
    panels:
      - {kind: levels, measure: mean tau, axis: alpha1, x: [0.01, 1, 1000], log: true,
         lines: [{label: tau, points: {control.alpha1: [0.01, 1, 1000]}}]}
""",
    "claims.yaml": """
claims:
  - id: noise-costs
    figure: one
    source: Sec. 1
    words: noise costs accuracy
    measure: final accuracy
    comparison: difference
    points: [[{method: hfl}, {method: h2fdp}]]
    relation: at most
    paper: {digits: 500, other: 400}
  - id: energy
    figure: two
    source: Sec. 2
    words: small steps cost energy
    measure: energy to target
    target: 99
    comparison: saving
    points: [{training.step_size: [0.3, 0.03]}]
    paper: {digits: 10}
  - id: tau
    figure: three
    source: Sec. 3
    words: tau rises
    measure: mean tau
    comparison: least rise
    points: [{control.alpha1: [0.01, 1, 1000]}]
    paper: {digits: null}
""",
}


def folder(path, **changed):
    """Write the files, some of them changed by (old, new) text under their names without an ending."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        old, new = changed.get(name.removesuffix(".yaml"), ("", ""))
        assert old in text
        (path / name).write_text(text.replace(old, new, 1) if old else text)
    return path
