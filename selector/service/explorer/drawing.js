// Tables, matrix, map and difference as elements. Data becomes text only, never markup.

// -- making elements ---------------------------------------------------------------------------

export function make(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, said] of Object.entries(attributes)) made.setAttribute(name, said);
  made.append(...inside.flat(Infinity).filter((part) => part !== null && part !== ""));
  return made;
}

export const list = (items) =>
  items.length ? make("ul", {}, items.map((item) => make("li", {}, item))) : "–";
export const names = (found) => (found.length ? found.join(", ") : "–");
export const faint = (...inside) => make("span", { class: "faint" }, ...inside);
export const place = (position) => make("span", { class: "faint place" },
  position && position[1] ? `${position[0].split("/").at(-1)}:${position[1]}` : "");
export const word = (one) => (typeof one === "string" ? one : JSON.stringify(one));

/** A number as people read it; JavaScript rounds those beyond 2^53, and says so. */
export function count(number) {
  if (Number.isSafeInteger(number)) return number.toLocaleString("en");
  const [digits, power] = number.toExponential(2).split("e+");
  return `about ${digits} × 10${[...power].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
}

const share = (part, whole) => {
  const percent = (100 * part) / whole;
  return percent && percent < 0.01 ? "less than 0.01 %" : `${Number(percent.toPrecision(2))} %`;
};

/** A name of words joined by `_`, which may go on in the next line after each. */
const broken = (name) => (typeof name === "string"
  ? name.split(/(?<=_)/).flatMap((part) => [part, make("wbr", {})]) : name);

/** A cell says what its column is called: on narrow screens a row is a card without a head. */
function cell(inside, head) {
  const made = inside?.tagName === "TD" ? inside : make("td", {}, inside ?? "–");
  made.dataset.head = head;
  return made;
}

/** A table in a region that can be scrolled with the keyboard. */
export function table(title, head, rows) {
  const heads = head.map((name) => make("th", { scope: "col" }, name));
  const lines = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, broken(first)),
      rest.map((inside, i) => cell(inside, head[i + 1]))),
  );
  return make(
    "div",
    { class: "wide", role: "region", tabindex: "0", "aria-label": title },
    make("table", {}, make("caption", {}, title),
      make("thead", {}, make("tr", {}, heads)), make("tbody", {}, lines)),
  );
}

// -- pictures: a table of links, which is one stop of the Tab key ----------------------------------

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** The link that lies next to another, over lines that only name a group. */
function beside(link, [down, right]) {
  const at = link.closest("td");
  const rows = [...at.closest("table").rows];
  const column = at.cellIndex + right;
  for (let row = at.parentElement.rowIndex + down; rows[row] && column > 0; row += down) {
    const found = rows[row].cells[column]?.querySelector("a");
    if (found || !down) return found;
  }
  return null;
}

/** Arrow keys move within; what a cell means is read out above, for mouse and keyboard alike. */
function picture(title, kind, head, bodies) {
  const readout = make("p", { class: "readout", "aria-hidden": "true" },
    "Point at a cell, or reach one with Tab and the arrow keys; Enter asks it.");
  const drawn = make("table", { class: `picture ${kind}`, role: "grid", "aria-label": title },
    make("caption", {}, make("span", {}, title)), make("thead", {}, head), bodies);
  const first = drawn.querySelector("td a");
  if (first) first.tabIndex = 0;
  const read = ({ target }) => {
    const link = target.closest("td")?.querySelector("a");
    if (link) readout.textContent = link.getAttribute("aria-label");
  };
  drawn.addEventListener("mouseover", read);
  drawn.addEventListener("focusin", read);
  drawn.addEventListener("keydown", (event) => {
    const next = MOVES[event.key] && beside(event.target, MOVES[event.key]);
    if (MOVES[event.key]) event.preventDefault();
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return make("div", {}, readout, make("div", { class: "wide high" }, drawn));
}

const linked = (href, label, inside) =>
  make("td", {}, make("a", { href, tabindex: "-1", "aria-label": label }, inside));
const column = (name, attributes = {}) => make("th", { scope: "col", ...attributes }, name);

// -- matrix --------------------------------------------------------------------------------------

const SIGNS = { yes: ["P", "D"], some: ["p", "d"], no: ["·", "·"] };
const half = (said, phase) => make("span", { class: said }, SIGNS[said][phase]);
const halves = ({ prefill, decode }) => [half(prefill, 0), half(decode, 1)];

const LEGEND = [
  ["yes", "yes", "an ordinary bfloat16 layer of the backend's kind runs"],
  ["some", "some", "only other layers of that kind, or depending on what is not known"],
  ["no", "no", "never"],
];

/** Kinds of layers, in the order of the rows, each with its rows. */
function kinds(rows, entries) {
  const of = new Map(entries.map((one) => [one.name, one]));
  const found = new Map();
  for (const row of rows) {
    const { mla = false, sparse = false } = of.get(row.backend) ?? {};
    const name = `${sparse ? "Sparse " : ""}${mla ? "MLA" : sparse ? "attention" : "Plain attention"}`;
    const fields = [mla ? "mla=true" : "", sparse ? "sparse=true" : ""].filter(Boolean).join("\n");
    if (!found.has(name)) found.set(name, { name, fields, rows: [] });
    found.get(name).rows.push(row);
  }
  return [...found.values()];
}

/** Neighbouring architectures of one family share a heading. */
function families(archs, gets) {
  const of = new Map(gets.map((one) => [one.arch, (one.family ?? one.arch).split(" ")[0]]));
  const found = [];
  for (const arch of archs) {
    if (found.at(-1)?.name === of.get(arch)) found.at(-1).span += 1;
    else found.push({ name: of.get(arch) ?? arch, span: 1 });
  }
  return found;
}

function group({ name, fields, rows }, archs, to) {
  const heading = make("th", { scope: "rowgroup", colspan: archs.length + 1 }, faint(name));
  const lines = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, broken(row.backend)),
    archs.map((arch) => {
      const said = row.cells[arch];
      if (!said) return make("td", {});
      const label = `${row.backend} on ${arch}: prefill ${said.prefill}, decode ${said.decode}`;
      return linked(to({ device: arch, backend: row.backend }, fields), label, halves(said));
    })));
  return make("tbody", {}, make("tr", { class: "group" }, heading), lines);
}

const either = (found) => names([...new Set(found)].filter(Boolean));
const conditions = ({ prefill, decode }) => either([...(prefill?.conditions ?? []),
  ...(decode?.conditions ?? [])].map((one) => `${one.field} ${one.allowed ?? ""}`));

export function tabled(said, entries, to) {
  return said.matrices.flatMap(({ archs, rows, gets }) => [
    make("h2", {}, `Which backend runs where: ${said.manifest.name} ${said.manifest.version}`),
    make("ul", { class: "legend", "aria-label": "Legend" },
      make("li", {}, "Left half: prefill. Right half: decode."),
      LEGEND.map(([name, title, text]) => make("li", {},
        make("span", { class: "swatch" }, halves({ prefill: name, decode: name })),
        make("strong", {}, ` ${title}`), `: ${text}`))),
    picture("Backends and architectures", "matrix", [
      make("tr", {}, make("td", {}),
        families(archs, gets).map((one) => make("th", { scope: "colgroup", colspan: one.span }, one.name))),
      make("tr", {}, column("Backend"), archs.map((arch) => column(arch)))],
      kinds(rows, entries).map((one) => group(one, archs, to))),
    make("p", { class: "faint" }, "What a backend requires is taken to be installed."),
    table("What plain GQA gets (bfloat16, heads of 128)",
      ["Architecture", "Prefill", "Decode", "If", "Else"], gets.map((one) =>
        [`${one.arch} ${one.family ?? ""}`, one.prefill?.backend, one.decode?.backend,
          conditions(one), either([one.prefill_else, one.decode_else])])),
  ]);
}

// -- map -----------------------------------------------------------------------------------------

/** The powers of two up to a length, and the length itself. */
export function steps(most) {
  const found = [];
  for (let length = 1; length < most; length *= 2) found.push(length);
  return [...found, most];
}

const short = (length) => (length % 1024 ? count(length) : `${count(length / 1024)}K`);

function taken(row) {
  if (row.error) return row.error;
  const backend = row.phase === "decode" ? row.decode_backend : row.prefill_backend;
  if (!backend) return "no backend";
  const path = row.prefill_path ?? "a path that depends on what is unknown";
  const by = row.prefill_by ? `, computed by ${row.prefill_by}` : "";
  return `${row.phase ?? "prefill or decode"} → ${backend} via ${path}${by}`;
}

export function mapped(resolution, answers, queries, lengths, to) {
  const amounts = new Map();
  answers.forEach((one) => amounts.set(taken(one), (amounts.get(taken(one)) ?? 0) + 1));
  const order = [...amounts.keys()];
  const at = new Map(answers.map((one) => [`${one.query_len} ${one.seq_len}`, taken(one)]));
  const letter = (kind) => String.fromCharCode(65 + (order.indexOf(kind) % 26));
  const colour = (kind) => `c${order.indexOf(kind) % 10}`;
  const swatch = (kind) => make("span", { class: `swatch ${colour(kind)}` }, letter(kind));
  const line = (query) => make("tr", {}, make("th", { scope: "row" }, short(query)),
    lengths.map((seq) => {
      const kind = at.get(`${query} ${seq}`);
      if (kind === undefined) return make("td", { class: "none" });
      const label = `${count(query)} new of ${count(seq)}: ${letter(kind)}, ${kind}`;
      const made = linked(to({ query_len: query, seq_len: seq }), label, letter(kind));
      made.className = colour(kind);
      return made;
    }));
  const said = make("ul", { class: "legend", "aria-label": "Legend" },
    order.map((kind) => make("li", {}, swatch(kind), make("span", { class: "said" }, ` ${kind} `),
      faint(`${count(amounts.get(kind))} of ${count(answers.length)} cells`))),
    make("li", {}, make("span", { class: "swatch none" }, " "), " no request: more new than in all"));
  const { model } = resolution;
  return [
    make("h2", {}, model ? `What ${model.group} layers of ${model.name ?? model.model_type} get, by length`
      : "What the layer gets, by length"),
    said,
    picture("New tokens (query_len) down, new and cached (seq_len) across; 1K is 1,024", "map", [
      make("tr", {}, make("td", {}), make("th", { scope: "colgroup", colspan: lengths.length },
        "New and cached tokens (seq_len) →")),
      make("tr", {}, column("New (query_len) ↓"), lengths.map((seq) => column(short(seq))))],
      make("tbody", {}, queries.map(line))),
  ];
}

// -- difference ----------------------------------------------------------------------------------

const pair = ({ prefill, decode }) =>
  prefill === decode ? (prefill ?? "no backend")
    : `prefill ${prefill ?? "no backend"}, decode ${decode ?? "no backend"}`;
const path = ({ phase, path: taking, by }) =>
  `${phase ? `${phase} ` : ""}${taking ?? "no path"}${by ? `, by ${by}` : ""}`;

function region(one) {
  const commands = [["old", one.witness?.old], ["new", one.witness?.new]].filter(([, text]) => text);
  return [one.words.join(", ") || "everywhere", faint(` ${count(one.count)}`),
    make("details", {}, make("summary", {}, "An example"), list(commands.map(([side, text]) =>
      [`${side}: `, make("code", {}, text)])))];
}

/** What changes into what; the largest with where, the others one line each. */
function changes(title, all, whole, head, row) {
  if (!all.length) return [];
  const told = all.filter((one) => one.regions.length);
  const rest = all.filter((one) => !one.regions.length);
  const amount = (one) => [count(one.count), make("br", {}), faint(share(one.count, whole))];
  const shown = told.map((one) => {
    const more = one.regions_in_all - one.regions.length;
    return [...row(one), make("td", {}, amount(one)), make("td", { class: "where" },
      list([...one.regions.map(region), ...(more > 0 ? [[`and ${count(more)} more regions`]] : [])]))];
  });
  return [
    table(title, [...head, "Questions", "Where"], shown),
    rest.length ? make("details", {}, make("summary", {}, `and ${rest.length} rarer changes`),
      table(`${title}, rarer`, [...head, "Questions"],
        rest.map((one) => [...row(one), make("td", {}, amount(one))]))) : null,
  ];
}

/** Models that change alike, together. */
function models(found) {
  const alike = new Map();
  for (const one of found) {
    const key = [pair(one.before), pair(one.after), names(one.archs)];
    if (!alike.has(`${key}`)) alike.set(`${key}`, [...key, []]);
    alike.get(`${key}`)[3].push(`${one.model} (${one.layers})`);
  }
  return table("Known models", ["Before", "After", "On", "Models (layers)"],
    [...alike.values()].map(([before, after, on, which]) => [before, after, on, names(which)]));
}

export function compared(said) {
  const summary = said.same_meaning ? "Both mean the same."
    : said.changed || said.paths.changes.length
      ? `Of ${count(said.questions)} questions, ${count(said.changed)} get another backend`
        + ` (${share(said.changed, said.questions)}); the path of prefill changes`
        + ` in ${said.paths.changes.length || "no"} ways.`
      : "No question is answered otherwise.";
  const entries = Object.entries(said.backends).filter(([, found]) => found.length)
    .map(([what, found]) => make("p", {}, `Backends ${what}: ${names(found.map(word))}.`));
  return [
    make("h2", {}, "What changes, and for whom"),
    make("p", { class: "choice said" }, summary), ...entries,
    said.same_meaning ? null : said.models.length ? models(said.models)
      : make("p", {}, "No known model on a known device gets another backend."),
    changes("Backends that change", said.changes, said.questions, ["Before", "After"],
      (one) => [pair(one.before), pair(one.after)]),
    changes("Prefill paths that change", said.paths.changes, said.paths.questions,
      ["Backend", "Before", "After"], (one) => [pair(one), path(one.before), path(one.after)]),
    said.space_differs ? make("p", {}, "The manifests do not know the same questions.") : null,
  ].flat().filter(Boolean);
}
