// Lines over the chosen axis.
const isLog = (figure) => document.querySelector(`input[data-log="${figure.key}"]`)?.checked ?? false;

function values(figure, curve) {
  const columns = report.series[curve.series].columns;
  const x = columns[figure.x ?? chosenAxis()] ?? [];
  const y = columns[curve.column] ?? [];
  const kept = x.map((_, at) => at).filter((at) => x[at] !== null && y[at] !== null && y[at] !== undefined);
  const take = (name) => kept.map((at) => columns[name][at]);
  return { x: kept.map((at) => x[at]), y: take(curve.column), take };
}

function curveTraces(figure, curve, colours) {
  const series = report.series[curve.series];
  const number = alone ? curve.style : curve.series;
  const tint = colours[number % colours.length];
  const { x, y, take } = values(figure, curve);
  const shape = curve.stepped ? "hvh" : "linear";
  const line = { color: tint, width: 2, dash: report.dashes[curve.style % report.dashes.length], shape };
  const traces = [];
  if (curve.band) {
    const edge = { x, mode: "lines", hoverinfo: "skip", line: { width: 0, shape } };
    traces.push({ ...edge, y: take(curve.band[0]) });
    traces.push({ ...edge, y: take(curve.band[1]), fill: "tonexty", fillcolor: faded(tint, 0.2) });
  }
  const said = curve.words && take(curve.words).map((words) => (words ? "<br>" + plain(words).replace(/; /g, "<br>") : ""));
  traces.push({
    x, y, line, name: "", ...(said && { text: said }), meta: [plain(series.name), curve.label],
    mode: x.length === 1 || !alone ? "lines+markers" : "lines",
    marker: { color: tint, size: 8, symbol: alone ? "circle" : series.marker, maxdisplayed: 9 },
    hovertemplate: "<b>%{meta[0]}</b><br>%{meta[1]}: %{y:.4~g}<br>at %{x:.6~g}" + (said ? "%{text}" : "") + "<extra></extra>",
  });
  return traces;
}

/** Powers of ten, or 1, 2 and 5 of each where there are few of them. */
function logarithmic(all) {
  const [low, high] = ends(all.filter((value) => value > 0));
  const decades = low < high ? Math.log10(high / low) : 0;
  return decades > 2.5 ? { type: "log", dtick: 1, tickformat: "" } : { type: "log", dtick: "D2", tickformat: ".6~g" };
}

function drawCurves(figure) {
  const colours = curveColours();
  const traces = figure.curves.filter((curve) => isShown(curve.series)).flatMap((curve) => curveTraces(figure, curve, colours));
  const of = (name) => traces.flatMap((trace) => trace[name]);
  const scale = isLog(figure) ? logarithmic(of("y")) : { type: "linear", tickformat: "", dtick: wholeStep(of("y")), rangemode: "nonnegative" };
  const x = axis(figure.x ? figure.x_title : report.axes[chosenAxis()], { dtick: wholeStep(of("x")) });
  Plotly.react(plotOf(figure), traces, layout({ xaxis: x, yaxis: axis(figure.y_title, scale) }), settings);
}
