// Files of documents: read here, tagged in batches, downloaded with their labels.

/** Read a file's documents: [{id, text}]. A .jsonl has one a line; a .txt is one, or one a line. */
export function readDocuments(name, content, byLine) {
  const jsonl = /\.(jsonl|ndjson)$/i.test(name) || (!/\.txt$/i.test(name) && content.trimStart().startsWith("{"));
  if (!jsonl && !byLine) return [{ id: name, text: content }];
  const documents = [];
  content.split(/\r?\n/).forEach((line, number) => {
    if (!line.trim()) return;
    if (!jsonl) return documents.push({ id: String(number + 1), text: line });
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      throw new Error(`${name}, line ${number + 1}: broken JSON`);
    }
    if (typeof value?.text !== "string") throw new Error(`${name}, line ${number + 1}: no "text"`);
    documents.push({ id: String(value.id ?? number + 1), text: value.text });
  });
  if (!documents.length) throw new Error(`${name} holds no documents`);
  return documents;
}

/** Say whether a file's content may be many documents, so that the person must choose. */
export const mayBeMany = (name, content) => /\.txt$/i.test(name) && content.trim().split(/\r?\n/).filter((l) => l.trim()).length > 1;

/** Part documents into batches that the server takes. */
export function* batches(documents, limits) {
  const most = Math.min(32, limits.max_texts);
  let batch = [];
  let size = 0;
  for (const document of documents) {
    const bytes = 4 * document.text.length + 64;
    if (batch.length && (batch.length >= most || size + bytes > limits.max_body / 2)) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(document);
    size += bytes;
  }
  if (batch.length) yield batch;
}

/** Offer lines to be saved as a file. */
export function save(name, lines) {
  const address = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
