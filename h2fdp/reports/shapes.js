// Matrices in colours.
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
