"use strict";
// The table of seeds: filtered, ordered, paged; a row opens to show its variants.
// Texts of variants are put together from their seeds' here, and shown as text, never as HTML.

(() => {
  const { data, element, vector, fill } = Report;
  const $ = (id) => document.getElementById(id);
  // Seeds, and variants of an opened seed, shown at a time: a phone is to be scrolled less.
  const PAGE = matchMedia("(max-width: 44rem)").matches ? 10 : 20;
  const MOST_COLUMNS = 6; // models with a column of their own
  const MISSING = "-";
  const NO_LABEL = "?";
  const PARAPHRASE = "paraphrase"; // a class whose variants have another hypothesis as a whole
  const models = data.models.map((_, model) => model);
  const letter = (code) => (code === MISSING ? "–" : data.letters[parseInt(code, 36)] ?? NO_LABEL);
  const label = (code) => data.labels[parseInt(code, 36)] ?? "no label";

  let source = null; // of data.sources
  let found = []; // seeds that pass the filters, in order
  let page = 0;

  // --- Counts of a seed, over all word classes or the chosen one ---

  const chosenClasses = () => {
    const chosen = $("class").value;
    return chosen === "" ? source.classes.map((_, code) => code) : [Number(chosen)];
  };

  function counts(seed) {
    const classes = chosenClasses();
    const sum = (table) => classes.reduce((total, code) => total + table[code][seed], 0);
    const n = sum(source.n);
    return {
      n,
      answered: models.map((model) => (source.answered ? sum(source.answered[model]) : n)),
      right: models.map((model) => sum(source.right[model])),
    };
  }

  const isRight = (model, seed) => source.own[model][seed] === source.gold[seed];
  const isAnswered = (model, seed) => source.own[model][seed] !== MISSING;
  const isWrong = (model, seed) => isAnswered(model, seed) && !isRight(model, seed);

  const disagrees = (model, seed) => isAnswered(model, seed)
    && models.some((other) => isAnswered(other, seed) && source.own[other][seed] !== source.own[model][seed]);

  // --- Filters ---

  const CONDITIONS = [
    ["any", "anything", () => true],
    ["right", "the seed right", isRight],
    ["wrong", "the seed wrong", isWrong],
    ["fooled", "the seed right, a variant wrong", (model, seed, { answered, right }) => isRight(model, seed) && right[model] < answered[model]],
    ["held", "seed and variants right", (model, seed, { answered, right }) => isRight(model, seed) && right[model] === answered[model]],
    ...(data.models.length > 1 ? [["unlike", "the seed unlike another model", (model, seed) => disagrees(model, seed)]] : []),
    ["rescued", "the seed wrong, a variant right", (model, seed, { right }) => isWrong(model, seed) && right[model] > 0],
  ];

  const ORDERS = [
    ["hardest", "hardest first", (a, b) => b.hardness - a.hardness || b.wrong - a.wrong],
    ["easiest", "easiest first", (a, b) => a.hardness - b.hardness || a.wrong - b.wrong],
    ["apart", "models most apart", (a, b) => b.spread - a.spread],
    ["id", "by id", () => 0],
  ];

  function search() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const gold = $("gold").value;
    const condition = CONDITIONS.find(([key]) => key === $("condition").value)[2];
    const who = $("model").value;
    found = [];
    source.ids.forEach((_, seed) => {
      if (gold !== "" && source.gold[seed] !== gold) return;
      const text = textsToSearch()[seed];
      if (!words.every((word) => text.includes(word))) return;
      const count = counts(seed);
      if (!count.n) return;
      const holds = (model) => condition(model, seed, count);
      const asked = (who === "every" || who === "some" ? models : [Number(who)]).filter((model) => isAnswered(model, seed));
      const passes = who === "every" ? asked.every(holds) : asked.some(holds);
      if (passes) found.push(summary(seed, count));
    });
    found.sort(ORDERS.find(([key]) => key === $("order").value)[2]); // stable: ties stay by id
    show(0);
  }

  function summary(seed, count) {
    const shares = models.filter((model) => count.answered[model]).map((model) => count.right[model] / count.answered[model]);
    const mean = shares.reduce((total, share) => total + share, 0) / shares.length;
    return {
      seed, ...count,
      // Without answers a seed is neither hard nor easy; equal means must not differ by rounding.
      hardness: shares.length ? Number((1 - mean).toFixed(12)) : -1,
      wrong: models.filter((model) => isWrong(model, seed)).length,
      spread: shares.length ? Math.max(...shares) - Math.min(...shares) : -1,
    };
  }

  function textsToSearch() {
    source.texts_lower ??= source.ids.map((id, seed) =>
      `${id}\n${source.premises[seed]}\n${source.hypotheses[seed]}`.toLowerCase());
    return source.texts_lower;
  }

  // --- Rows ---

  function show(number) {
    page = number;
    const rows = found.slice(page * PAGE, (page + 1) * PAGE).map(seedRow);
    const none = element("tr", {}, [element("td", { className: "empty", colspan: 99, textContent: "No seed passes these filters." })]);
    $("seed-table").tBodies[0].replaceChildren(...(rows.length ? rows : [none]));
    const from = Math.min(page * PAGE + 1, found.length);
    const to = Math.min((page + 1) * PAGE, found.length);
    $("found").textContent = `${from}–${to} of ${found.length.toLocaleString("en")} seeds`;
    for (const each of document.querySelectorAll(".page-number")) {
      each.textContent = `Page ${page + 1} of ${Math.max(1, Math.ceil(found.length / PAGE))}`;
    }
    for (const each of document.querySelectorAll(".previous")) each.disabled = page === 0;
    for (const each of document.querySelectorAll(".next")) each.disabled = to >= found.length;
  }

  function drawHead() {
    const wide = models.length <= MOST_COLUMNS;
    const names = wide ? data.models : ["Models right", "Variants right"];
    const heads = ["Problem", "Gold", ...names].map((textContent) => element("th", { scope: "col", textContent, title: textContent }));
    heads[0].className = "text";
    $("seed-table").tHead.replaceChildren(element("tr", {}, heads));
    $("seed-table").classList.toggle("many", !wide);
  }

  function seedRow(item) {
    const { seed } = item;
    const opener = element("button", { type: "button", className: "opener", "aria-expanded": "false" }, [
      sentences(source.premises[seed], [], source.hypotheses[seed], []),
    ]);
    const id = source.ids[seed];
    const link = element("a", { className: "id", href: `#seed=${encodeURIComponent(id)}`, textContent: id });
    link.addEventListener("click", (event) => event.stopPropagation());
    const cells = models.length <= MOST_COLUMNS
      ? models.map((model) => answerCell(data.models[model], source.own[model][seed], source.gold[seed], item.right[model], item.answered[model]))
      : totals(item);
    const row = element("tr", { className: "seed" }, [
      element("td", {}, [opener, link]), goldCell(seed), ...cells,
    ]);
    row.addEventListener("click", () => {
      if (!getSelection().toString()) toggle(row, opener, item);
    });
    return row;
  }

  function goldCell(seed) {
    const votes = [...(source.votes[seed] ?? "")].map(letter).sort().join(" ");
    return element("td", { "data-label": "Gold label" }, [
      element("span", { className: "gold", textContent: label(source.gold[seed]) }),
      ...(votes ? [element("div", { className: "votes", title: "Labels that the annotators gave", textContent: `votes ${votes}` })] : []),
    ]);
  }

  function answerCell(label, own, gold, right, n) {
    return element("td", { "data-label": label }, [answer(own, gold), shareOf(right, n)]);
  }

  function totals({ seed, wrong, right, answered }) {
    const known = models.filter((model) => isAnswered(model, seed)).length;
    const total = (counts) => counts.reduce((sum, count) => sum + count, 0);
    return [
      element("td", { "data-label": "Models right", textContent: `${known - wrong} of ${known}` }),
      element("td", { "data-label": "Variants right" }, [shareOf(total(right), total(answered))]),
    ];
  }

  /** A label's letter; a wrong one stands on a dark ground. */
  function answer(code, gold) {
    const right = code === gold;
    const name = code === MISSING ? "no prediction" : label(code);
    return element("span", {
      className: `answer ${code === MISSING ? "" : right ? "right" : "wrong"}`,
      title: `${name}${code === MISSING ? "" : right ? ", right" : ", wrong"}`,
      textContent: letter(code),
    });
  }

  function shareOf(right, n) {
    if (!n) return element("span", { className: "share", textContent: "–" });
    const bar = vector("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(vector("rect", { width: (100 * right) / n, height: 1 }));
    return element("span", { className: "share", title: `${right} of ${n} variants right` }, [
      `${Math.round((100 * right) / n)} %`, element("span", { className: "meter" }, [bar]),
    ]);
  }

  // --- Variants ---

  function toggle(row, opener, item) {
    const open = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!open));
    if (open) row.nextSibling.remove();
    else row.after(detailsRow(item, row.cells.length));
    Report.openedSeed = open ? null : source.ids[item.seed];
    row.dispatchEvent(new Event("seed", { bubbles: true }));
  }

  /** Turn to a seed and open it; filters that hide it are cleared. */
  Report.openSeed = (id) => {
    const position = data.sources.findIndex(({ ids }) => ids.includes(id));
    if (position < 0) return;
    if (position !== $("source").selectedIndex) {
      $("source").selectedIndex = position;
      chooseSource();
    }
    search();
    const isIt = ({ seed }) => source.ids[seed] === id;
    if (!found.some(isIt)) {
      $("filters").reset();
      $("source").selectedIndex = position;
      search();
    }
    const place = found.findIndex(isIt);
    show(Math.floor(place / PAGE));
    const row = $("seed-table").tBodies[0].rows[place % PAGE];
    toggle(row, row.querySelector(".opener"), found[place]);
    row.scrollIntoView();
  };

  function detailsRow({ seed, n, right, answered }, colspan) {
    const variants = variantsOf(seed);
    const body = element("tbody");
    const table = element("table", { className: "variants" }, [variantsHead(), body]);
    const more = element("button", { type: "button", className: "more" });
    let next = 0;
    const showMore = () => {
      body.append(...variants.slice(next, next + PAGE).map((variant) => variantRow(variant, seed)));
      next += PAGE;
      more.hidden = next >= variants.length;
      more.textContent = `Show ${Math.min(PAGE, variants.length - next)} more`;
    };
    more.addEventListener("click", showMore);
    showMore();
    const title = !variants.length
      ? `None of its ${n} variants is in this file.`
      : variants.length < n
        ? `${variants.length} of ${n} variants, sampled; those that most models answer wrong first`
        : `${n} variants; those that most models answer wrong first`;
    const shares = models.length > MOST_COLUMNS ? [modelTotals(seed, right, answered)] : [];
    const shown = variants.length ? [element("div", { className: "scroll" }, [table]), more] : [];
    const parts = [...shares, ...saidOf("own", seed), ...wordLines(seed, variants), element("h4", { textContent: title }), ...shown];
    return element("tr", { className: "details" }, [element("td", { colspan }, parts)]);
  }

  /** What models said in their own words, shown as text. */
  function saidOf(kind, place) {
    return models.filter((model) => source.said?.[model]?.[kind][place]).map((model) =>
      element("p", { className: "said" }, [`${data.models[model]}: `, element("q", { textContent: source.said[model][kind][place] })]));
  }

  /** A line for each replaced word: its replacements that are shown, and each model's share. */
  function wordLines(seed, variants) {
    const groups = new Map();
    for (const variant of variants) {
      groups.set(variant.group, [...(groups.get(variant.group) ?? []), variant]);
    }
    if (!groups.size) return [];
    const lines = [...groups].map(([{ word, wordClass }, members]) => {
      const name = source.classes[wordClass];
      const rights = models.map((model) => members.filter(({ answers }) => answers[model] === source.gold[seed]).length);
      const known = models.map((model) => members.filter(({ answers }) => answers[model] !== MISSING).length);
      return element("tr", {}, [
        element("th", { scope: "row", textContent: word && name !== PARAPHRASE ? `${word} (${name})` : name }),
        element("td", { "data-label": "Variants", textContent: members.length }),
        ...models.map((model) => element("td", { "data-label": data.models[model] }, [shareOf(rights[model], known[model])])),
      ]);
    });
    const heads = ["Replaced", "Variants", ...data.models].map((textContent, i) =>
      element("th", { scope: "col", className: i > 1 ? "m" : "", textContent }));
    const table = element("table", { className: "words" }, [
      element("thead", {}, [element("tr", {}, heads)]), element("tbody", {}, lines),
    ]);
    return [element("h4", { textContent: "By replaced word" }), element("div", { className: "scroll" }, [table])];
  }

  /** For many models: what each answers on the seed, and its share of variants. */
  function modelTotals(seed, right, answered) {
    const cells = models.map((model) => element("span", { className: "total" }, [
      answer(source.own[model][seed], source.gold[seed]), ` ${data.models[model]} `,
      element("small", { textContent: answered[model] ? `${Math.round((100 * right[model]) / answered[model])} %` : "–" }),
    ]));
    return element("div", { className: "totals" }, cells);
  }

  function variantsHead() {
    const names = models.map((model) => element("th", { scope: "col", className: "m", textContent: data.models[model] }));
    return element("thead", {}, [element("tr", {}, [
      element("th", { scope: "col", className: "sentences", textContent: "Variant" }),
      element("th", { scope: "col", className: "replaced", textContent: "Replaced" }),
      ...names,
    ])]);
  }

  function variantRow({ group, word, position, answers }, seed) {
    const [premise, inPremise, hypothesis, inHypothesis] = textOf(group, word, position, seed);
    const name = source.classes[group.wordClass];
    const replaced = group.word && name !== PARAPHRASE ? `${group.word} → ${word}` : name;
    const signals = signalsOf(position);
    const small = signals ? [element("small", { textContent: signals, title: "Signals: how good the replacement looks to a program" })] : [];
    return element("tr", {}, [
      element("td", { className: "sentences" }, [
        sentences(premise, inPremise, hypothesis, inHypothesis), ...saidOf("answers", position)]),
      element("td", { className: "replaced" }, [replaced, ...small]),
      ...models.map((model) => element("td", { "data-label": data.models[model] }, [answer(answers[model], source.gold[seed])])),
    ]);
  }

  /** What signals say of a variant: faults of grammar, then figures (report/seeds.py packs them). */
  function signalsOf(position) {
    const { figures, faults, faulty } = source.signals;
    const found = faults.filter((_, bit) => Number(faulty[position]) & (1 << bit));
    for (const { name, decimals, codes } of figures) {
      const code = codes.slice(2 * position, 2 * position + 2);
      if (code === "--") continue;
      const number = parseInt(code, 36);
      const beyond = number === 0 ? "≤ " : number === 36 * 36 - 1 ? "≥ " : "";
      found.push(`${name} ${beyond}${((number - 648) / 10 ** decimals).toFixed(decimals).replace("-", "−")}`);
    }
    return found.join(" · ");
  }

  /** Those of the chosen classes, wrong ones first. */
  function variantsOf(seed) {
    const classes = chosenClasses();
    const variants = [];
    for (const group of groupsOf(seed)) {
      if (!classes.includes(group.wordClass)) continue;
      for (let position = group.first; position < group.first + group.n; position++) {
        const answers = source.answers.map((all) => all[position]);
        const wrong = answers.filter((code) => code !== source.gold[seed]).length;
        variants.push({ group, position, word: source.vocabulary[source.words[position]], answers, wrong });
      }
    }
    return variants.sort((a, b) => b.wrong - a.wrong);
  }

  function groupsOf(seed) {
    if (!source.groupsBySeed) {
      let first = 0;
      source.groupsBySeed = source.ids.map(() => []);
      for (const [row, wordClass, word, inPremise, inHypothesis, n] of source.groups) {
        source.groupsBySeed[row].push({ wordClass, word, inPremise, inHypothesis, n, first });
        first += n;
      }
    }
    return source.groupsBySeed[seed];
  }

  /** Premise, where the replacement stands in it, and the same of the hypothesis. */
  function textOf(group, word, position, seed) {
    const own = source.texts[position];
    if (own) return own;
    return [
      ...replace(source.premises[seed], group.inPremise, word),
      ...replace(source.hypotheses[seed], group.inHypothesis, word),
    ];
  }

  // Offsets count characters as Python does, not UTF-16 units: hence arrays of characters.
  function replace(text, spans, word) {
    const characters = [...text];
    const length = [...word].length;
    const made = [];
    const marks = [];
    let done = 0;
    for (let i = 0; i < spans.length; i += 2) {
      made.push(...characters.slice(done, spans[i]));
      marks.push(made.length, made.length + length);
      made.push(...word);
      done = spans[i + 1];
    }
    return [[...made, ...characters.slice(done)].join(""), marks];
  }

  function sentences(premise, inPremise, hypothesis, inHypothesis, more = []) {
    return element("span", { className: "sentences" }, [
      element("span", { className: "p" }, marked(premise, inPremise)),
      element("span", { className: "h" }, marked(hypothesis, inHypothesis)),
      ...more,
    ]);
  }

  /** Text with marks around [start, end, start, end, …]. */
  function marked(text, spans) {
    const characters = [...text];
    const parts = [];
    let done = 0;
    for (let i = 0; i < spans.length; i += 2) {
      parts.push(characters.slice(done, spans[i]).join(""));
      parts.push(element("mark", { textContent: characters.slice(spans[i], spans[i + 1]).join("") }));
      done = spans[i + 1];
    }
    parts.push(characters.slice(done).join(""));
    return parts;
  }

  // --- Controls ---

  function chooseSource() {
    source = data.sources[$("source").selectedIndex];
    fill($("class"), [["", "any"], ...source.classes.map((name, code) => [code, name || "none"])]);
    $("class").parentElement.hidden = source.classes.length < 2;
    search();
  }

  fill($("source"), data.sources.map(({ name }) => [name, name]));
  $("source").parentElement.hidden = data.sources.length < 2;
  fill($("gold"), [["", "any"], ...data.labels.map((name, code) => [code.toString(36), name])]);
  const several = data.models.length > 1 ? [["some", "some model"], ["every", "every model"]] : [];
  fill($("model"), [...several, ...data.models.map((name, model) => [model, name])]);
  fill($("condition"), CONDITIONS);
  fill($("order"), ORDERS);

  // --- The seeds that pass the filters, as a file ---

  const cellsOf = ({ seed, n, answered, right }) => ({
    seed_id: source.ids[seed],
    premise: source.premises[seed],
    hypothesis: source.hypotheses[seed],
    gold: label(source.gold[seed]),
    votes: [...(source.votes[seed] ?? "")].map(label).join(" "),
    n_variants: n,
    ...Object.fromEntries(models.flatMap((model) => [
      [`${data.models[model]}: answer`, isAnswered(model, seed) ? label(source.own[model][seed]) : ""],
      [`${data.models[model]}: variants answered`, answered[model]],
      [`${data.models[model]}: variants right`, right[model]],
    ])),
  });
  // A text that a spreadsheet would take for a formula stays a text.
  const quoted = (value) => `"${String(value).replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
  const downloads = {
    CSV: (rows) => {
      const lines = [Object.keys(rows[0] ?? {}), ...rows.map(Object.values)].map((line) => line.map(quoted).join(","));
      Report.save("seeds.csv", `${lines.join("\n")}\n`, "text/csv");
    },
    JSON: (rows) => Report.save("seeds.json", `${JSON.stringify(rows, null, 1)}\n`, "application/json"),
  };
  const takes = Object.entries(downloads).map(([textContent, act]) => {
    const made = element("button", { type: "button", textContent, title: "The seeds that pass the filters, in this order" });
    made.addEventListener("click", () => act(found.map(cellsOf)));
    return made;
  });
  document.querySelector('.take[data-table="seeds"]').append(...takes);

  // --- From a figure to the seeds that it counts ---

  const COUNTED = { seed_accuracy: "right", relaxed_fooling_rate: "fooled" }; // figure → condition

  function showSeeds(config, model, condition) {
    $("filters").reset();
    const [name, ...rest] = config.split("_");
    $("source").value = name;
    chooseSource();
    const chosen = source.classes.findIndex((each) => rest.length && rest[0].startsWith(each));
    $("class").value = chosen < 0 ? "" : chosen;
    $("model").value = model;
    $("condition").value = condition;
    search();
    $("filters").dispatchEvent(new Event("change", { bubbles: true })); // for the address
    $("problems").scrollIntoView();
  }

  for (const part of document.querySelectorAll("#figures [data-config]")) {
    [...part.querySelectorAll("tbody tr")].forEach((row, model) => data.columns.forEach(({ key }, column) => {
      const cell = row.cells[column + 1];
      if (!COUNTED[key] || !cell.dataset.value) return;
      const link = element("a", { href: "#problems", className: "seeds", title: "These seeds" });
      link.append(cell.firstChild);
      link.addEventListener("click", (event) => {
        event.preventDefault();
        showSeeds(part.dataset.config, model, COUNTED[key]);
      });
      cell.prepend(link);
    }));
  }

  let waiting = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  $("source").addEventListener("change", chooseSource);
  for (const id of ["class", "gold", "model", "condition", "order"]) $(id).addEventListener("change", search);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  const turn = (selector, step) => {
    for (const each of document.querySelectorAll(selector)) {
      each.addEventListener("click", () => {
        show(page + step);
        $("problems").scrollIntoView();
      });
    }
  };
  turn(".previous", -1);
  turn(".next", 1);

  drawHead();
  chooseSource();
  Report.whenChosen((config) => {
    const position = data.sources.findIndex(({ name }) => name === config.name.split("_")[0]);
    if (position >= 0 && position !== $("source").selectedIndex) {
      $("source").selectedIndex = position;
      chooseSource();
    }
  });
  Report.start();
})();
