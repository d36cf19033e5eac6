// The text with its words coloured for a label, and what each word says of the labels.

import { make, percent } from "./state.js";

const SHOWN = 0.05; // of the strongest word: weaker ones stay plain, the eye needs few colours
const SPEAKS = 0.25; // of the strongest word: from there on a word speaks for a label

export class WordView {
  /** `root` gets the words, `info` the labels of the word pointed at; `onWord(weights)` hears of label -> share. */
  constructor(root, info, onWord) {
    this.root = root;
    this.info = info;
    this.onWord = onWord;
    this.words = [];
    this.spans = [];
    this.byLabel = new Map();
    this.active = -1;
    root.addEventListener("pointerover", (event) => this.point(event.target.dataset?.word));
    root.addEventListener("pointerdown", (event) => this.point(event.target.dataset?.word));
    root.addEventListener("pointerleave", () => this.point(undefined));
    root.addEventListener("keydown", (event) => this.step(event));
    root.addEventListener("blur", () => this.point(undefined));
  }

  /** Show a text; `words` are {start, end} in code points, as the server counts. */
  show(text, words) {
    const points = Array.from(text);
    this.words = words;
    this.byLabel.clear();
    this.active = -1;
    const pieces = [];
    let place = 0;
    this.spans = words.map(({ start, end }, number) => {
      if (start > place) pieces.push(points.slice(place, start).join(""));
      place = end;
      const span = make("span", { class: "word", "data-word": number }, points.slice(start, end).join(""));
      pieces.push(span);
      return span;
    });
    const rest = points.slice(place).join("");
    if (rest) pieces.push(/[\p{L}\p{N}]/u.test(rest) && words.length ? make("span", { class: "rest" }, rest) : rest);
    this.root.replaceChildren(...pieces);
    this.info.replaceChildren();
  }

  /** Take over a label's explanation. */
  add(explained) {
    this.byLabel.set(explained.label, explained);
  }

  /** Colour the words for a label, by one kind of weight; without a label, none. */
  colour(label, kind) {
    const weights = this.byLabel.get(label)?.words.map((word) => word[kind]);
    const largest = weights?.length ? Math.max(...weights) || 1 : 1;
    this.root.dataset.kind = kind;
    this.spans.forEach((span, number) => {
      const share = weights ? weights[number] / largest : 0;
      span.classList.toggle("warm", share >= SHOWN);
      span.style.setProperty("--share", share >= SHOWN ? share.toFixed(3) : "0");
    });
    this.label = label;
    this.kind = kind;
  }

  point(number) {
    const at = number === undefined ? -1 : Number(number);
    if (at === this.active) return;
    this.spans[this.active]?.classList.remove("active");
    this.spans[at]?.classList.add("active");
    this.active = at;
    const shares = at < 0 ? [] : this.labelsOf(at);
    this.onWord(at < 0 ? null : new Map(shares.map(({ label, share }) => [label, share])));
    if (at < 0) return this.info.replaceChildren();
    const word = this.spans[at].textContent;
    const weight = this.byLabel.get(this.label)?.words[at][this.kind];
    const speaking = shares.filter(({ share }) => share >= SPEAKS).slice(0, 5);
    this.info.replaceChildren(
      make("b", {}, word),
      weight === undefined ? "" : ` has ${percent(weight)} of the attention of ${this.label}`,
      speaking.length ? "; it speaks for " : "; it speaks for none of the labels",
      ...speaking.map(({ label, share }) => make("span", { class: "chip", share: share.toFixed(2) }, label)),
    );
  }

  /** Return the labels of a word, each with its weight there beside that of the label's strongest word. */
  labelsOf(number) {
    const found = [];
    for (const { label, words } of this.byLabel.values()) {
      const largest = Math.max(...words.map((word) => word.fused)) || 1;
      found.push({ label, share: words[number].fused / largest });
    }
    return found.sort((one, other) => other.share - one.share);
  }

  step(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key === "Escape") return this.point(undefined);
    if (!(event.key in moves) || !this.spans.length) return;
    event.preventDefault();
    const at = Math.min(this.spans.length - 1, Math.max(0, this.active + moves[event.key]));
    this.point(at);
    this.spans[at].scrollIntoView({ block: "nearest" });
  }
}
