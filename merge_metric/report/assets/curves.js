"use strict";
// The SV curves of the chosen configuration, drawn by uPlot, with a legend that is also a table.

(() => {
  const { data, element, number, shown: shownAs, interval, fill, swatch } = Report;
  const $ = (id) => document.getElementById(id);
  const THRESHOLDS = Array.from({ length: 100 }, (_, i) => i + 1);
  const MARKED = THRESHOLDS.filter((ct) => ct % 10 === 0);
  const PER_MODEL = 3; // series: lower bound, upper bound, curve
  const seriesOf = (model) => 1 + PER_MODEL * model + 2;
  const column = (key) => data.columns.findIndex((each) => each.key === key);
  const [S, MC] = ["seed_accuracy", "matching_threshold"].map(column);

  const shown = data.models.map(() => true);
  let part = null;
  let plot = null;
  let threshold = 90;

  // --- Drawing ---

  /** What a colour is now: a canvas knows no variables. */
  function resolved(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colourOf(model) {
    return resolved(data.styles[model].colour.slice("var(".length, -1));
  }

  function draw() {
    plot?.destroy();
    const box = $("chart");
    const options = {
      width: box.clientWidth,
      height: box.clientHeight,
      padding: [16, 12, 0, 0],
      legend: { show: false },
      focus: { alpha: 0.2 },
      cursor: { y: false, drag: { x: false, y: false }, focus: { prox: -1 }, points: { size: 9 } },
      scales: { x: { time: false, range: [0, 100] }, y: { range: [0, 100] } },
      axes: [axis("Correctness threshold CT (%)", 26), axis("SV accuracy (%)", 36)],
      series: [{}, ...data.models.flatMap(seriesOfModel)],
      bands: $("bands").checked ? data.models.map(band) : [],
      hooks: { ready: [ready], draw: [drawReferences], setCursor: [readCursor] },
    };
    plot = new uPlot(options, [THRESHOLDS, ...data.models.flatMap((_, model) => valuesOf(model))], box);
  }

  function ready(u) {
    u.over.append(flag);
    u.over.addEventListener("mouseleave", () => moveTo(threshold));
    moveTo(threshold);
  }

  function axis(label, size) {
    const font = "12px system-ui, sans-serif";
    return {
      label, font, labelFont: font, labelSize: 20, labelGap: 2, size, stroke: () => resolved("--quiet"),
      grid: { stroke: () => resolved("--line"), width: 1 }, ticks: { show: false },
      splits: () => [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100],
    };
  }

  function seriesOfModel(name, model) {
    const { dash, marker } = data.styles[model];
    const colour = () => colourOf(model);
    const steps = uPlot.paths.stepped({ align: -1 });
    const bound = { show: shown[model], stroke: "transparent", paths: steps, points: { show: false } };
    const offset = (3 * model) % 10; // markers of different models side by side
    const curve = {
      label: name, show: shown[model], stroke: colour, width: 2, dash, paths: steps,
      points: {
        show: true, width: 0, fill: colour, size: 9,
        filter: () => MARKED.map((ct) => ct - 1 - offset).filter((i) => i >= 0),
        paths: markers(marker),
      },
    };
    return [bound, bound, curve];
  }

  /** uPlot's path builder for points, in a shape given as an SVG path about the origin. */
  function markers(shape) {
    return (u, series, _from, _to, indices) => {
      const path = new Path2D();
      const outline = new Path2D(shape);
      for (const i of indices) {
        const value = u.data[series][i];
        if (value == null) continue;
        const [x, y] = [u.valToPos(u.data[0][i], "x", true), u.valToPos(value, "y", true)];
        path.addPath(outline, new DOMMatrix([devicePixelRatio, 0, 0, devicePixelRatio, x, y]));
      }
      return { fill: path, stroke: path };
    };
  }

  function band(_, model) {
    const curve = seriesOf(model);
    return { series: [curve - 1, curve - 2], fill: () => `${colourOf(model)}22` };
  }

  function valuesOf(model) {
    const curve = part.results[model]?.curve ?? [];
    const none = THRESHOLDS.map(() => null);
    return [curve[1] ?? none, curve[2] ?? none, curve[0] ?? none];
  }

  /** S as a dotted line and MC as a ring on it. */
  function drawReferences(u) {
    if (!$("references").checked) return;
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    data.models.forEach((_, model) => {
      const result = part.results[model];
      if (!result || !shown[model]) return;
      const y = u.valToPos(result.figures[S][0], "y", true);
      ctx.globalAlpha = u.series[seriesOf(model)].alpha ?? 1;
      ctx.strokeStyle = colourOf(model);
      ctx.lineWidth = 1.2 * ratio;
      ctx.setLineDash([1.5 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      const mc = result.figures[MC][0];
      if (mc == null) return;
      ctx.setLineDash([]);
      ctx.lineWidth = 2 * ratio;
      ctx.fillStyle = resolved("--paper");
      ctx.beginPath();
      ctx.arc(u.valToPos(mc, "x", true), y, 5 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    });
    ctx.restore();
  }

  // --- Cursor: the pointer, or the slider when the pointer is elsewhere ---

  const flag = element("div", { className: "cursor-flag" });

  function readCursor(u) {
    const { idx, left } = u.cursor;
    if (idx == null || left < 0) return;
    const ct = THRESHOLDS[idx];
    flag.textContent = `CT ${ct} %`;
    flag.style.left = `${u.valToPos(ct, "x")}px`;
    showValues(ct);
  }

  function moveTo(ct) {
    plot?.setCursor({ left: plot.valToPos(ct, "x"), top: 0 });
  }

  function showValues(ct) {
    $("legend-threshold").textContent = `SV@${ct}`;
    for (const row of $("legend").tBodies[0].rows) {
      const curve = part.results[row.dataset.model]?.curve;
      const values = curve ? curve.map((side) => side[ct - 1]) : [null];
      row.cells[1].replaceChildren(number(values[0]), element("small", { textContent: interval(values) }));
    }
  }

  // --- Legend and table ---

  function drawLegend() {
    const rows = data.models.map((name, model) => {
      const box = element("input", { type: "checkbox", checked: shown[model] });
      const text = element("span", { className: "name", textContent: name });
      const label = element("span", { className: "model" }, [swatch(model), text]);
      const row = element("tr", { "data-model": model }, [
        element("th", { scope: "row" }, [element("label", {}, [box, label])]),
        element("td"),
        ...[S, MC].map((key) => element("td", { textContent: shownAs(part.results[model]?.figures[key] ?? [null]) })),
      ]);
      box.addEventListener("change", () => toggle(model, box.checked));
      row.addEventListener("mouseenter", () => focus(shown[model] ? model : null));
      row.addEventListener("mouseleave", () => focus(null));
      row.classList.toggle("off", !shown[model]);
      return row;
    });
    $("legend").tBodies[0].replaceChildren(...rows);
  }

  /** Let one curve stand out, or none. */
  function focus(model) {
    plot.setSeries(model == null ? null : seriesOf(model), { focus: true });
  }

  function toggle(model, on) {
    shown[model] = on;
    $("legend").tBodies[0].rows[model].classList.toggle("off", !on);
    $("every").checked = shown.some(Boolean);
    const last = seriesOf(model);
    plot.batch(() => {
      for (let series = last - 2; series <= last; series++) plot.setSeries(series, { show: on });
    });
    focus(null);
  }

  function drawTable() {
    const table = $("curve-values").querySelector("table");
    const heads = ["CT", ...data.models].map((textContent) => element("th", { scope: "col", textContent }));
    table.tHead.replaceChildren(element("tr", {}, heads));
    const rows = THRESHOLDS.filter((ct) => ct === 1 || ct % 5 === 0).map((ct) =>
      element("tr", {}, [
        element("th", { scope: "row", textContent: ct }),
        ...part.results.map((result) => element("td", { textContent: number(result?.curve[0][ct - 1]) })),
      ]));
    table.tBodies[0].replaceChildren(...rows);
  }

  // --- Controls ---

  function redraw() {
    part = Report.config.parts[$("part").selectedIndex];
    drawLegend();
    drawTable();
    draw();
  }

  const KINDS = { all: "", word_class: "replaced word: ", label: "gold label: " };
  Report.whenChosen((config) => {
    const kept = $("part").value;
    fill($("part"), config.parts.map(({ key, kind, title }) => [key, KINDS[kind] + title]));
    if (config.parts.some(({ key }) => key === kept)) $("part").value = kept;
    redraw();
  });
  for (const id of ["part", "bands", "references"]) $(id).addEventListener("change", redraw);
  const readSlider = () => {
    threshold = Number($("threshold").value);
    $("threshold-value").textContent = `${threshold} %`;
    if (plot) moveTo(threshold);
  };
  $("threshold").addEventListener("input", readSlider);
  readSlider(); // a browser may have kept its place over a reload
  $("every").addEventListener("change", ({ target }) => {
    const on = target.checked;
    for (const box of $("legend").tBodies[0].querySelectorAll("input")) {
      if (box.checked !== on) box.click();
    }
  });
  new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = $("chart");
    if (plot && width && (width !== plot.width || height !== plot.height)) {
      plot.setSize({ width, height });
      requestAnimationFrame(() => moveTo(threshold)); // after uPlot has scaled its cursor itself
    }
  }).observe($("chart"));
})();
