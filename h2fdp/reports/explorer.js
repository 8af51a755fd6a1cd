// A sweep along one or two of its keys.
const bar = (title) => ({ title: { text: title, side: "right", font: { size: 13 } }, thickness: 12, outlinewidth: 0, len: 1 });
const shortened = (name) => (name.length > 18 ? name.slice(0, 17) + "…" : name);

function chooser(figure, name, label, options, chosen) {
  const wrapper = document.createElement("label");
  const select = document.createElement("select");
  select.name = name;
  for (const [value, text] of options) select.add(new Option(text, value, false, value === chosen));
  select.addEventListener("change", () => drawExplorer(figure));
  wrapper.append(label + " ", select);
  wrapper.dataset.role = name;
  return wrapper;
}

function setUpExplorer(figure) {
  const keys = Object.keys(figure.keys);
  const place = document.getElementById("choices-" + figure.key);
  const names = keys.map((key) => [key, key]);
  place.append(chooser(figure, "metric", "Show", Object.entries(figure.metrics).map(([key, [title]]) => [key, title])));
  place.append(chooser(figure, "x", "along", names, keys[0]));
  place.append(chooser(figure, "y", "and", [...names, ["", "nothing else"]], keys[1] ?? ""));
  const few = keys.length < 2 || figure.keys[keys[1]].length <= report.dashes.length;
  place.append(chooser(figure, "look", "as", [["lines", "lines"], ["colours", "colours"]], few ? "lines" : "colours"));
  for (const key of keys) {
    place.append(chooser(figure, "at " + key, "at " + key + " =", figure.keys[key].map((value, at) => [String(at), value])));
  }
}

function drawExplorer(figure) {
  const keys = Object.keys(figure.keys);
  const place = document.getElementById("choices-" + figure.key);
  const chosen = (name) => place.querySelector(`select[name="${CSS.escape(name)}"]`).value;
  const [x, y] = [chosen("x"), chosen("y") === chosen("x") ? "" : chosen("y")];
  for (const key of keys) place.querySelector(`[data-role="${CSS.escape("at " + key)}"]`).hidden = key === x || key === y;
  const rest = keys.filter((key) => key !== x && key !== y);
  const [title, found] = figure.metrics[chosen("metric")];
  const cell = (at) => {
    const wanted = (key) => (key in at ? at[key] : Number(chosen("at " + key)));
    const point = figure.points.findIndex((each) => keys.every((key, number) => each[number] === wanted(key)));
    return point < 0 ? null : found[point];
  };
  const across = figure.keys[x].map((_, number) => number);
  const where = rest.map((key) => `${key} = ${figure.keys[key][Number(chosen("at " + key))]}`).join(", ");
  const ticks = { tickvals: across, ticktext: figure.keys[x].map((value) => plain(shortened(value))), type: "linear", tickangle: "auto" };
  const xaxis = axis(plain(x) + (where ? ` (${plain(where)})` : ""), { ...ticks, zeroline: false });
  const several = y !== "" && chosen("look") === "lines";
  place.querySelector('[data-role="look"]').hidden = y === "";
  if (y === "" || several) {
    const colours = curveColours();
    const rows = several ? figure.keys[y] : [""];
    const traces = rows.map((value, row) => {
      const cells = across.map((number) => cell(several ? { [x]: number, [y]: row } : { [x]: number }));
      const kept = across.filter((number) => cells[number] !== null);
      const take = (of) => kept.map((at) => of(cells[at]));
      const tint = colours[row % colours.length];
      return {
        x: kept.map((at) => at + (row - (rows.length - 1) / 2) * 0.04), // apart, so that no bar hides another
        y: take((each) => each[0]), mode: "lines+markers", name: plain(`${y} = ${shortened(value)}`),
        error_y: { type: "data", symmetric: false, array: take((each) => each[2] - each[0]), arrayminus: take((each) => each[0] - each[1]), color: tint, thickness: 1.5, width: 5 },
        line: { color: tint, dash: report.dashes[row % report.dashes.length] }, marker: { color: tint, size: 8, symbol: report.series[row].marker },
        customdata: take((each) => `${each[1].toPrecision(4)} to ${each[2].toPrecision(4)}`),
        hovertemplate: "%{y:.4g}<br>95 % interval over seeds: %{customdata}<extra></extra>",
      };
    });
    const legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
    const yaxis = axis(plain(title), { type: "linear", tickvals: null, ticktext: null });
    Plotly.react(plotOf(figure), traces, layout({ height: 340, xaxis, yaxis, legend, showlegend: several }), settings);
    return;
  }
  const up = figure.keys[y].map((_, number) => number);
  const cells = up.map((row) => across.map((number) => cell({ [x]: number, [y]: row })));
  const words = (each) => (each ? Number(each[0].toPrecision(3)).toString() : "");
  const trace = {
    type: "heatmap", x: across, y: up, z: cells.map((row) => row.map((each) => each?.[0] ?? null)), colorscale: "Cividis",
    colorbar: bar(plain(title)), text: cells.map((row) => row.map(words)), xgap: 2, ygap: 2,
    texttemplate: across.length <= (compact() ? 5 : 12) ? "%{text}" : "",
    customdata: cells.map((row) => row.map((each) => (each ? `${each[1].toPrecision(4)} to ${each[2].toPrecision(4)}` : ""))),
    hovertemplate: "%{z:.4g}<br>95 % interval over seeds: %{customdata}<extra></extra>",
  };
  const yTicks = { tickvals: up, ticktext: figure.keys[y].map((value) => plain(shortened(value))), zeroline: false, type: "linear" };
  const height = Math.max(300, Math.min(640, 110 + 46 * up.length));
  Plotly.react(plotOf(figure), [trace], layout({ height, xaxis, yaxis: axis(plain(y), yTicks) }), settings);
}
