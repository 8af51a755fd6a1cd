// Matrices in colours, and drawings of networks.
const bar = (title) => ({ title: { text: title, side: "right", font: { size: 13 } }, thickness: 12, outlinewidth: 0, len: 1 });

function drawHeat(figure) {
  document.getElementById("figure-" + figure.key).hidden = !isShown(figure.series);
  if (!isShown(figure.series)) return;
  const height = Math.max(240, Math.min(620, 90 + 18 * figure.rows.length));
  const trace = {
    type: "heatmap", x: figure.columns, y: figure.rows.map((_, row) => row), z: figure.values, colorscale: "Cividis", reversescale: true,
    colorbar: { ...bar(figure.z_title), dtick: wholeStep(figure.values.flat()) }, customdata: figure.values.map((row, at) => row.map(() => plain(figure.rows[at]))),
    hovertemplate: "<b>%{customdata}</b><br>" + figure.x_title + " %{x}<br>" + figure.z_title + ": %{z}<extra></extra>",
  };
  const step = Math.max(1, Math.ceil(figure.rows.length / 25));
  const shown = figure.rows.map((_, row) => row).filter((row) => row % step === 0);
  const y = axis(figure.y_title, { autorange: "reversed", tickvals: shown, ticktext: shown.map((row) => plain(shortened(figure.rows[row]))) });
  Plotly.react(plotOf(figure), [trace], layout({ height, xaxis: axis(figure.x_title), yaxis: y }), settings);
}

const shortened = (name) => (name.length > 18 ? name.slice(0, 17) + "…" : name);

/** Texts that begin with @ name colours of the theme. */
function themed(value) {
  if (typeof value === "string" && value.startsWith("@")) return colour(value.slice(1));
  if (Array.isArray(value)) return value;
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, themed(each)]));
  return value;
}

function drawDrawing(figure) {
  const traces = figure.traces.map((trace) => ({
    ...themed(trace),
    ...(trace.text ? { hovertemplate: "%{text}<extra></extra>" } : { hoverinfo: "skip" }),
    name: "",
  }));
  const font = { size: compact() ? 10 : 12 };
  const annotations = figure.labels.map(([x, y, text, turned]) => ({
    x, y, text: plain(text), textangle: -turned, showarrow: false, bgcolor: colour("card"), borderpad: 1, font,
  }));
  annotations.push({ x: figure.cloud[0], y: figure.cloud[1], text: "cloud", showarrow: false, bgcolor: colour("card"),
    bordercolor: colour("ink"), borderwidth: 1.5, borderpad: compact() ? 3 : 6, font });
  const hidden = { visible: false };
  const size = Math.min(620, Math.max(300, plotOf(figure).clientWidth));
  const yaxis = { ...hidden, scaleanchor: "x", scaleratio: 1 };
  Plotly.react(plotOf(figure), traces, layout({ height: size, margin: { l: 4, r: 4, t: 4, b: 4 }, xaxis: hidden, yaxis, annotations }), settings);
}
