// What the reader chooses, and what is drawn then.
const drawers = { curves: drawCurves, explorer: drawExplorer };
const draw = (figure) => drawers[figure.kind](figure);
const drawAll = () => report.figures.forEach(draw);

function setTheme(name) {
  if (name) root.dataset.theme = name;
  else delete root.dataset.theme;
  drawAll();
}

const controls = document.getElementById("controls");
controls.addEventListener("submit", (event) => event.preventDefault());
controls.addEventListener("change", (event) => {
  if (event.target.name === "theme") setTheme(event.target.value);
  else drawAll();
});
for (const [button, state] of [["all", true], ["none", false]]) {
  document.getElementById(button)?.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = state; });
    drawAll();
  });
}
document.querySelectorAll("input[data-log]").forEach((box) => box.addEventListener("change", () => {
  draw(report.figures.find((figure) => figure.key === box.dataset.log));
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

// On paper figures are light, and as wide as their column there.
let themeOnScreen;
window.addEventListener("beforeprint", () => {
  themeOnScreen = root.dataset.theme ?? "";
  setTheme("light");
  report.figures.forEach((figure) => {
    const box = plotOf(figure).closest("figure");
    const wide = box.offsetWidth > 0.7 * box.parentElement.offsetWidth && box.parentElement.offsetWidth > 820;
    if (plotOf(figure).offsetParent) Plotly.relayout(plotOf(figure), { width: wide ? 640 : 320, autosize: false });
  });
});
window.addEventListener("afterprint", () => {
  report.figures.forEach((figure) => plotOf(figure).offsetParent && Plotly.relayout(plotOf(figure), { width: null, autosize: true }));
  setTheme(themeOnScreen);
});

report.figures.filter((figure) => figure.kind === "explorer").forEach(setUpExplorer);
drawAll();
root.dataset.ready = "yes";
