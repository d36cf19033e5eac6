// What the page asks of the server and what it remembers: calls, the session, and views in a URL's fragment.

export class Problem extends Error {}

let askForKey = null; // set by app.js: shows the dialog, resolves with the key

export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Call the server; errors are Problems whose message a person can read. */
export async function call(path, { body, signal, who } = {}) {
  const headers = {};
  const key = sessionStorage.getItem("laha-key");
  if (key) headers["X-API-Key"] = key;
  if (who) headers["X-User"] = encodeURIComponent(who); // a header carries ASCII alone
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    const method = body === undefined ? "GET" : "POST";
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer.");
  }
  if (answer.status === 401 && askForKey) {
    sessionStorage.setItem("laha-key", await askForKey());
    return call(path, { body, signal, who });
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok || content === null) {
    const problem = new Problem(content?.detail ?? `The server answered ${answer.status}.`);
    problem.status = answer.status;
    throw problem;
  }
  return content;
}

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Remember the view for a reload of this tab; nothing where the browser's store is full or closed. */
export function remember(view) {
  try {
    sessionStorage.setItem("laha-view", JSON.stringify(view));
  } catch {
    sessionStorage.removeItem("laha-view");
  }
}

export function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem("laha-view"));
  } catch {
    return null;
  }
}

async function through(bytes, transform) {
  const stream = new Blob([bytes]).stream().pipeThrough(transform);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Write a view as a fragment: browsers never send that part of an address to any server. */
export async function toFragment(view) {
  const packed = await through(new TextEncoder().encode(JSON.stringify(view)), new CompressionStream("deflate-raw"));
  let signs = "";
  for (const byte of packed) signs += String.fromCharCode(byte);
  return "#view=" + btoa(signs).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export async function fromFragment(fragment) {
  if (!fragment.startsWith("#view=")) return null;
  try {
    const signs = atob(fragment.slice(6).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(signs, (sign) => sign.charCodeAt(0));
    const view = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
    return typeof view?.text === "string" ? view : null;
  } catch {
    return null;
  }
}

/** Make an element; strings among the children become text, never markup. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "share") element.style.setProperty("--share", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const percent = (score) => {
  const value = 100 * score;
  return (value >= 10 ? value.toFixed(0) : value >= 0.1 ? value.toFixed(1) : value > 0 ? "< 0.1" : "0") + " %";
};
/** Write a score that is no probability. */
export const decimal = (score) => (score >= 0.0005 ? score.toFixed(3) : score > 0 ? "< 0.001" : "0");
export const count = (number) => Number(number).toLocaleString("en");
