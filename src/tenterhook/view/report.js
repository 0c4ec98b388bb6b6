"use strict";
const FIRST = 3, NONFINITE = 1, TOP = 65535;
const ROWS_MOST = 110;
const CALM = { displayModeBar: false, responsive: true };
const FONT = { family: "system-ui, sans-serif", size: 12, color: "#1d2430" };

// Functions that draw the plots after the page has loaded.
const drawings = [];

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value); else made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

const number = value => value.toLocaleString("en");
const brief = value => value === 0 ? "0" : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5
  ? String(Number(value.toPrecision(3))) : value.toExponential(1);

// Plotly reads labels as markup, with links and styles.
const plain = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// -- numbers over targets and steps

function decoded(matrix) {
  const text = atob(matrix.cells), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Uint16Array(bytes.buffer);
}

function tree(targets) {
  const root = { name: "", path: "all", below: new Map(), leaves: [] };
  targets.forEach((target, place) => {
    let node = root, path = [];
    root.leaves.push(place);
    for (const part of target === "." ? ["."] : target.split(".")) {
      path.push(part);
      if (!node.below.has(part)) node.below.set(part, { name: part, path: path.join("."), below: new Map(), leaves: [] });
      node = node.below.get(part);
      node.leaves.push(place);
    }
  });
  return root;
}

// Return the rows to show first. All branches are expanded to the same depth, the deepest that ROWS_MOST allows.
function rowsOf(node) {
  let rows = [...node.below.values()];
  for (;;) {
    const deeper = rows.flatMap(row => row.below.size ? [...row.below.values()] : [row]);
    if (deeper.length > ROWS_MOST || rows.every(row => !row.below.size)) return rows;
    rows = deeper;
  }
}

// A hook that is due in one step in ten leaves the other columns empty. Empty columns are not drawn.
function recorded(cells, width) {
  const seen = new Uint8Array(width);
  for (let at = 0; at < cells.length; at++) if (cells[at]) seen[at % width] = 1;
  return Array.from(seen.keys()).filter(column => seen[column]);
}

// A row of several targets shows their largest number. If a number of one target is not finite, the cell is red.
function rowValues(node, cells, matrix, columns) {
  const width = matrix.columns, best = new Uint16Array(width), bad = new Uint8Array(width);
  for (const leaf of node.leaves) {
    for (let column = 0, at = leaf * width; column < width; column++, at++) {
      const code = cells[at];
      if (code === NONFINITE) bad[column] = 1; else if (code > best[column]) best[column] = code;
    }
  }
  const span = Math.log10(matrix.high / matrix.low), low = Math.log10(matrix.low);
  const value = code => code < FIRST ? null : low + (code - FIRST) / (TOP - FIRST) * span;
  return { values: columns.map(column => value(best[column])), zero: columns.map(column => best[column] === 2),
           bad: columns.map(column => bad[column] ? 1 : null) };
}

function ticks(low, high) {
  const step = Math.max(1, Math.ceil((high - low) / 8)), found = [];
  for (let at = Math.ceil(low); at <= high; at += step) found.push(at);
  return found.length > 1 ? found : [low, high];
}

function heatmap(run, title, why, matrices) {
  const card = element("section", { class: "card" }, element("h2", {}, title), element("p", {}, why));
  const select = element("select", { "aria-label": "number to show", onchange: () => show(matrices[select.value]) },
    ...matrices.map((m, i) => element("option", { value: i }, `${m.hook} · ${m.name}`)));
  const crumbs = element("span"), plot = element("div", { class: "heatmap" }), curve = element("div", { class: "curve" });
  card.append(element("div", { class: "bar" }, select, crumbs), plot, curve);
  let matrix, cells, path, columns, x;

  function show(other) {
    matrix = other;
    cells = other.decoded || (other.decoded = decoded(other));
    path = [other.tree || (other.tree = tree(other.targets))];
    columns = other.recorded || (other.recorded = recorded(cells, other.columns));
    x = columns.map(column => run.steps.first + column * run.steps.each);
    draw();
  }

  function draw() {
    const node = path[path.length - 1], rows = node.below.size ? rowsOf(node) : [node];
    crumbs.replaceChildren(...path.map((one, place) => element("button", { class: "crumb", onclick: () => {
      path = path.slice(0, place + 1); draw(); } }, (place ? "› " : "") + (one.path === "all" ? `${number(one.leaves.length)} targets` : one.path))));
    const made = rows.map(row => rowValues(row, cells, matrix, columns));
    const flat = made.flatMap(row => row.values).filter(value => value !== null).sort((a, b) => a - b);
    const low = flat.length ? flat[Math.floor(flat.length * 0.01)] : 0;
    const high = flat.length ? flat[Math.min(flat.length - 1, Math.ceil(flat.length * 0.995))] : 1;
    const at = ticks(low, high === low ? low + 1 : high);
    const labels = rows.map(row => plain(row.below.size ? `${row.path} (${number(row.leaves.length)})` : row.path));
    const text = made.map(row => row.values.map((value, i) => value === null ? (row.zero[i] ? "0" : "") : brief(10 ** value)));
    const rowHeight = rows.length > 60 ? 13 : 18, left = Math.min(330, 34 + 6.6 * Math.max(...labels.map(l => l.length)));
    const traces = [{
      type: "heatmap", x, y: labels, z: made.map(row => row.values), text, hoverongaps: false, colorscale: "Viridis",
      zmin: low, zmax: high === low ? low + 1 : high, hovertemplate: "%{y}<br>step %{x}: %{text}<extra></extra>",
      colorbar: { thickness: 12, tickvals: at, ticktext: at.map(one => brief(10 ** one)), outlinewidth: 0 },
    }];
    if (made.some(row => row.bad.includes(1))) traces.push({
      type: "heatmap", x, y: labels, z: made.map(row => row.bad), hoverongaps: false, showscale: false,
      colorscale: [[0, "#d92d20"], [1, "#d92d20"]], hovertemplate: "%{y}<br>step %{x}: not finite<extra></extra>",
    });
    Plotly.react(plot, traces, {
      height: Math.max(230, 70 + rows.length * rowHeight), margin: { l: left, r: 10, t: 8, b: 40 }, font: FONT,
      xaxis: { title: { text: "step" }, zeroline: false, showgrid: false, range: [run.steps.first - 0.5, run.steps.last + 0.5] }, plot_bgcolor: "#f2f4f7",
      yaxis: { autorange: "reversed", automargin: false, type: "category", showgrid: false, tickfont: { size: rows.length > 60 ? 10 : 12 } },
    }, CALM).then(() => {
      plot.removeAllListeners("plotly_click");
      plot.on("plotly_click", event => {
        const row = rows[labels.indexOf(event.points[0].y)];
        if (row.below.size) { path.push(row); draw(); } else line(row);
      });
    });
    Plotly.purge(curve);
    curve.replaceChildren();
  }

  function line(row) {
    const { values } = rowValues(row, cells, matrix, columns);
    Plotly.react(curve, [{ type: "scatter", mode: "lines", x, y: values.map(value => value === null ? null : 10 ** value),
                           line: { color: "#3538cd", width: 1.6 }, hovertemplate: "step %{x}: %{y:.3g}<extra></extra>" }], {
      height: 230, margin: { l: 70, r: 20, t: 30, b: 36 }, font: FONT, yaxis: { type: "log", exponentformat: "e" },
      title: { text: plain(`${matrix.hook} · ${matrix.name} of ${row.path}`), font: { size: 13 }, x: 0.01 }, xaxis: { title: { text: "step" } },
    }, CALM);
  }

  drawings.push(() => show(matrices[0]));
  return card;
}

// -- the other sections

function histogram(run) {
  const card = element("section", { class: "card" }, element("h2", {}, "Magnitudes over time"),
    element("p", {}, "Number of elements in each power-of-two range."));
  const plot = element("div");
  const of = element("select", { "aria-label": "block to show", onchange: draw });
  run.histograms.forEach((one, i) => Object.keys(one.blocks).forEach(block =>
    of.append(element("option", { value: `${i} ${block}` }, `${one.hook} · ${block}`))));
  card.append(element("div", { class: "bar" }, of), plot);
  function draw() {
    const cut = of.value.indexOf(" "), { steps, counts } = run.histograms[of.value.slice(0, cut)].blocks[of.value.slice(cut + 1)];
    // The first bin also holds zeros, so it is drawn as a separate row below the other bins.
    const used = counts[0].map((_, bin) => bin > 0 && counts.some(row => row[bin]));
    const first = Math.max(1, used.indexOf(true)), last = Math.max(first, used.lastIndexOf(true));
    const bins = [0, ...Array.from({ length: last - first + 1 }, (_, i) => first + i)];
    const labels = bins.map(bin => bin ? `2^${bin - 40}` : "about 0");
    const z = bins.map(bin => counts.map(row => row[bin] > 0 ? Math.log10(row[bin]) : null));
    const most = Math.max(1, ...z.flat()), at = ticks(0, Math.ceil(most));
    Plotly.react(plot, [{
      type: "heatmap", x: steps.map(String), y: labels, z, colorscale: "Viridis", hoverongaps: false,
      text: bins.map(bin => counts.map(row => number(row[bin]))), hovertemplate: "step %{x}, %{y}: %{text}<extra></extra>",
      colorbar: { thickness: 12, outlinewidth: 0, title: { text: "elements", side: "right" }, tickvals: at, ticktext: at.map(one => brief(10 ** one)) },
    }], { height: 320, margin: { l: 60, r: 10, t: 8, b: 40 }, font: FONT, plot_bgcolor: "#f2f4f7",
          xaxis: { title: { text: "step" }, type: "category" }, yaxis: { type: "category" } }, CALM);
  }
  drawings.push(draw);
  return card;
}

function table(head, rows, numbers) {
  const cell = (tag, value, place) => element(tag, numbers.includes(place) ? { class: "number" } : {}, value instanceof Node ? value : String(value));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {}, ...head.map((h, i) => cell("th", h, i)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map((value, i) => cell("td", value, i)))))));
}

const sums = counts => Object.entries(counts).map(([why, count]) => `${number(count)}: ${why}`).join("; ");

function hooks(run) {
  const rows = run.ledger.map(h => [element("code", {}, h.hook), h.do, h.at, number(h.sites), number(h.due), number(h.fired),
    number(h.changed), [h.failed ? `${number(h.failed)} failed` : "", sums(h.skipped), sums(h.dormant)].filter(Boolean).join("; ")]);
  return element("section", { class: "card" }, element("h2", {}, "Hooks"),
    table(["hook", "action", "at", "targets", "steps due", "fired", "changed", "notes"], rows, [3, 4, 5, 6]));
}

function suspects(run, flight) {
  if (!flight.suspects.length) return null;
  const found = table(["suspect", "at", "target", "why"], flight.suspects.map(s => [s.kind, s.point, element("code", {}, s.target), s.why]), []);
  return run.verdicts.length ? element("details", {}, element("summary", {}, "unusual numbers in this step"), found) : found;
}

function trips(run) {
  return element("section", { class: "card trips" }, element("h2", {}, "Trips"),
    element("p", {}, "Flight recorder reports, each with the verdict about the training or with the most likely suspects."),
    ...run.flights.map(flight => element("div", {}, element("p", {}, element("span", { class: "sign error" }, `step ${number(flight.step)}`), flight.reason),
      flight.verdict && flight.verdict.sentence !== run.verdicts[0]?.sentence ? element("p", {}, flight.verdict.sentence) : null,
      suspects(run, flight))));
}

function verdicts(run) {
  const [first, ...others] = run.verdicts;
  return element("section", { class: "card verdict" }, element("h2", {}, "What went wrong"),
    element("p", {}, element("span", { class: `sign ${first.severity}` }, first.code), element("b", {}, first.sentence)),
    element("ul", {}, ...first.evidence.map(one => element("li", {}, one))), element("p", {}, "Remedy: ", first.remedy),
    others.length ? element("details", {}, element("summary", {}, `${others.length} more`),
      ...others.map(one => element("p", {}, element("span", { class: `sign ${one.severity}` }, one.code), one.sentence))) : null);
}

function findings(run) {
  const listed = some => table(["", "what", "where", "evidence", "remedy"], some.map(f => [
    element("span", { class: `sign ${f.severity}` }, f.code), f.title, [f.hook, f.point, f.target].filter(Boolean).join(" · "),
    f.evidence, element("code", {}, f.remedy)]), []);
  const grave = run.findings.filter(f => f.severity !== "note"), notes = run.findings.filter(f => f.severity === "note");
  return element("section", { class: "card" }, element("h2", {}, "Findings"), grave.length ? listed(grave) : null,
    notes.length ? element("details", {}, element("summary", {}, `${notes.length} note${notes.length > 1 ? "s" : ""}`), listed(notes)) : null);
}

function plan(run) {
  return element("section", { class: "card" }, element("h2", {}, "Plan"),
    run.plan.digest ? element("p", {}, "digest ", element("code", {}, run.plan.digest)) : null,
    element("details", {}, element("summary", {}, "show the file"), element("pre", {}, run.plan.text)));
}

function head(run) {
  const grave = run.findings.filter(f => f.severity !== "note").length, steps = run.steps, signs = [];
  const sign = (kind, text) => signs.push(element("span", { class: `sign ${kind}` }, text));
  if (run.verdicts.length) sign(run.verdicts[0].severity, run.verdicts[0].code);
  if (run.flights.length) sign("error", `${run.flights.length} trip${run.flights.length > 1 ? "s" : ""}`);
  if (grave) sign("warning", `${grave} finding${grave > 1 ? "s" : ""}`);
  if (!signs.length) sign("good", "no findings");
  if (run.dropped) sign("warning", `${number(run.dropped)} rows dropped`);
  return element("header", {}, element("h1", {}, run.title), element("div", { class: "facts" },
    "steps ", element("b", {}, `${number(steps.first)} to ${number(steps.last)}`), " · ", element("b", {}, number(run.targets)), " targets · ",
    element("b", {}, number(run.ledger.length || new Set(run.matrices.map(m => m.hook)).size)), " hooks"), element("div", { class: "bar" }, ...signs));
}

const RUNS = JSON.parse(document.getElementById("data").textContent);
for (const run of RUNS) {
  const page = element("article", { class: "run" });
  document.getElementById("page").append(page);
  page.append(head(run));
  if (run.verdicts.length) page.append(verdicts(run));
  if (run.flights.length) page.append(trips(run));
  if (run.findings.some(f => f.severity !== "note")) page.append(findings(run));
  const each = run.steps.each > 1 ? `. Each column covers ${number(run.steps.each)} steps and shows the largest number among them` : "";
  const called = name => run.matrices.filter(m => m.name === name);
  if (run.matrices.length) page.append(heatmap(run, ["rms", "norm"].includes(run.matrices[0].name) ? "Gradient flow" : "Layer by step",
    `Layer by step${each}. Click a row to open it or to see its curve. Red cells are not finite.`, run.matrices));
  if (called("ratio").length) page.append(heatmap(run, "Updates relative to weights",
    "Norm of each update divided by the norm of the weight. A value of about 0.001 is typical.", called("ratio")));
  if (called("change").length) page.append(heatmap(run, "Changes by hooks",
    "Norm of the change that a hook made, divided by the norm of the value that the hook received.", called("change")));
  if (run.histograms.length) page.append(histogram(run));
  if (run.ledger.length) page.append(hooks(run));
  if (run.findings.length && run.findings.every(f => f.severity === "note")) page.append(findings(run));
  if (run.plan) page.append(plan(run));
}
// The text is visible while the browser loads the plotting code, which is about five megabytes.
document.addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(() => {
  document.head.append(element("script", {}, document.getElementById("plotly").textContent));
  for (const draw of drawings) draw();
  document.body.dataset.drawn = "yes";
})));
