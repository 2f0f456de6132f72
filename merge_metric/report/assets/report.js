"use strict";
// What the other scripts share, the choice of a configuration, sorting, and the heat map.
// Figures lie in the data as [value, low, high] in percent; null where undefined.

const Report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const listeners = [];
  let config = 0;

  document.documentElement.classList.add("scripted");
  // On a phone the tables below the drawings would be most of the page.
  if (matchMedia("(max-width: 44rem)").matches) {
    for (const table of document.querySelectorAll("details.table[open]")) table.open = false;
  }

  /** An element with attributes (className, textContent, …; data-* and aria-* by name) and children. */
  function element(name, attributes = {}, children = []) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.includes("-") || key === "colspan" || key === "scope") made.setAttribute(key, value);
      else made[key] = value;
    }
    made.append(...children);
    return made;
  }

  /** A figure as the tables show it. */
  function number(value) {
    const { decimals } = data;
    return value == null ? "–" : value.toFixed(decimals).replace((100).toFixed(decimals), "100");
  }

  /** A figure [value, low, high], or with a fourth entry that stands for an undetermined value. */
  function shown(figure) {
    return figure[3] ?? number(figure[0]);
  }

  function interval([, low, high]) {
    return low == null ? "" : `${number(low)}–${number(high)}`;
  }

  /** Fill a select with [value, text] pairs. */
  function fill(select, options) {
    select.replaceChildren(...options.map(([value, textContent]) => element("option", { value, textContent })));
  }

  /** The swatch of a model, as the page shows it elsewhere. */
  function swatch(model) {
    const { colour, dash, marker } = data.styles[model];
    const svg = vector("svg", { class: "swatch", viewBox: "0 0 34 12", "aria-hidden": "true" });
    const line = { d: "M0 6H34", fill: "none", stroke: colour, "stroke-width": 2 };
    if (dash.length) line["stroke-dasharray"] = dash.join(" ");
    svg.append(vector("path", line));
    svg.append(vector("path", { d: marker, fill: colour, transform: "translate(17 6)" }));
    return svg;
  }

  function vector(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function choose(position) {
    config = position;
    const name = data.configs[position].name;
    for (const part of document.querySelectorAll("[data-config]")) {
      part.classList.toggle("off-config", part.dataset.config !== name);
    }
    for (const listener of listeners) listener(data.configs[position]);
  }

  function start() {
    const select = document.getElementById("config");
    select?.addEventListener("change", () => choose(select.selectedIndex));
    choose(select ? select.selectedIndex : 0);
  }

  return {
    data, element, vector, number, shown, interval, fill, swatch, start,
    get config() { return data.configs[config]; },
    /** Call a function with the configuration, now and when another is chosen. */
    whenChosen(listener) { listeners.push(listener); },
  };
})();

// --- Tables to take away: files, and text for a document ---

{
  const save = (name, text, type) => {
    const url = URL.createObjectURL(new Blob([text], { type }));
    Report.element("a", { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  };
  const copy = async (button, text) => {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here";
    }
    setTimeout(() => (button.textContent = label), 1500);
  };
  Report.copy = copy;
  Report.save = save;
  for (const place of document.querySelectorAll(".take[data-table]")) {
    const name = place.dataset.table;
    const forms = Report.data.tables[name];
    if (!forms) continue;
    const button = (textContent, act) => {
      const made = Report.element("button", { type: "button", textContent });
      made.addEventListener("click", () => act(made));
      return made;
    };
    place.append(
      button("CSV", () => save(`${name}.csv`, `${forms.csv}\n`, "text/csv")),
      button("JSON", () => save(`${name}.json`, `${forms.json}\n`, "application/json")),
      button("Copy Markdown", (made) => copy(made, forms.Markdown)),
      button("Copy LaTeX", (made) => copy(made, forms.LaTeX)),
    );
  }
}

// On paper nothing stays folded.
{
  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...folded()];
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });
}

// --- Tables that sort ---

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      // Figures from the highest first, names from A.
      const first = column ? "descending" : "ascending";
      const other = column ? "ascending" : "descending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      for (const each of headings) each.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", order);
      sortRows(table.tBodies[0], column, order === "ascending" ? 1 : -1);
    });
  });
}

/** Sort rows by the values of a column; rows without one go last. */
function sortRows(body, column, sign) {
  const valueOf = (row) => row.cells[column].dataset.value;
  const compare = (a, b) => {
    const [x, y] = [valueOf(a), valueOf(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (column ? x - y : x.localeCompare(y));
  };
  body.append(...[...body.rows].sort(compare));
}

// --- Wide tables: the right edge fades while there are columns beyond it ---

for (const box of document.querySelectorAll(".scroll")) {
  const look = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
}

// --- Heat map: any figure of the first table in place of the one that it opens on ---

(() => {
  const { data, shown, interval, fill } = Report;
  const select = document.getElementById("measure");
  const cells = [...document.querySelectorAll("#heat td[data-part]")];
  const [low, high] = ["low", "high"].map((side) => document.querySelector(`#heat-scale .${side}`));
  const [name, meaning] = ["name", "meaning"].map((part) => document.getElementById(`measure-${part}`));

  function resultOf({ configName, part, model }) {
    const config = data.configs.find((each) => each.name === configName);
    return config.parts.find((each) => each.key === part).results[model];
  }

  function show(column) {
    const figures = cells.map((cell) => resultOf(cell.dataset)?.figures[column] ?? [null]);
    const values = figures.map(([value]) => value).filter((value) => value != null);
    const least = Math.floor(Math.min(...values) / 10) * 10;
    const most = Math.max(Math.ceil(Math.max(...values) / 10) * 10, least + 10);
    cells.forEach((cell, i) => {
      const [value] = figures[i];
      const isFew = cell.classList.contains("few"); // of few seeds: grey
      const step = Math.min(data.heatSteps - 1, Math.floor((data.heatSteps * (value - least)) / (most - least)));
      const kept = ["first", "few"].filter((each) => cell.classList.contains(each));
      cell.className = [value == null || isFew ? "none" : `h${step}`, ...kept].join(" ");
      cell.replaceChildren(shown(figures[i]), Report.element("small", { textContent: interval(figures[i]) }));
    });
    low.textContent = least;
    high.textContent = most;
    name.textContent = `${data.columns[column].name}.`;
    meaning.textContent = data.columns[column].meaning;
  }

  fill(select, data.columns.map(({ head, name }, i) => [i, `${head.replace("_", "")}: ${name}`]));
  select.value = data.columns.findIndex(({ key }) => key === data.heat);
  select.addEventListener("change", () => show(Number(select.value)));
})();
