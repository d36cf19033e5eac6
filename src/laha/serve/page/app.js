// The page: one text or many, their labels, the words behind each, and what people decide.

import { call, count, fromFragment, decimal, make, onKeyNeeded, percent, remember, remembered, toFragment, wait } from "./state.js";
import { WordView } from "./text.js";
import { LabelList, TypeAhead } from "./labels.js";
import { batches, mayBeMany, readDocuments, save } from "./files.js";
import { card } from "./card.js";

const $ = (id) => document.getElementById(id);
const state = {
  model: null,
  text: "",
  sha256: null,
  labels: [], // suggested: {label, score, frequency, group}
  decisions: {},
  chosen: null,
  kind: "fused",
  documents: [], // of a file: {id, text, labels, sha256}
  at: -1, // which of them is shown
  file: null,
  news: new Set(), // labels that people made up, of which the model knows nothing
  run: 0, // counts what was asked, so that a late answer to an older question is dropped
};

const score = (value) => (state.model.calibrated ? percent(value) : decimal(value));
const words = new WordView($("words"), $("word-info"), (shares) => list.mark(shares));
const list = new LabelList($("label-groups"), { choose, decide });
const typeAhead = new TypeAhead($("add-label"), $("add-options"), addLabel, showProblem);

function addLabel(entry) {
  if (entry.frequency === undefined) state.news.add(entry.label);
  decide(entry.label, "added");
}

// Telling

function say(text) {
  $("live").textContent = text;
}

function showProblem(problem) {
  $("problem").querySelector("span").textContent = problem?.message ?? String(problem);
  $("problem").hidden = false;
}

$("problem").querySelector("button").addEventListener("click", () => ($("problem").hidden = true));

onKeyNeeded(() => {
  const dialog = $("key-dialog");
  dialog.showModal();
  return new Promise((done) => {
    $("key-form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        const key = $("key").value;
        $("key").value = "";
        dialog.close();
        done(key);
      },
      { once: true },
    );
  });
});

// The model

async function loadModel() {
  for (;;) {
    try {
      state.model = await call("api/model");
      break;
    } catch (problem) {
      if (problem.status !== 503) showProblem(problem);
      await wait(problem.status === 503 ? 500 : 3000);
    }
  }
  const model = state.model;
  document.title = `${model.name} – laha`;
  $("model-line").replaceChildren(make("b", {}, model.name), ` knows ${count(model.labels)} labels`);
  $("card-content").replaceChildren(...card(model));
  $("precision").hidden = $("precision-label").hidden = !model.calibrated;
  $("kinds").hidden = !model.explains;
  $("texts-kept").textContent = model.keeps_texts ? ", with the text" : ", without the text";
  typeAhead.takesNew = model.new_labels;
  for (const option of [...$("top").options]) if (Number(option.value) > model.limits.max_top) option.remove();
}

$("show-card").addEventListener("click", () => state.model && $("card").showModal());

// Tagging

async function tag(text, { chosen = null, keepFocus = false } = {}) {
  if (!state.model || !text.trim()) return;
  const run = ++state.run;
  $("problem").hidden = true;
  document.body.classList.add("busy");
  try {
    const body = { text, top: Number($("top").value) };
    if ($("precision").value) body.min_precision = Number($("precision").value);
    const [found] = (await call("api/tag", { body })).documents;
    const decisions = state.model.feedback ? (await call(`api/feedback/${found.sha256}`)).decisions : {};
    if (run !== state.run) return;
    Object.assign(state, { text, sha256: found.sha256, labels: found.labels, decisions, chosen: null });
    const known = found.labels.some((entry) => entry.label === chosen) || chosen in decisions;
    state.chosen = known ? chosen : (found.labels[0]?.label ?? null);
    showText([]);
    showLabels();
    say(`${found.labels.length} labels found`);
    if (!keepFocus) $("labels-title").focus({ preventScroll: true });
    await explain(found.labels.slice(0, state.model.limits.explained).map((entry) => entry.label), run);
    if (run === state.run && state.chosen) await choose(state.chosen, run);
    keep();
  } catch (problem) {
    if (run === state.run) showProblem(problem);
  } finally {
    if (run === state.run) document.body.classList.remove("busy");
  }
}

/** Ask for the words behind labels; the first answer also tells where the words of the text stand. */
async function explain(labels, run = state.run) {
  if (!state.model.explains || !labels.length) return;
  const explained = await call("api/explain", { body: { text: state.text, labels } });
  if (run !== state.run) return;
  if (words.words.length === 0 && explained.labels.length) showText(explained.labels[0].words, explained.text);
  explained.labels.forEach((entry) => words.add(entry));
  words.colour(state.chosen, state.kind);
}

function showText(found, text = state.text) {
  words.show(text, found);
  $("entry").hidden = true;
  $("view").hidden = $("edit").hidden = $("share").hidden = false;
  $("words-help").hidden = !state.model.explains;
  const most = state.model.configuration.max_words;
  $("cut").hidden = !(found.length && found.length === most && $("words").querySelector(".rest")?.textContent.trim());
  $("cut").textContent = `The model read the first ${count(most)} words.`;
}

function showLabels() {
  const { labels, decisions, chosen, model } = state;
  list.show(labels, decisions, chosen, { decides: model.feedback, score });
  const nothing = !labels.length && !Object.keys(decisions).length;
  $("labels-empty").hidden = !nothing;
  $("labels-empty").textContent = "No label reaches what is asked.";
  $("add").hidden = $("decide-note").hidden = !model.feedback;
  $("score-note").hidden = model.calibrated;
  $("score-note").textContent = "Scores of this model are not calibrated: they rank labels, but are no probabilities.";
}

async function choose(label, run = state.run) {
  state.chosen = label;
  showLabels();
  words.colour(label, state.kind);
  try {
    if (state.news.has(label)) {
      $("detail").hidden = true;
      return;
    }
    if (!words.byLabel.has(label)) await explain([label], run);
    const about = await call(`api/labels/${encodeURIComponent(`label:${label}`)}`);
    if (run === state.run && state.chosen === label) showDetail(about);
    keep();
  } catch (problem) {
    if (run !== state.run) return;
    if (problem.status !== 404) return showProblem(problem);
    state.news.add(label);
    $("detail").hidden = true;
  }
}

function showDetail(about) {
  const explained = words.byLabel.get(about.label);
  $("detail").hidden = false;
  $("detail-title").textContent = about.label;
  const facts = [`${count(about.frequency)} training documents`];
  if (explained) facts.unshift(`score ${score(explained.score)}`);
  if (!about.uri.startsWith("label:")) facts.push(about.uri);
  if (about.other_names.length) facts.push(`also ${about.other_names.join(", ")}`);
  $("detail-facts").textContent = facts.join(" · ");
  const listed = state.labels.some((entry) => entry.label === about.label) || about.label in state.decisions;
  $("detail-decide").replaceChildren(
    ...(listed || !state.model.feedback
      ? []
      : [make("button", { type: "button", class: "main", onclick: () => decide(about.label, "added") }, "Add this label")]),
  );
  $("shares").replaceChildren(...(explained ? shares(explained) : []));
  const { graph, vectors } = about.neighbours;
  $("neighbours").replaceChildren(
    ...neighbours("Often together with", graph, (entry) => `${count(entry.documents)} documents`),
    ...neighbours("Near in the label graph's vectors", vectors, (entry) => entry.similarity.toFixed(2)),
  );
  const examples = about.examples ?? [];
  $("examples").replaceChildren(
    ...(examples.length ? [make("h3", {}, "Documents with it")] : []),
    ...examples.map((text) => make("blockquote", {}, text)),
  );
}

function shares({ alpha, beta, experts }) {
  const split = make(
    "div",
    { class: "split", share: alpha.toFixed(4), role: "img", "aria-label": `self-attention ${percent(alpha)}, interaction ${percent(beta)}` },
    make("span", { class: "self" }),
    make("span", { class: "interaction" }),
  );
  const named = make(
    "p",
    { class: "row note" },
    make("span", {}, `α self-attention ${percent(alpha)}`),
    make("span", { class: "push" }),
    make("span", {}, `β interaction ${percent(beta)}`),
  );
  const parts = Object.entries(experts);
  if (!parts.length) return [named, split];
  const most = Math.max(...parts.map(([, share]) => Math.abs(share))) || 1;
  const rows = parts.map(([name, share]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, name),
      make("td", { class: "plot" }, make("span", { class: "bar", share: (Math.abs(share) / most).toFixed(4) })),
      make("td", {}, percent(share)),
    ),
  );
  return [named, split, make("h3", {}, "Whose evidence it is"), make("table", { class: "frequencies" }, make("tbody", {}, ...rows))];
}

function neighbours(title, entries, tell) {
  if (!entries?.length) return [];
  const chips = entries.map((entry) =>
    make(
      "li",
      {},
      make("button", { type: "button", class: "chip", title: tell(entry), onclick: () => choose(entry.label) }, entry.label),
    ),
  );
  return [make("h3", {}, title), make("ul", { class: "chips" }, ...chips)];
}

// Deciding

async function decide(label, decision) {
  if (!state.text || !state.model.feedback) return;
  const run = state.run;
  const before = { ...state.decisions };
  const now = { ...before };
  delete now[label];
  if (decision !== "withdrawn") now[label] = decision;
  state.decisions = now;
  if (decision === "added") state.chosen = label;
  showLabels();
  try {
    const body = { text: state.text, decisions: [{ label, decision }] };
    const kept = await call("api/feedback", { body, who: $("who").value.trim() });
    if (run !== state.run) return;
    state.decisions = kept.decisions;
    showLabels();
    say(`${label}: ${decision}`);
    if (decision === "added") await choose(label, run);
  } catch (problem) {
    if (run === state.run) {
      state.decisions = before;
      showLabels();
    }
    showProblem(problem);
  }
}

// Views: reloading, sharing, editing

const view = () => ({ text: state.text, label: state.chosen, kind: state.kind, top: $("top").value });

function keep() {
  remember(view());
}

async function restore() {
  const shared = await fromFragment(location.hash);
  const from = shared ?? remembered();
  if (!from?.text) return;
  setKind(from.kind);
  if ([...$("top").options].some((option) => option.value === String(from.top))) $("top").value = from.top;
  $("text").value = from.text;
  await tag(from.text, { chosen: from.label, keepFocus: true });
}

function setKind(kind) {
  const input = document.querySelector(`input[name=kind][value="${CSS.escape(String(kind))}"]`);
  if (!input) return;
  input.checked = true;
  state.kind = kind;
  words.colour(state.chosen, kind);
}

$("share").addEventListener("click", async () => {
  const address = location.href.split("#")[0] + (await toFragment(view()));
  history.replaceState(null, "", address);
  const copied = await navigator.clipboard?.writeText(address).then(() => true, () => false);
  const told = copied ? "Copied: the text travels in the link itself" : "The address bar has the link now";
  $("share").textContent = told;
  say(told);
  await wait(2500);
  $("share").textContent = "Copy link";
});

window.addEventListener("hashchange", restore);

function edit() {
  state.run++;
  document.body.classList.remove("busy");
  $("entry").hidden = false;
  $("view").hidden = $("edit").hidden = $("share").hidden = $("detail").hidden = true;
  $("text").value = state.text;
  $("text").focus();
}

$("edit").addEventListener("click", edit);
$("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  if (location.hash) history.replaceState(null, "", location.pathname);
  tag($("text").value);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("entry").requestSubmit();
});
$("top").addEventListener("change", again);
$("precision").addEventListener("change", again);

function again() {
  if (state.text && $("entry").hidden) tag(state.text, { chosen: state.chosen, keepFocus: true });
}

for (const input of document.querySelectorAll("input[name=kind]")) {
  input.addEventListener("change", () => {
    setKind(input.value);
    keep();
  });
}

$("who").value = localStorage.getItem("laha-who") ?? "";
$("who").addEventListener("change", () => localStorage.setItem("laha-who", $("who").value.trim()));

// Files: one document or many

async function open(file) {
  const content = await file.text();
  state.file = { name: file.name, content };
  const unclear = mayBeMany(file.name, content);
  $("split-choice").hidden = !unclear;
  document.querySelector("input[name=split][value=lines]").checked = true;
  await openDocuments(unclear);
}

async function openDocuments(byLine) {
  const { name, content } = state.file;
  let documents;
  try {
    documents = readDocuments(name, content, byLine);
  } catch (problem) {
    return showProblem(problem);
  }
  state.documents = documents;
  state.at = -1;
  $("documents").hidden = documents.length === 1 && $("split-choice").hidden;
  showDocuments();
  showDocument(0);
  if (documents.length > 1) await tagDocuments(documents);
}

async function tagDocuments(documents) {
  let done = 0;
  try {
    for (const batch of batches(documents, state.model.limits)) {
      const body = { text: batch.map((document) => document.text), top: Number($("top").value) };
      const found = await patiently(() => call("api/tag", { body }));
      if (state.documents !== documents) return;
      batch.forEach((document, number) => Object.assign(document, found.documents[number]));
      done += batch.length;
      $("documents-note").textContent = done < documents.length ? `${count(done)} of ${count(documents.length)} tagged` : "";
      showDocuments();
    }
    say(`${documents.length} documents tagged`);
  } catch (problem) {
    showProblem(problem);
  }
}

/** Ask again where the server has too much to do. */
async function patiently(ask) {
  for (let tries = 0; ; tries++) {
    try {
      return await ask();
    } catch (problem) {
      if (problem.status !== 429 || tries >= 20) throw problem;
      await wait(500 + 250 * tries);
    }
  }
}

const LISTED = 500; // documents drawn: a browser is slow with more, and nobody reads them

function showDocuments() {
  const rows = state.documents.slice(0, LISTED).map((document, number) =>
    make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "document", "aria-current": number === state.at ? "true" : undefined, onclick: () => showDocument(number) },
        make("span", { class: "id" }, document.id),
        make("span", { class: "start" }, document.text.slice(0, 120)),
        make("span", { class: "found" }, (document.labels ?? []).slice(0, 3).map((entry) => entry.label).join(", ")),
      ),
    ),
  );
  $("documents-title").textContent = `${count(state.documents.length)} documents`;
  const top = $("document-list").scrollTop;
  $("document-list").replaceChildren(...rows);
  $("document-list").scrollTop = top;
  $("download").disabled = !state.documents.some((document) => document.labels);
}

function showDocument(number) {
  state.at = number;
  showDocuments();
  tag(state.documents[number].text, { keepFocus: true });
}

$("download").addEventListener("click", () => {
  const tagged = state.documents.filter((document) => document.labels);
  const lines = tagged.map(({ id, labels }) => ({ id, labels: labels.map(({ label, score }) => ({ label, score })) }));
  save("labels.jsonl", lines.map((line) => JSON.stringify(line)));
});
$("close-documents").addEventListener("click", () => {
  state.documents = [];
  $("documents").hidden = true;
});
for (const input of document.querySelectorAll("input[name=split]")) {
  input.addEventListener("change", () => openDocuments(input.value === "lines"));
}
$("file").addEventListener("change", () => {
  if ($("file").files[0]) open($("file").files[0]);
  $("file").value = "";
});

let inside = 0; // elements of the page that a drag is over
document.addEventListener("dragenter", (event) => {
  event.preventDefault();
  inside++;
  $("drop").hidden = false;
});
document.addEventListener("dragleave", () => {
  if (--inside <= 0) $("drop").hidden = true;
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", async (event) => {
  event.preventDefault();
  inside = 0;
  $("drop").hidden = true;
  const file = event.dataTransfer.files[0];
  const text = event.dataTransfer.getData("text/plain");
  if (file) await open(file);
  else if (text) {
    $("text").value = text;
    tag(text);
  }
});

await loadModel();
await restore();
document.body.dataset.ready = "true";
