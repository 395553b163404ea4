// Answers as elements. Data becomes text only, never markup.

// -- making elements ---------------------------------------------------------------------------

export function make(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, said] of Object.entries(attributes)) made.setAttribute(name, said);
  made.append(...inside.flat().filter((part) => part !== null && part !== ""));
  return made;
}

export const list = (items) =>
  items.length ? make("ul", {}, items.map((item) => make("li", {}, item))) : "–";
const names = (found) => (found.length ? found.join(", ") : "–");
const place = (position) =>
  position && position[1] ? `${position[0].split("/").at(-1)}:${position[1]}` : "";
const called = ({ product, capability, platform }) => product ?? capability ?? platform;
const word = (one) => (typeof one === "string" ? one : JSON.stringify(one));
const count = (number) =>
  Number.isSafeInteger(number) ? number.toLocaleString("en") : `about ${number.toPrecision(4)}`;

/** A table in a region that can be scrolled with the keyboard. */
function table(title, head, rows, kind = "") {
  const heads = head.map((name) => make("th", { scope: "col" }, name));
  const lines = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), rest.map(cell)),
  );
  return make(
    "div",
    { class: "wide", role: "region", tabindex: "0", "aria-label": title },
    make("table", { class: kind }, make("caption", {}, title),
      make("thead", {}, make("tr", {}, heads)), make("tbody", {}, lines)),
  );
}

const cell = (inside) =>
  inside instanceof Element && inside.tagName === "TD" ? inside : make("td", {}, inside ?? "–");

// -- matrix --------------------------------------------------------------------------------------

const SIGNS = { yes: "● yes", some: "◐ some", no: "○ no" };

function support({ prefill, decode }) {
  if (prefill === decode) return make("td", { class: prefill }, SIGNS[prefill]);
  const kind = [prefill, decode].includes("yes") ? "yes" : "some";
  const text = prefill === "no" ? `${SIGNS[decode]}, decode only`
    : decode === "no" ? `${SIGNS[prefill]}, prefill only`
    : `prefill ${prefill}, decode ${decode}`;
  return make("td", { class: text.startsWith("prefill") ? "some" : kind }, text);
}

export function tabled(said) {
  return said.matrices.flatMap(({ archs, rows, gets }) => [
    make("h2", {}, `${said.manifest.name} ${said.manifest.version}`),
    make("p", { class: "faint" }, "yes: an ordinary bfloat16 layer of the backend's kind runs; "
      + "some: only other layers of that kind, or depending on what is not known; no: never. "
      + "What a backend requires is taken to be installed."),
    table("Backends and architectures", ["Backend", ...archs], rows.map((row) =>
      [row.backend, ...archs.map((arch) => (row.cells[arch] ? support(row.cells[arch]) : null))])),
    table("What plain GQA gets (bfloat16, heads of 128)",
      ["Architecture", "Prefill", "Decode"], gets.map((one) =>
        [`${one.arch} ${one.family ?? ""}`, one.prefill?.backend, one.decode?.backend])),
  ]);
}

// -- one question ------------------------------------------------------------------------------

const condition = (one) => `${one.field ?? "?"} ${one.allowed ?? ""}`.trim();
const change = (one) =>
  `${one.field}: ${one.before ?? "unknown"} → ${one.after ?? "another"}`
  + (one.others?.length ? ` (or ${one.others.join(", ")})` : "");

function refusal(one) {
  const what = one.field === null ? one.reason
    : `${one.field} is ${one.observed ?? "unknown"}; allowed: ${one.allowed ?? "none"}`
      + (one.nearest ? `; nearest: ${one.nearest}` : "")
      + (one.reason ? `. ${one.reason}` : "");
  return [make("code", {}, one.code), ` ${what} `,
    make("span", { class: "faint" }, place(one.position))];
}

function choices(resolution) {
  const rows = ["prefill", "decode"].filter((phase) => resolution[phase]).map((phase) => {
    const choice = resolution[phase];
    const backend = choice.backend ?? make("strong", { class: "bad" }, "no backend");
    const path = choice.path ?? names(choice.paths);
    return [phase, backend, choice.by ? `${path}, by ${choice.by}` : path,
      choice.reason ? `${choice.reason} (${choice.rank} of ${choice.of})` : "–",
      list(choice.conditions.map(condition)),
      list(choice.coercions.map((one) => `${one.field}: ${one.before} → ${one.after}`))];
  });
  const phase = resolution.phase === null ? "Not known whether it is a prefill or a decode"
    : `This request is a ${resolution.phase}`;
  return table(phase, ["Phase", "Backend", "Path", "Why", "If", "Changed values"], rows);
}

function candidates(resolution) {
  const rows = resolution.candidates.flatMap((one) => {
    const same = JSON.stringify(one.prefill) === JSON.stringify(one.decode);
    return (same ? ["prefill"] : ["prefill", "decode"]).filter((phase) => one[phase]).map(
      (phase) => [one.backend, same ? "both" : phase,
        make("td", { class: one[phase].outcome }, one[phase].outcome),
        list([...one[phase].rejections.map(refusal),
          ...one[phase].conditions.map((what) => `if ${condition(what)}`)]),
        place(one.position)]);
  });
  return table("Every candidate", ["Backend", "Phase", "Outcome", "Reasons", "Stated at"], rows);
}

function nearest({ remedy, elsewhere = [], prospects = [] }) {
  const near = prospects.filter((one) => one.changes.length && !one.obstacles.length).slice(0, 5);
  return [
    remedy ? make("p", {}, make("strong", {}, "The nearest change: "),
      names(remedy.changes.map(change))) : null,
    elsewhere.length ? make("p", {}, `It runs as it is on ${names(elsewhere)}.`) : null,
    near.length ? table("What would let others run it, nearest first",
      ["Backend", "Phases", "Change"],
      near.map((one) => [one.backend, names(one.phases), list(one.changes.map(change))])) : null,
  ].filter(Boolean);
}

export function explained(one) {
  const { resolution } = one;
  const { model, layer, device } = resolution;
  const title = model
    ? `${model.name ?? model.model_type}: ${model.group}, ${model.count} layers` : "The layer";
  const fields = Object.entries(layer).map(([field, is]) => `${field}=${is}`);
  return [
    make("h2", {}, `${title} on ${called(device)}`),
    choices(resolution), ...nearest(one),
    resolution.notes.length ? list(resolution.notes) : null,
    make("details", {}, make("summary", {}, "The layer as it was read"),
      make("code", {}, fields.join(", "))),
    candidates(resolution),
  ].filter(Boolean);
}

export function diagnosed(said) {
  const { error, device, resolution } = said;
  const where = device ? called(device) : "no known device";
  const remedies = said.remedies.map((one) => names(one.changes.map(change)));
  const rows = said.candidates.map((one) => [one.backend,
    list(one.said.map((reason) => `${reason.text}${reason.code ? ` (${reason.code})` : ""}`)),
    make("td", { class: one.outcome ?? "" }, one.outcome ?? "unknown"),
    list(one.rejections.map(refusal))]);
  return [
    make("h2", {}, `The error in line ${error.line}, on ${where}`),
    said.contradiction ? make("p", { class: "bad" }, said.contradiction) : null,
    make("p", {}, said.runs ? "The manifest has backends for this layer."
      : "The manifest has no backend for this layer."),
    said.runs_on.length ? make("p", {}, `It runs as it is on ${names(said.runs_on)}.`) : null,
    remedies.length ? make("p", {}, make("strong", {}, "The nearest change: "), remedies[0]) : null,
    remedies.length > 1 ? list(remedies.slice(1, 6).map((text) => `or ${text}`)) : null,
    make("p", { class: "faint" }, "Read from the log: ",
      names(Object.entries(said.layer).map(([field, is]) => `${field}=${is}`))),
    said.unread.length ? make("p", { class: "faint" }, "Not understood: ",
      names(said.unread.map(word))) : null,
    resolution ? choices(resolution) : null,
    table("Who was refused, and why", ["Backend", "The log", "Outcome here", "The manifest"], rows),
    resolution ? candidates(resolution) : null,
  ].filter(Boolean);
}

// -- map -----------------------------------------------------------------------------------------

/** The powers of two up to a length, and the length itself. */
export function steps(most) {
  const found = [];
  for (let length = 1; length < most; length *= 2) found.push(length);
  return [...found, most];
}

function taken(row) {
  if (row.error) return row.error;
  const backend = row.phase === "decode" ? row.decode_backend : row.prefill_backend;
  const path = row.prefill_path ?? "path depends on what is unknown";
  const by = row.prefill_by ? `, by ${row.prefill_by}` : "";
  return backend ? `${row.phase ?? "either"}: ${backend}, ${path}${by}` : "no backend";
}

export function mapped(resolution, answers, queries, lengths) {
  const kinds = new Map();
  answers.forEach((one) => kinds.set(taken(one), (kinds.get(taken(one)) ?? 0) + 1));
  const order = [...kinds.keys()];
  const at = new Map(answers.map((one) => [`${one.query_len} ${one.seq_len}`, taken(one)]));
  const letter = (kind) => String.fromCharCode(65 + (order.indexOf(kind) % 26));
  const colour = (kind) => `c${order.indexOf(kind) % 10}`;
  const rows = queries.map((query) => [String(query), ...lengths.map((seq) => {
    const kind = at.get(`${query} ${seq}`);
    if (kind === undefined) return make("td", {});
    return make("td", { class: colour(kind), title: `${query} of ${seq}: ${kind}` }, letter(kind));
  })]);
  const legend = order.map((kind) => make("li", {},
    make("span", { class: `swatch ${colour(kind)}` }, letter(kind)),
    ` ${kind} (${kinds.get(kind)})`));
  const title = resolution.model ? resolution.model.group : "The layer";
  return [
    make("h2", {}, title),
    make("ul", { class: "legend", "aria-label": "Legend" }, legend),
    table("Rows: new tokens (query_len). Columns: new and cached (seq_len)",
      ["query_len", ...lengths.map(String)], rows, "map"),
  ];
}

// -- difference ----------------------------------------------------------------------------------

const pair = ({ prefill, decode }) =>
  prefill === decode ? (prefill ?? "no backend")
    : `prefill ${prefill ?? "none"}, decode ${decode ?? "none"}`;

function changed(one) {
  const regions = one.regions.map((region) => {
    const commands = [region.witness?.old, region.witness?.new].filter(Boolean);
    return [region.words.join(", "), ` (${count(region.count)})`,
      make("details", {}, make("summary", {}, "An example"),
        list(commands.map((text) => make("code", {}, text))))];
  });
  const more = one.regions_in_all - regions.length;
  if (more > 0) regions.push([`and ${more} more regions`]);
  return [pair(one.before), pair(one.after), count(one.count), list(regions)];
}

export function compared(said) {
  const summary = said.same_meaning ? "Both mean the same."
    : `${count(said.changed)} of ${count(said.questions)} questions are answered otherwise.`;
  const models = said.models.map((one) => [one.model, one.layers, names(one.archs),
    pair(one.before), pair(one.after)]);
  const entries = Object.entries(said.backends).filter(([, found]) => found.length)
    .map(([what, found]) => make("p", {}, `${what}: ${names(found.map(word))}`));
  return [
    make("h2", {}, "What changes, and for whom"), make("p", {}, summary), ...entries,
    models.length
      ? table("Known models", ["Model", "Layers", "On", "Before", "After"], models) : null,
    said.changes.length ? table("All questions", ["Before", "After", "Questions", "Where"],
      said.changes.map(changed)) : null,
    said.paths.changes.length
      ? make("p", {}, `${said.paths.changes.length} prefill paths change; attnsel diff lists them.`)
      : null,
    said.space_differs ? make("p", {}, "The manifests do not know the same questions.") : null,
  ].filter(Boolean);
}
