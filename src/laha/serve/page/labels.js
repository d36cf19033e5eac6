// The suggested labels in their groups, decisions on them, and the field that adds one.

import { call, count, make } from "./state.js";

const GROUPS = {
  added: ["Added", "by people"],
  head: ["Frequent", "over 50 training documents"],
  torso: ["Less frequent", "6 to 50"],
  tail: ["Rare", "up to 5"],
  unseen: ["Unseen", "in no training document"],
};

export class LabelList {
  /** `actions`: choose(label), decide(label, decision). */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    this.rows = new Map();
    root.addEventListener("keydown", (event) => this.keys(event));
  }

  /** Show labels [{label, score, frequency, group}] and the decisions that stand, label -> decision; `options`: decides, and
   *  score(value), which writes a score. */
  show(labels, decisions, chosen, options) {
    const focused = document.activeElement?.closest?.("[data-label]")?.dataset.label;
    const part = document.activeElement?.dataset?.part;
    this.rows.clear();
    const listed = new Set(labels.map((entry) => entry.label));
    const added = Object.entries(decisions)
      .filter(([label, decision]) => decision === "added" || (decision === "accepted" && !listed.has(label)))
      .map(([label]) => labels.find((entry) => entry.label === label) ?? { label, group: "added" });
    const isAdded = new Set(added.map((entry) => entry.label));
    const rest = labels.filter((entry) => !isAdded.has(entry.label));
    const groups = Object.keys(GROUPS).map((group) => {
      const own = group === "added" ? added : rest.filter((entry) => entry.group === group);
      if (!own.length) return null;
      const [title, meaning] = GROUPS[group];
      const id = `group-${group}`;
      return make(
        "section",
        { "aria-labelledby": id },
        make("h3", { id }, title, make("small", {}, meaning)),
        make("ul", {}, ...own.map((entry) => this.row(entry, decisions[entry.label], chosen, options))),
      );
    });
    this.root.replaceChildren(...groups.filter(Boolean));
    if (focused !== undefined) this.rows.get(focused)?.querySelector(part ? `[data-part="${part}"]` : "button")?.focus();
  }

  row(entry, decision, chosen, { decides, score: write }) {
    const { label, score } = entry;
    const known = score !== undefined;
    const says = known ? `${label}, score ${write(score)}` : label;
    const decide = (name, sign, title, standing) =>
      make(
        "button",
        {
          type: "button",
          class: `decide ${name}`,
          "data-part": name,
          "aria-pressed": String(standing),
          "aria-label": `${title} ${label}`,
          title,
          onclick: () => this.actions.decide(label, standing ? "withdrawn" : name),
        },
        sign,
      );
    const row = make(
      "li",
      { class: `label ${decision ?? ""} ${label === chosen ? "chosen" : ""}`, "data-label": label },
      make(
        "button",
        {
          type: "button",
          class: "choose",
          "data-part": "choose",
          "aria-pressed": String(label === chosen),
          "aria-label": says,
          onclick: () => this.actions.choose(label),
        },
        make("span", { class: "name" }, label),
        make("span", { class: "score" }, known ? write(score) : ""),
        make("span", { class: "bar", share: known ? score.toFixed(4) : "0" }),
      ),
      decides ? decide("accepted", "✓", "Accept", decision === "accepted" || decision === "added") : null,
      decides ? decide("rejected", "✕", "Reject", decision === "rejected") : null,
    );
    this.rows.set(label, row);
    return row;
  }

  /** Mark the labels that a word speaks for: label -> share, or null. */
  mark(shares) {
    for (const [label, row] of this.rows) {
      const share = shares?.get(label) ?? 0;
      row.classList.toggle("spoken", share >= 0.25);
      row.style.setProperty("--word", share.toFixed(2));
    }
  }

  keys(event) {
    const row = event.target.closest("[data-label]");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...this.rows.values()].sort((one, other) => (one.compareDocumentPosition(other) & 4 ? -1 : 1));
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const press = { a: "accepted", r: "rejected" }[event.key.toLowerCase()];
    if (move) rows[rows.indexOf(row) + move]?.querySelector(".choose").focus();
    else if (press) row.querySelector(`.${press}.decide`)?.click();
    else return;
    event.preventDefault();
  }
}

/** A field that finds labels as one types; `take(entry)` gets the one chosen. */
export class TypeAhead {
  constructor(input, list, take, fail) {
    Object.assign(this, { input, list, take, fail, found: [], at: -1, asked: 0 });
    input.addEventListener("input", () => this.ask());
    input.addEventListener("focus", () => input.value && this.ask());
    input.addEventListener("blur", () => setTimeout(() => this.close(), 150)); // a click on an option comes first
    input.addEventListener("keydown", (event) => this.keys(event));
  }

  async ask() {
    this.abort?.abort();
    this.abort = new AbortController();
    const query = this.input.value;
    if (!query.trim()) return this.close();
    try {
      const path = `api/labels?limit=12&q=${encodeURIComponent(query.slice(0, 200))}`;
      const { labels } = await call(path, { signal: this.abort.signal });
      if (document.activeElement === this.input) this.show(labels, query);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
  }

  show(labels, query) {
    this.found = labels;
    this.at = -1;
    const options = labels.map((entry, number) => this.option(number, entry.label, count(entry.frequency)));
    if (!options.length && this.takesNew) {
      this.found = [{ label: query.trim() }];
      options.push(this.option(0, `add “${query.trim()}” as a new label`, ""));
    }
    if (!options.length) options.push(make("li", { class: "note", role: "presentation" }, "no label has that in its name"));
    this.list.replaceChildren(...options);
    this.list.dataset.query = query;
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  option(number, name, note) {
    return make(
      "li",
      {
        id: `option-${number}`,
        role: "option",
        "aria-selected": "false",
        onpointerdown: (event) => {
          event.preventDefault();
          this.choose(number);
        },
      },
      make("span", { class: "name" }, name),
      make("span", { class: "note" }, note),
    );
  }

  keys(event) {
    if (event.key === "Escape") return this.close();
    if (event.key === "Enter") {
      event.preventDefault();
      if (!this.list.hidden && this.found.length) this.choose(Math.max(0, this.at));
      return;
    }
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || this.list.hidden || !this.found.length) return;
    event.preventDefault();
    this.at = (this.at + move + this.found.length) % this.found.length;
    [...this.list.children].forEach((option, number) => option.setAttribute("aria-selected", String(number === this.at)));
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `option-${this.at}`);
  }

  choose(number) {
    const entry = this.found[number];
    this.input.value = "";
    this.close();
    if (entry) this.take(entry);
  }

  close() {
    this.abort?.abort();
    this.list.hidden = true;
    this.found = [];
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
