// The answer to one question, and to an engine's error, as elements: what runs, then why.

import { count, faint, list, make, names, place, table, word } from "./drawing.js";

const PHASES = ["prefill", "decode"];
const SIGNS = { selected: "●", eligible: "○", conditional: "◐" };

const called = ({ product, capability, platform }) =>
  product && capability ? `${product} (${capability})` : capability ?? platform;
const condition = (one) => `${one.field ?? "?"} ${one.allowed ?? ""}`.trim();
const amount = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const change = (one) => `${one.field} ${one.before ?? "unknown"} → ${one.after ?? "another"}`
  + (one.others?.length ? ` (or ${one.others.join(", ")})` : "");

function asked({ query_len: query, seq_len: seq }) {
  if (query === null) return "any request";
  const cached = seq === null ? "any context"
    : seq === query ? "nothing cached" : `${count(seq - query)} cached`;
  return `${amount(query, "new token")}, ${cached}`;
}

function refusal(one) {
  const what = one.field === null ? one.reason
    : `${one.field} is ${one.observed ?? "unknown"}; allowed: ${one.allowed ?? "none"}`
      + (one.nearest && one.nearest !== one.allowed ? `; nearest: ${one.nearest}` : "")
      + (one.reason ? `. ${one.reason}` : "");
  return [make("code", {}, one.code), ` ${what} `, place(one.position)];
}

/** What is said of both phases once, and of one of them with its name. */
function phased(one, read) {
  const found = new Map();
  const told = PHASES.filter((phase) => one[phase]);
  for (const phase of told) {
    for (const item of read(one[phase])) {
      const key = JSON.stringify(item);
      if (!found.has(key)) found.set(key, { item, phases: [] });
      found.get(key).phases.push(phase);
    }
  }
  return [...found.values()].map(({ item, phases }) =>
    ({ item, only: phases.length < told.length ? phases[0] : "" }));
}

// -- what runs -----------------------------------------------------------------------------------

function chosen(resolution, phase) {
  const choice = resolution[phase];
  const paths = choice.path ? [choice.path] : choice.paths;
  const why = choice.reason
    ? `${choice.reason.replace(/\.$/, "")}, ${choice.rank} of ${choice.of} in its list`
    : choice.backend ? "forced" : "no entry fits; why is said below";
  return make("p", { class: "choice" },
    make("span", { class: "said" }, `${phase} → `,
      make("strong", choice.backend ? {} : { class: "bad" }, choice.backend ?? "no backend"),
      paths.length ? [" via ", make("strong", {}, paths.join(" or "))] : "",
      choice.by ? `, computed by ${choice.by}` : ""),
    resolution.phase === phase ? make("span", { class: "tag" }, "this request") : "",
    make("small", { class: "faint" }, `${why} `, place(choice.rule)));
}

/** What is chosen when a condition does not hold. */
function otherwise(resolution, phase) {
  const { possible, conditions } = resolution[phase];
  if (!conditions.length) return [];
  const last = resolution.candidates.find((one) => one.backend === possible.at(-1));
  return [[...possible.slice(1), ...(last?.[phase]?.conditions.length ? ["no backend"] : [])]
    .join(", then ")].filter(Boolean);
}

function facts(resolution) {
  const { phase, decode, off } = resolution;
  const only = ({ item, only: one }, say) => [say(item), one ? faint(` (for ${one})`) : ""];
  const besides = { prefill: otherwise(resolution, "prefill"), decode: otherwise(resolution, "decode") };
  const rows = [
    ["If", phased(resolution, (one) => one.conditions).map((one) => only(one, condition))],
    ["Else", phased(besides, (one) => one).map((one) => only(one, (text) => text))],
    ["Becomes", phased(resolution, (one) => one.coercions).map((one) => only(one, (it) =>
      [`${it.field} ${it.before} → ${it.after} `, faint(`${it.reason ?? ""} `), place(it.position)]))],
    ["Counts as", phase === null && decode.backend === null ? [] : [[phase ?? "prefill or decode", decode.decode_threshold === null ? ""
      : faint(` a decode has at most ${amount(decode.decode_threshold, "new token")}`)]]],
    ["Switched off", off.map((one) => [make("strong", {}, `${one.path} prefill of ${one.backend}`),
      ` is ${one.outcome}: ${one.rationale ?? ""} `,
      one.evidence.map((link) => [/^https?:/.test(link)
        ? make("a", { href: link, rel: "noreferrer" }, link) : link, " "]),
      one.revisit_when ? `Revisit when ${one.revisit_when} ` : "", place(one.position)])],
    ["Note", [...resolution.notes, ...(resolution.model?.notes ?? [])].map((note) => [note])],
  ].filter(([, said]) => said.length);
  return make("dl", {}, rows.map(([name, said]) =>
    [make("dt", {}, name), said.map((one) => make("dd", {}, one))]).flat());
}

// -- how far the others are --------------------------------------------------------------------

const NEVER = [["capability", "never on this device"], ["platform", "never on this device"],
  ["mla", "other kind of layer"], ["sparse", "other kind of layer"],
  ["attn_type", "never for this attn_type"], ["PINNED", "switched off"], ["DENIED", "denied"],
  ["PHASE", "other phase"], ["JOINT", "other KV cache"]];

function distance({ phases, changes, obstacles }) {
  if (!phases.length) {
    const found = NEVER.find(([what]) => obstacles.some(({ field, code }) => [field, code].includes(what)));
    return found?.[1] ?? "never here";
  }
  if (changes.some((one) => one.kind === "model")) return "never for this layer";
  const only = phases.length === 1 ? ` for ${phases[0]}` : "";
  return changes.length ? `${amount(changes.length, "change")} away${only}` : `runs${only}`;
}

const reachable = ({ phases, changes }) =>
  phases.length > 0 && changes.length > 0 && changes.every((one) => one.kind !== "model");

function nearest({ resolution, remedy, elsewhere = [], prospects = [] }) {
  const near = prospects.find(reachable);
  const first = prospects[0];
  const said = remedy
    ? [make("strong", {}, names(remedy.changes.map(change))), " makes ",
      names([...new Set(Object.values(remedy.backends))]), " the choice."]
    : near ? [make("strong", {}, names(near.changes.map(change))),
      ` would let ${near.backend} run ${near.phases.join(" and ")} too.`]
      : first ? ["No change of a setting lets another backend run this. The nearest that is refused is ",
        make("strong", {}, first.backend), ` (${distance(first)}): `, refusal(first.obstacles[0]
          ?? { field: null, reason: names(first.changes.map(change)), code: "" })]
        : [];
  const missing = PHASES.some((phase) => resolution[phase]?.backend === null);
  if (!said.length && !elsewhere.length && !missing) return null;
  return make("div", { class: "near" }, make("h3", {}, "Nearest change"),
    make("p", {}, said.length ? said : "No change of a setting is known that helps."),
    elsewhere.length ? make("p", {}, `As it is, it runs on ${names(elsewhere)}.`) : null);
}

const mark = (what) => `${SIGNS[what] ?? "✕"} ${what}`;

function outcome(one) {
  const [prefill, decode] = PHASES.map((phase) => one[phase]?.outcome);
  const found = prefill === decode || !decode ? prefill : prefill ? null : decode;
  if (found) return make("td", { class: `outcome ${found}` }, mark(found));
  return make("td", { class: `outcome ${[prefill, decode].find((what) => what in SIGNS) ?? ""}` },
    make("div", {}, `prefill ${mark(prefill)}`), make("div", {}, `decode ${mark(decode)}`));
}

/** The chosen, those that would do, then the refused, nearest first. */
function candidates(resolution, prospects = []) {
  const place_of = new Map(prospects.map((one, at) => [one.backend, at + 1]));
  const best = (one) => (PHASES.some((phase) => one[phase]?.outcome === "selected") ? -1
    : place_of.get(one.backend) ?? 0);
  const rows = [...resolution.candidates].sort((a, b) => best(a) - best(b)).map((one) => {
    const prospect = prospects[place_of.get(one.backend) - 1];
    const only = (name) => (name ? `${name}: ` : "");
    return [one.backend, outcome(one),
      prospect ? [distance(prospect), prospect.changes.length ? list(prospect.changes.map(change)) : ""]
        : "–",
      make("td", { class: "where" }, list([
        ...phased(one, (said) => said.rejections).map(({ item, only: it }) => [only(it), refusal(item)]),
        ...phased(one, (said) => said.conditions).map(({ item, only: it }) =>
          `${only(it)}if ${condition(item)}`)])),
      place(one.position)];
  });
  return table("Every candidate: what was seen, what is allowed; the refused nearest first",
    ["Backend", "Outcome", "How far", "Reasons", "Stated at"], rows);
}

const folded = (resolution, prospects, isOpen) => make("details", isOpen ? { open: "" } : {},
  make("summary", {}, `All ${resolution.candidates.length} candidates, and why not the others`),
  candidates(resolution, prospects));

/** One group of layers; of several, the answers stand together and what is long is folded. */
export function explained(one, at, all) {
  const { resolution } = one;
  const { model, layer, device, request } = resolution;
  const whole = model ? model.name ?? model.model_type : "One layer";
  const fields = Object.entries(layer).map(([field, is]) => `${field}=${is}`);
  return [
    at === 0 ? make("h2", {}, `${whole} · ${called(device)} · ${asked(request)}`) : null,
    model ? make("h3", {}, `${model.count} ${model.group} layers`) : null,
    make("div", { class: "answer" }, PHASES.filter((phase) => resolution[phase])
      .map((phase) => chosen(resolution, phase)), facts(resolution)),
    nearest(one),
    folded(resolution, one.prospects, all.length === 1),
    make("details", {}, make("summary", {}, "The layer as it was read"),
      make("code", {}, fields.join(", "))),
  ].filter(Boolean);
}

// -- an engine's error -----------------------------------------------------------------------------

const KINDS = { none: "no backend was valid", forced: "the backend that was asked for was refused",
  refused: "a backend refused" };

function remedies(said) {
  const found = said.remedies.map((one) => [make("strong", {}, names(one.changes.map(change))),
    one.backends ? ` makes ${names([...new Set(Object.values(one.backends))])} the choice` : ""]);
  if (!found.length && !said.runs_on.length) return null;
  return make("div", { class: "near" }, make("h3", {}, "Nearest change"),
    make("p", {}, found[0] ?? "No change of a setting is known that helps."),
    found.length > 1 ? list(found.slice(1, 6).map((one) => ["or ", ...one])) : null,
    said.runs_on.length ? make("p", {}, `As it is, it runs on ${names(said.runs_on)}.`) : null);
}

export function diagnosed(said) {
  const { error, device, resolution } = said;
  const rows = said.candidates.map((one) => [one.backend,
    list(one.said.map((reason) =>
      [reason.code ? [make("code", {}, reason.code), " "] : "", reason.text].flat())),
    make("td", { class: `outcome ${one.outcome ?? ""}` }, one.outcome ? mark(one.outcome) : "? not known"),
    make("td", { class: "where" }, list([...one.rejections, ...one.later].map(refusal)))]);
  const verdict = said.contradiction ?? (said.runs
    ? `The manifest has backends for this layer${device ? "" : " on some devices"}.`
    : "The manifest has no backend for this layer.");
  return [
    make("h2", {}, `The error in line ${count(error.line)}: ${KINDS[error.kind] ?? error.kind}`),
    make("div", { class: "answer" },
      make("p", { class: said.runs && !said.contradiction ? "choice said" : "choice said bad" }, verdict),
      make("dl", {}, [
        ["Device", device ? called(device) : "not said by the log: say it above"],
        ["Read", names(Object.entries(said.layer).map(([field, is]) => `${field} ${is}`))],
        ["Not understood", said.unread.length ? names(said.unread.map(word)) : null],
      ].filter(([, text]) => text).flatMap(([name, text]) =>
        [make("dt", {}, name), make("dd", {}, text)])),
      resolution ? PHASES.filter((phase) => resolution[phase])
        .map((phase) => chosen(resolution, phase)) : null),
    remedies(said),
    table("Who was refused, and why",
      ["Backend", "The log says", "Outcome by the manifest", "The manifest says"], rows),
    resolution ? folded(resolution, [], false) : null,
  ].filter(Boolean);
}
