// Annotating: which item is shown, what is answered, what the keys do.

import { Refused, beAlone, drafts, readSession, save } from "./saving.js";
import {
  $, ASKED, say, showDraft, showItem, showKind, showNotice, showProgress, showTrouble,
} from "./view.js";

let session; // as the server describes it; `standing` and `position` are kept up to date
let kept; // drafts
let index = 0; // of the item shown
let asked = ASKED.scores; // what an answer says, beside its comment
let draft = blank();
let active = "fluency"; // the scale that digits go to
let usable = false; // whether this is the tab to annotate in
let saving = false;

// --- What is answered ---

function blank() {
  return { ...Object.fromEntries(asked.map((name) => [name, null])), comment: "" };
}

function answerTo(id) {
  return session.standing.findLast((answer) => answer.variant_id === id) ?? null;
}

function answered() {
  return new Set(session.standing.map((answer) => answer.variant_id));
}

function differs(names = [...asked, "comment"]) {
  const saved = answerTo(session.items[index].id) ?? blank();
  return names.some((name) => saved[name] !== draft[name]);
}

// --- Showing ---

function go(to, { start = null } = {}) {
  index = to;
  const item = session.items[index];
  const saved = answerTo(item.id);
  const from = start ?? kept.read(item.id) ?? saved ?? {};
  draft = blank();
  for (const name of Object.keys(draft)) draft[name] = from[name] ?? draft[name];
  active = asked[0];
  showItem(item, index + 1, session.items.length);
  refresh();
  $("item-title").focus({ preventScroll: true });
  say(`Item ${index + 1}${saved ? ", answered" : ""}`);
}

function refresh() {
  const saved = answerTo(session.items[index].id);
  const complete = asked.every((scale) => draft[scale] !== null);
  const state = differs() ? (complete ? "Not saved yet" : "") : saved ? "Saved" : "";
  showDraft(draft, active, state);
  showProgress(`${session.session} · ${session.annotator}`, answered().size, session.items.length);
  $("undo").disabled = !differs(asked) && session.standing.length === 0;
}

function goToOpen() {
  const done = answered();
  const { items } = session;
  for (let step = 1; step <= items.length; step++) {
    const to = (index + step) % items.length;
    if (!done.has(items[to].id)) return go(to);
  }
  finish();
}

function finish() {
  showProgress(`${session.session} · ${session.annotator}`, answered().size, session.items.length);
  showNotice(
    "All done, thank you",
    `All ${session.items.length} items are answered and saved. You can close this page and stop the ` +
      "command with Ctrl+C, or look at your answers again.",
    "Look at them again",
    () => go(0),
  );
  say("All done");
}

// --- Answering ---

function choose(scale, value) {
  draft[scale] = value;
  active = asked.at(-1);
  remember();
}

function remember() {
  const { id } = session.items[index];
  if (differs()) kept.write(id, draft);
  else kept.forget(id);
  refresh();
}

// Whether it is saved, and this page still the one to go on in.
async function send(event) {
  saving = $("comment").readOnly = true;
  $("state").textContent = "Saving …";
  try {
    session.position = await save(session.position, event, (why) =>
      showTrouble(`Not saved yet. ${why} Your answer is kept here, and saved as soon as that is possible.`),
    );
    showTrouble("");
    return usable;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    await refused(error);
    return false;
  } finally {
    saving = $("comment").readOnly = false;
  }
}

async function refused(error) {
  if (error.status === 403) {
    showTrouble("Not saved: the command was started anew. Open the address that it printed.");
    refresh();
    return;
  }
  await start().catch(() => {}); // what is saved is shown where the server still answers
  const why = error.status === 409 ? "answers were given in another place" : error.message;
  showTrouble(`Not saved: ${why}. What you see now is what is saved; please answer once more.`);
}

async function confirm() {
  const { id } = session.items[index];
  const missing = asked.find((scale) => draft[scale] === null);
  if (missing) {
    active = missing;
    refresh();
    $("state").textContent = missing === "equivalent" ? "Answer first: yes or no" : `Give ${missing} first: 1 to 5`;
    say($("state").textContent);
    return;
  }
  draft.comment = draft.comment.trim();
  if (differs()) {
    const answer = { variant_id: id, ...draft };
    if (!(await send(answer))) return;
    session.standing.push(answer);
  }
  kept.forget(id);
  goToOpen();
}

// First what is not saved yet, then the last answer that is; its comment stays to be saved again.
async function undo() {
  const { id } = session.items[index];
  const shown = !$("item").hidden;
  if (shown && differs(asked)) {
    kept.forget(id);
    go(index);
    say("Choice taken back");
    return;
  }
  const last = session.standing.at(-1);
  if (!last || !(await send({ variant_id: last.variant_id, undone: true }))) return;
  session.standing.pop();
  kept.forget(last.variant_id);
  const before = answerTo(last.variant_id) ?? blank();
  const to = session.items.findIndex((item) => item.id === last.variant_id);
  go(to, { start: { ...before, comment: last.comment } });
  remember();
  $("state").textContent = "Answer taken back";
  say("Answer taken back");
}

function move(step) {
  go((index + step + session.items.length) % session.items.length);
}

// --- Keys ---

const KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  ArrowUp: () => turnTo("fluency"),
  ArrowDown: () => turnTo("reasoning"),
  f: () => turnTo("fluency"),
  r: () => turnTo("reasoning"),
  n: goToOpen,
  c: () => $("comment").focus(),
  u: undo,
  Backspace: undo,
  Enter: confirm,
  g: openGuidelines,
  "?": openGuidelines,
};
// Of pairs n is an answer, and there are no scales to choose from.
const PAIR_KEYS = {
  ...KEYS, f: null, r: null, ArrowUp: null, ArrowDown: null,
  y: () => choose("equivalent", true),
  n: () => choose("equivalent", false),
  o: goToOpen,
};
const IN_NOTICE = ["ArrowLeft", "ArrowRight", "u", "Backspace", "g", "?"];

function turnTo(scale) {
  active = scale;
  refresh();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if ($("guidelines").open) return pressedInGuidelines(event);
  if (!usable || saving) return;
  if (event.target === $("comment")) return pressedInComment(event);
  if (event.target.tagName === "BUTTON" && event.key === "Enter") return;
  if (event.target.type === "radio" && event.key.startsWith("Arrow")) return;
  const inItem = !$("item").hidden;
  const pairs = session.kind === "equivalence";
  const digit = inItem && !pairs && digitOf(event);
  const act = digit ? () => choose(active, digit) : (pairs ? PAIR_KEYS : KEYS)[event.key];
  if (!act || !(inItem || IN_NOTICE.includes(event.key))) return;
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  act();
}

// Some keyboards have other signs where digits are.
function digitOf(event) {
  const pressed = /^[1-5]$/.exec(event.key) ?? (event.shiftKey ? null : /(?<=^Digit)[1-5]$/.exec(event.code));
  return pressed && Number(pressed[0]);
}

function pressedInComment(event) {
  if (event.key === "Escape") $("item-title").focus();
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  confirm();
}

function pressedInGuidelines(event) {
  const closes = ["g", "?"].includes(event.key) || (event.key === "Enter" && event.target.tagName !== "BUTTON");
  if (!closes) return;
  event.preventDefault();
  $("guidelines").close();
}

function openGuidelines() {
  $("guidelines").showModal();
  $("guidelines").firstElementChild.scrollTop = 0;
}

function listen() {
  document.addEventListener("keydown", pressed);
  const when = (id, act) => $(id).addEventListener("click", () => usable && !saving && act());
  when("previous", () => move(-1));
  when("next", () => move(1));
  when("open", goToOpen);
  when("undo", undo);
  $("open-guidelines").addEventListener("click", openGuidelines);
  $("close-guidelines").addEventListener("click", () => $("guidelines").close());
  $("guidelines").addEventListener("close", () => $("item-title").focus({ preventScroll: true }));
  $("answer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (usable && !saving) confirm();
  });
  for (const scale of Object.values(ASKED).flat()) {
    $(scale).addEventListener("change", (event) => {
      if (saving) return refresh();
      choose(scale, JSON.parse(event.target.value)); // a number, or whether it is so
    });
    // After a click, arrows go to other items again; who came by Tab stays.
    $(scale).addEventListener("click", (event) => {
      if (event.detail > 0 && event.target.type === "radio") $("item-title").focus({ preventScroll: true });
    });
  }
  $("comment").addEventListener("input", () => {
    draft.comment = $("comment").value;
    remember();
  });
  addEventListener("beforeunload", (event) => {
    if (saving) event.preventDefault();
  });
}

// --- Start ---

async function start() {
  session = await readSession();
  asked = ASKED[session.kind];
  showKind(session.kind);
  kept = drafts(session);
  const done = answered();
  const first = session.items.findIndex((item) => !done.has(item.id));
  usable = true;
  if (first < 0) finish();
  else go(first);
}

function elsewhere() {
  usable = false;
  showNotice(
    "This session is open in another tab",
    "Answers can be given in one tab at a time. Those that were given are saved.",
    "Go on here",
    () => open({ steal: true }),
  );
}

async function open(options) {
  try {
    const { session: name, annotator } = await readSession();
    if (!(await beAlone(`merge-nli ${name} ${annotator}`, elsewhere, options))) return elsewhere();
    await start();
    if (session.standing.length === 0) openGuidelines();
  } catch (error) {
    const refused = error instanceof Refused;
    showNotice(
      refused ? "This is not the address of a session" : "The server does not answer",
      refused
        ? "Open the whole address that the command printed, with what stands behind the #."
        : "Start the command again; what was answered is saved. Then try once more.",
      "Try again",
      () => location.reload(),
    );
  }
}

listen();
open();
