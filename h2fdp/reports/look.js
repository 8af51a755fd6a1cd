// What the page knows, and how everything looks in the theme of the moment.
const report = JSON.parse(document.getElementById("report").textContent);
const root = document.documentElement;
const boxes = [...document.querySelectorAll('input[name="run"]')];
const chosenAxis = () => document.querySelector('input[name="axis"]:checked')?.value ?? "interval";
const isShown = (number) => boxes.length === 0 || boxes[number].checked;
const alone = report.series.length === 1;
const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
const curveColours = () => report.dashes.map((_, number) => colour("curve" + number));
// Plotly reads a little HTML in texts: names from outside must stay names.
const plain = (text) => String(text).replace(/[&<>]/g, (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[each]);
const plotOf = (figure) => document.getElementById("plot-" + figure.key);
const compact = () => window.innerWidth < 560;

const settings = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]], // none that sends data
  toImageButtonOptions: { format: "svg" },
};

function axis(title, more) {
  const grid = colour("grid");
  return { title: { text: title, standoff: 8, font: { size: 13 } }, gridcolor: grid, linecolor: colour("faint"), zerolinecolor: grid,
    tickcolor: grid, automargin: true, showline: true, exponentformat: title.endsWith("(bytes)") ? "SI" : "power", ...more };
}

function layout(more) {
  return {
    height: 300,
    margin: { l: 52, r: 12, t: 32, b: 44 }, // above the curves is the bar of buttons
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
    showlegend: false,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("faint"), activecolor: colour("ink") },
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("faint"), font: { color: colour("ink") }, align: "left" },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    ...more,
  };
}

const ends = (all) => [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), -Infinity)];

/** The step of ticks where few whole numbers are shown, which have nothing between them; else the library's choice. */
function wholeStep(all) {
  const known = all.filter((value) => value !== null);
  const [low, high] = ends(known);
  return known.every(Number.isInteger) && high - low < 6 ? 1 : null;
}

const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
