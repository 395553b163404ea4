// The explorer: what is asked, the URL that says it, and the page around the answer.

import { diagnosed, explained } from "./answers.js";
import { compared, list, make, mapped, steps, tabled } from "./drawing.js";

const element = (id) => document.getElementById(id);
const controls = [...document.querySelectorAll("[name]:not(meta)")];
let view = "matrix";
let running = new AbortController();
let token = "";
let answered = null; // which manifest gave what is shown

// -- asking ------------------------------------------------------------------------------------

class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the service answered ${status}`);
    this.status = status;
    this.findings = problem.findings ?? [];
  }
}

const shown = () => (token ? { authorization: `Bearer ${token}` } : {});

async function call(path, body, signal = running.signal) {
  const headers = shown();
  const used = token;
  const how = { headers, signal };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    Object.assign(how, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(path, how).catch((error) => {
    throw error instanceof TypeError ? new Error("the service is not reached") : error;
  });
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    if (used === token) askForToken(); // one that came late speaks of an older token
    said.detail = "a token is needed: say it above";
  }
  if (!answer.ok) throw new Refusal(answer.status, said);
  const name = answer.headers.get("attnsel-manifest");
  if (name !== null && signal !== null) {
    const [digest, generation] = ["digest", "generation"].map((one) =>
      answer.headers.get(`attnsel-${one}`));
    answered = { name, generation: Number(generation), digest };
  }
  return said;
}

function askForToken() {
  element("access").hidden = false;
  element("refused").textContent = token ? "The service refuses this token." : "The service asks for one.";
  element("token").focus();
}

const value = (name) => {
  const found = controls.find((one) => one.name === name);
  return found.type === "checkbox" ? found.checked : found.value.trim();
};

/** Lines or comma-separated pairs `field=value`. */
function pairs(text, read) {
  const found = {};
  for (const line of text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`"${line}" says no value; write field=value`);
    found[line.slice(0, at).trim()] = read(line.slice(at + 1).trim());
  }
  return found;
}

const plain = (text) =>
  /^\d+$/.test(text) ? Number(text) : text === "true" || text === "false" ? text === "true" : text;
const fact = (text) => (text === "none" ? null : text);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the config.json is no JSON: ${error.message}`);
  }
}

function question() {
  if (!value("device")) throw new Error("say a device, such as sm120 or H200");
  const asked = { device: value("device"), layer: pairs(value("fields"), plain) };
  if (value("manifest")) asked.manifest = value("manifest");
  if (value("config")) asked.model = parsed(value("config"));
  else if (value("model")) asked.model = value("model");
  if (value("num_reqs")) asked.layer.num_reqs = Number(value("num_reqs"));
  if (value("backend")) asked.policy = { backend: value("backend") };
  asked.facts = pairs(value("facts"), fact);
  for (const name of ["as_claimed", "closed_world"]) asked[name] = value(name);
  return asked;
}

// -- the URL -----------------------------------------------------------------------------------

/** Whether a control belongs to the view; an engine's error says some things itself. */
const isAsked = (control) => {
  for (let at = control; at !== null; at = at.parentElement) {
    if (at.dataset.in && !at.dataset.in.split(" ").includes(view)) return false;
    if ("unlogged" in at.dataset && view === "ask" && value("log")) return false;
  }
  return true;
};

/** What is asked, as the part of the URL that no server sees. */
function written() {
  const said = new URLSearchParams({ view });
  controls.filter(isAsked).forEach((control) => say(said, control));
  return `#${said}`;
}

function say(said, control) {
  if (control.type === "checkbox") {
    if (control.checked) said.set(control.name, "1");
  } else if (control.value && control.value !== control.defaultValue) {
    said.set(control.name, control.value);
  }
}

/** A link that asks the same but for what is given; fields of a kind stand in for a model. */
function to(given, fields = "") {
  const said = new URLSearchParams({ view: "ask" });
  controls.filter((one) => one.name !== "log" && !["old", "new"].includes(one.name.split("_")[0]))
    .forEach((control) => say(said, control));
  for (const [name, is] of Object.entries(given)) said.set(name, is);
  if (fields && !said.get("model") && !said.has("config")) said.set("fields", fields);
  return `#${said}`;
}

/** A name that is not served is kept, so that the service refuses it. */
function put(control, given) {
  control.value = given;
  if (control.value !== given && control.tagName === "SELECT") {
    control.append(make("option", { value: given }, given));
    control.value = given;
  }
}

function restore() {
  const said = new URLSearchParams(location.hash.slice(1));
  const wanted = said.get("view");
  view = ["matrix", "ask", "map", "diff"].includes(wanted) ? wanted : "matrix";
  for (const control of controls) {
    const given = said.get(control.name);
    if (control.type === "checkbox") control.checked = given === "1";
    else if (given !== null) put(control, given);
    else if (control.tagName === "SELECT") control.selectedIndex = 0;
    else control.value = control.defaultValue;
  }
  if (!said.has("new") && element("new").length > 1) element("new").selectedIndex = 1;
  for (const part of document.querySelectorAll("details[id]")) {
    part.open = [...part.querySelectorAll("[name]")].some((one) => said.has(one.name));
  }
  show();
}

// -- each view -----------------------------------------------------------------------------------

const manifestPath = (path) => {
  const manifest = value("manifest");
  return `${path}${manifest ? `?${new URLSearchParams({ manifest })}` : ""}`;
};

async function drawMatrix() {
  const [said, stated] = await Promise.all([call(manifestPath("/v1/matrix")),
    call(manifestPath("/v1/backends"))]);
  return tabled(said, stated.backends, to);
}

async function drawAnswer() {
  if (value("log")) {
    const asked = { log: value("log"), layer: pairs(value("fields"), plain),
      facts: pairs(value("facts"), fact) };
    for (const name of ["manifest", "device"]) if (value(name)) asked[name] = value(name);
    const said = await call("/v1/explain", asked);
    return (said.diagnoses ?? [said]).flatMap(diagnosed);
  }
  const asked = question();
  asked.request = {};
  for (const name of ["query_len", "seq_len"]) {
    if (value(name)) asked.request[name] = Number(value(name));
  }
  const said = await call("/v1/explain", asked);
  return (said.layers ?? [said]).flatMap(explained);
}

async function mapOf(resolution, asked, queries, lengths) {
  const { num_reqs = null, ...layer } = resolution.layer;
  const row = { ...layer, num_reqs };
  for (const [name, said] of Object.entries(asked.facts)) row[name] = said ?? "none";
  if (asked.policy) row.backend = asked.policy.backend;
  const grid = queries.flatMap((query_len) => lengths.filter((seq_len) => seq_len >= query_len)
    .map((seq_len) => ({ ...row, query_len, seq_len })));
  const how = new URLSearchParams({ device: asked.device });
  if (asked.manifest) how.set("manifest", asked.manifest);
  for (const name of ["as_claimed", "closed_world"]) if (asked[name]) how.set(name, "true");
  const answers = await call(`/v1/resolve:batch?${how}`, grid);
  return mapped(resolution, answers, queries, lengths, to);
}

async function drawMap() {
  const asked = question();
  const queries = steps(Number(value("most_query")) || 1);
  const lengths = steps(Number(value("most_seq")) || 1);
  const said = await call("/v1/resolve", asked);
  const maps = (said.layers ?? [said]).map((one) => mapOf(one, asked, queries, lengths));
  return (await Promise.all(maps)).flat();
}

function side(name) {
  const document = value(`${name}_document`);
  const said = document ? { document } : { name: value(name) };
  return { ...said, as_claimed: value(`${name}_as_claimed`) };
}

async function drawDifference() {
  const said = await call("/v1/diff", { old: side("old"), new: side("new"), limit: 3 });
  return compared(said);
}

// -- the page ----------------------------------------------------------------------------------

const DRAW = { matrix: drawMatrix, ask: drawAnswer, map: drawMap, diff: drawDifference };

/** Shows the parts of the view, without asking anything; what is still asked is given up. */
function show() {
  running.abort();
  running = new AbortController();
  for (const part of document.querySelectorAll("[data-in]")) {
    part.hidden = !part.dataset.in.split(" ").includes(view);
  }
  enable();
  for (const button of document.querySelectorAll("[data-view]")) {
    if (button.dataset.view === view) {
      button.setAttribute("aria-current", "page");
      document.title = `${button.textContent} · attnsel explorer`;
    }
    else button.removeAttribute("aria-current");
  }
  element("result").replaceChildren();
  tell("");
}

/** What is not asked cannot be filled in, and says so where it is an error that silences it. */
function enable() {
  for (const control of controls) control.disabled = !isAsked(control);
  element("silenced").hidden = view !== "ask" || !value("log");
}

/** What screen readers say at once; what is drawn beneath says it to the eye. */
function tell(text, kind = "") {
  element("message").textContent = text;
  element("message").className = kind;
}

async function answer() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  answered = null;
  tell("Asking…");
  try {
    const drawn = await DRAW[view]();
    if (signal.aborted) return;
    element("result").replaceChildren(...drawn);
    const said = [...element("result").querySelectorAll(".said")].map((one) => one.textContent.trim());
    tell(`Answered. ${said.slice(0, 6).join("; ")}`, "heard");
  } catch (error) {
    if (signal.aborted) return;
    const findings = (error.findings ?? []).map((one) =>
      `${one.line}:${one.column} ${one.code} ${one.message}${one.fix ? `; ${one.fix}` : ""}`);
    element("result").replaceChildren(...(findings.length > 1 ? [list(findings)] : []));
    tell(error.message, "bad");
  }
  sign();
}

/** Says who answered, and whether another generation is served by now. */
function sign(states = []) {
  const now = states.find((one) => one.name === answered?.name);
  const isOld = now !== undefined && now.generation !== answered.generation;
  if (isOld && view === "matrix") return void answer();
  element("served").textContent = answered === null ? ""
    : `Answered by ${answered.name}, generation ${answered.generation}, ${answered.digest.slice(0, 12)}.`
      + (isOld ? ` Generation ${now.generation} is served now: ask again.` : "");
}

function ask(event) {
  event?.preventDefault();
  if (written() !== location.hash) history.pushState(null, "", written());
  answer();
}

/** Asks what the URL says; a view whose form says nothing yet waits for it. */
function answerSaid() {
  const said = new URLSearchParams(location.hash.slice(1));
  const needed = { matrix: [], ask: ["device", "log"], map: ["device"], diff: ["new", "new_document"] }[view];
  if (needed.length === 0 || needed.some((name) => said.has(name))) answer();
}

function follow() {
  restore();
  answerSaid();
}

function fill(id, found) {
  const first = element(id).querySelector("option[value='']");
  element(id).replaceChildren(...(first ? [first] : []),
    ...found.map((name) => make("option", { value: name }, name)));
}

let troubled = "";

function trouble({ name, generation, trouble: said }) {
  const since = said ? ` since ${new Date(Date.now() - said.age_s * 1000).toLocaleTimeString()}` : "";
  return make("div", {}, make("strong", {}, `${name} is degraded`),
    `${since}: its file is broken, generation ${generation} is still served. `,
    said?.findings.length ? list(said.findings.map((found) =>
      `${found.line}:${found.column} ${found.code} ${found.message}`)) : said?.detail ?? "");
}

/** Looks whether the service is there, and well. */
async function look() {
  const said = await fetch("/readyz", { headers: shown() })
    .then((answer) => answer.json()).catch(() => ({ status: "not reached", manifests: [] }));
  sign(said.manifests);
  const bad = said.manifests.filter((one) => one.status === "degraded");
  const states = bad.map((one) => [one.name, one.generation, one.trouble?.detail]);
  const now = JSON.stringify([said.status, states]);
  if (now === troubled) return said;
  troubled = now;
  element("health").textContent = said.status === "not reached"
    ? "The service is not reached; it is tried every 5 seconds." : said.status;
  element("health").className = said.status === "ready" ? "faint" : "bad";
  element("trouble").hidden = bad.length === 0;
  element("trouble").replaceChildren(...bad.map(trouble));
  return said;
}

async function learn() {
  const used = token;
  const models = await call("/v1/models", undefined, null).catch(() => null);
  const ready = await look();
  if (used !== token) return;
  const served = ready.manifests.map((one) => one.name);
  for (const id of ["manifest", "old", "new"]) fill(id, served);
  fill("models", models?.presets ?? []);
  follow();
  await suggest();
}

/** Fills the lists that the device and the forced backend are chosen from. */
async function suggest() {
  const matrix = await call(manifestPath("/v1/matrix"), undefined, null).catch(() => null);
  fill("devices", [...(matrix?.matrices[0].archs ?? []), "H100", "H200", "B200", "RTX PRO 6000"]);
  fill("backends", matrix?.matrices[0].rows.map((row) => row.backend) ?? []);
}

for (const button of document.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => {
    view = button.dataset.view;
    show();
    history.pushState(null, "", written());
    if (view !== "diff") answerSaid(); // a difference takes a while: it waits for its button
  });
}
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => {
    const manifest = new URLSearchParams({ manifest: value("manifest") });
    location.hash = `view=ask&${manifest}&${button.dataset.example}`;
  });
}
element("question").addEventListener("submit", ask);
element("question").addEventListener("input", enable);
element("compare").addEventListener("submit", ask);
element("manifest").addEventListener("change", () => {
  suggest();
  if (view === "matrix") ask();
});
element("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is the question's
  element("main").focus();
});
element("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = element("token").value; // kept by this page alone, never in the URL
  element("access").hidden = true;
  troubled = "";
  learn();
});
addEventListener("popstate", follow);
setInterval(() => document.hidden || look(), 5000);
learn();
