// The model card: what the model is, how good it is, how often its labels occur.

import { count, make } from "./state.js";

const METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@5"];

export function card(model) {
  const facts = [
    ["model", model.model],
    ["corpus", model.corpus],
    ["labels", count(model.labels)],
    ["training documents", count(model.train_documents)],
    ["words", count(model.words)],
    ["size", `${(model.bytes / 1e6).toFixed(1)} MB`],
    ["scores", model.calibrated ? "calibrated on held-out documents" : "not calibrated"],
    ["trained on", model.training.device],
    ["training time", typeof model.training.seconds === "number" ? `${Math.round(model.training.seconds)} s` : null],
    ["scored on", model.device],
  ].filter(([, value]) => value !== null && value !== undefined);
  const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
  const metrics = METRICS.filter((name) => typeof model.validation[name] === "number");
  const quality = metrics.length
    ? [
        make("h3", {}, "Quality on validation documents, percent"),
        make(
          "div",
          { class: "wide" },
          make(
            "table",
            {},
            make("thead", {}, make("tr", {}, ...metrics.map((name) => make("th", { scope: "col" }, name)))),
            make("tbody", {}, make("tr", {}, ...metrics.map((name) => make("td", {}, model.validation[name].toFixed(1))))),
          ),
        ),
      ]
    : [];
  const most = Math.max(1, ...model.label_frequencies.map((bin) => bin.labels));
  const rows = model.label_frequencies.map((bin) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, bin.documents.replace("-", "–")),
      make("td", { class: "plot" }, make("span", { class: "bar", share: (bin.labels / most).toFixed(4) })),
      make("td", {}, count(bin.labels)),
    ),
  );
  const frequencies = [
    make("h3", {}, "How often labels occur"),
    make(
      "table",
      { class: "frequencies" },
      make(
        "thead",
        {},
        make("tr", {}, make("th", { scope: "col" }, "training documents"), make("th"), make("th", { scope: "col" }, "labels")),
      ),
      make("tbody", {}, ...rows),
    ),
  ];
  const settings = Object.entries(model.configuration).map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value === null ? "default" : String(value))),
  );
  const configuration = make(
    "details",
    {},
    make("summary", {}, "Settings"),
    make("table", { class: "settings" }, make("tbody", {}, ...settings)),
  );
  return [list, ...quality, ...frequencies, configuration];
}
