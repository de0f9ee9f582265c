"use strict";
// Asks the program for each change of the form, and shows its JSON. A new question cancels the one before it.

const at = (id) => document.getElementById(id);
const PAUSE = 300; // milliseconds from the last change to the question
const SECTIONS = { estimate: "answer", "max-batch": "largest" };
const CATEGORIES = ["parameters", "gradients", "optimizer", "activations", "temporaries", "workspaces", "inputs", "buffers"];
const running = { estimate: null, "max-batch": null };
let models = [];
let config = null;
let chart = null;

/** Bytes as the program writes them. */
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = Math.abs(value) < 99.95 ? value.toPrecision(3) : value.toFixed(1);
  return `${unit === 0 ? value : digits} ${units[unit]}`;
}

/** An element with text and classes. */
function element(name, text = "", classes = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = classes;
  return made;
}

function question(command) {
  const asked = {
    model: at("model").value.trim(),
    config,
    precision: at("precision").value,
    gpus: at("cards").value.split(",").map((card) => card.trim()).filter(Boolean),
  };
  if (at("length").value && !at("length").disabled) asked.seq = Number(at("length").value);
  if (command === "estimate") asked.batch = Number(at("batch").value);
  return asked;
}

/** Asks the program, and calls `show` with its answer. */
async function ask(command, show) {
  running[command]?.abort();
  const abort = new AbortController();
  running[command] = abort;
  status();
  try {
    const response = await fetch(`/${command}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question(command)),
      signal: abort.signal,
    });
    for await (const message of lines(response.body)) {
      if (abort.signal.aborted) return;
      if (message.working) doing(command, message.working);
      if (message.error) {
        problem(message.error, message.hint);
        at(SECTIONS[command]).hidden = true;
      }
      if (message.answer) show(message);
    }
  } catch (error) {
    if (error.name !== "AbortError") problem("fit-check does not answer any more.", "Start `fit-check serve` again, and load this page anew.");
  } finally {
    if (running[command] === abort) {
      running[command] = null;
      status();
    }
  }
}

/** The JSON of each line. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

const work = {};
function doing(command, { seconds, said }) {
  work[command] = `${said || (command === "estimate" ? "running the step" : "looking for the largest batch")}, ${seconds} s`;
  status();
}

function status() {
  const asked = Object.keys(running).filter((command) => running[command]);
  at("doing").textContent = asked.map((command) => work[command]).filter(Boolean).join("; ");
  at("cancel").hidden = asked.length === 0;
  for (const [command, section] of Object.entries(SECTIONS)) {
    at(section).classList.toggle("old", running[command] !== null);
    if (!running[command]) delete work[command];
  }
}

function problem(error, hint) {
  at("problem").hidden = !error;
  at("error").textContent = error || "";
  at("hint").textContent = hint || "";
}

function showEstimate({ answer, svg }) {
  at("answer").hidden = false;
  const { peak } = answer;
  const place = peak.layer ? `, at ${peak.layer}` : "";
  at("whose").textContent = `Memory of a training step in burn ${answer.burn.version}. It ran on simulated cards.`;
  at("headline").textContent =
    `${answer.model}, batch ${answer.batch}, ${answer.precision}, ${answer.optimizer}: ` +
    `${bytes(peak.live_bytes)} in use at the peak, in the ${peak.phase} phase${place}`;
  const cards = answer.cards || (answer.gpu ? [answer] : []);
  at("verdicts").replaceChildren(...cards.map(verdict));
  if (answer.pytorch) {
    const { version, required_bytes: needed } = answer.pytorch;
    const item = element("li");
    item.append(element("strong", `PyTorch ${version} needs ${bytes(needed)}`), "for the same job, as recorded");
    at("verdicts").append(item);
  }
  const parts = Object.entries(answer.at_peak).sort(([a], [b]) => CATEGORIES.indexOf(a) - CATEGORIES.indexOf(b));
  const most = Math.max(...parts.map(([, size]) => size), 1);
  at("categories").tBodies[0].replaceChildren(...parts.map(([name, size]) => category(name, size, size / most)));
  draw(svg, at("headline").textContent);
}

function verdict(card) {
  const item = element("li", "", card.fits ? "fits" : "fails");
  const { name, usable_bytes: usable, overhead_bytes: overhead } = card.gpu;
  const room = Math.max(usable - overhead, 1);
  const left = card.headroom_bytes >= 0 ? `${bytes(card.headroom_bytes)} to spare` : `${bytes(-card.headroom_bytes)} too much`;
  const gauge = element("meter");
  gauge.max = room;
  gauge.high = room;
  gauge.value = Math.min(card.required_bytes, room);
  gauge.setAttribute("aria-label", `needed of ${name}`);
  item.append(
    element("strong", `${card.fits ? "fits" : "does not fit"} on ${name}`),
    `needs ${bytes(card.required_bytes)} of ${bytes(room)}, ${left}`,
    gauge,
  );
  if (card.reason) item.append(element("small", card.reason));
  return item;
}

function category(name, size, share) {
  const row = element("tr");
  const bar = element("div", "", "bar");
  bar.style.width = `${100 * share}%`;
  const cell = element("td");
  cell.append(bar);
  const head = element("th", name);
  head.scope = "row";
  row.append(head, element("td", bytes(size), "number"), cell);
  return row;
}

function draw(svg, title) {
  if (chart) URL.revokeObjectURL(chart);
  chart = svg ? URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" })) : null;
  at("chart").hidden = !chart;
  at("chart").alt = `Memory over the step: ${title}`;
  if (chart) at("chart").src = chart;
}

function showLargest({ answer }) {
  at("largest").hidden = false;
  const rows = answer.cards.map(({ gpu, max_batch: largest, next }) => {
    const row = element("tr");
    const use = element("button", String(largest));
    use.type = "button";
    use.title = `Ask about a batch of ${largest}`;
    use.disabled = largest === 0;
    use.addEventListener("click", () => setBatch(largest));
    const cell = element("td", "", "number");
    cell.append(use);
    const head = element("th", gpu.name);
    head.scope = "row";
    row.append(head, cell, element("td", next.refused));
    return row;
  });
  at("batches").tBodies[0].replaceChildren(...rows);
  const most = Math.max(...answer.cards.map((card) => card.max_batch), 1);
  at("slide").max = Math.ceil(most * 1.25);
  at("slide").value = at("batch").value;
}

function setBatch(batch) {
  at("slide").max = Math.max(at("slide").max, batch);
  at("slide").value = at("batch").value = batch;
  later(false);
}

let timer = null;
let jobChanged = false;
/** Asks when nothing has changed for a moment; about the largest batches only if they can be others. */
function later(job) {
  jobChanged ||= job;
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (!at("question").checkValidity()) return;
    problem();
    ask("estimate", showEstimate);
    if (jobChanged) {
      running["max-batch"]?.abort();
      at("largest").hidden = true;
      if (question().gpus.length) ask("max-batch", showLargest);
    }
    jobChanged = false;
  }, PAUSE);
}

function modelChanged() {
  const known = models.find((model) => model.name === at("model").value.trim());
  const takesLength = config !== null || !known || "seq" in known.input;
  at("length").disabled = !takesLength;
  at("length").placeholder = known?.input.seq ?? "";
  if (known && config === null) {
    at("slide").max = 2 * known.batch;
    at("slide").value = at("batch").value = known.batch;
  }
  later(true);
}

at("model").addEventListener("change", modelChanged);
for (const id of ["precision", "length", "cards"]) at(id).addEventListener("change", () => later(true));
at("slide").addEventListener("input", () => setBatch(Number(at("slide").value)));
at("batch").addEventListener("input", () => at("batch").checkValidity() && setBatch(Number(at("batch").value)));
at("question").addEventListener("submit", (event) => {
  event.preventDefault();
  later(true);
});
at("config").addEventListener("change", async () => {
  const [file] = at("config").files;
  config = file ? await file.text() : null;
  at("model").disabled = config !== null;
  at("forget").hidden = config === null;
  modelChanged();
});
at("forget").addEventListener("click", () => {
  at("config").value = "";
  at("config").dispatchEvent(new Event("change"));
  at("model").focus();
});
at("cancel").addEventListener("click", () => {
  for (const command of Object.keys(running)) running[command]?.abort();
  at("batch").focus();
});

async function start() {
  try {
    const choices = await (await fetch("/choices")).json();
    models = choices.models;
    const option = (value, label) => Object.assign(element("option", label), { value });
    at("models").append(...models.map((model) => option(model.name, model.family)));
    at("card-names").append(...choices.gpus.map((gpu) => option(gpu.aliases[0] ?? gpu.name, gpu.name)));
  } catch {
    problem("The lists of models and cards are not there.", "Start `fit-check serve` again, and load this page anew.");
  }
  modelChanged();
}
start();
