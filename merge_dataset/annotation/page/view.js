// Puts things on the page. Texts of the data only ever become text nodes.

export const $ = (id) => document.getElementById(id);
export const ASKED = { scores: ["fluency", "reasoning"], equivalence: ["equivalent"] };

let asked = ASKED.scores;

// What is asked in this session: its questions and guidelines are shown, and no others.
export function showKind(kind) {
  asked = ASKED[kind];
  for (const element of document.querySelectorAll("[data-kind]")) {
    element.hidden = element.dataset.kind !== kind;
  }
  $("variant-title").textContent = kind === "scores" ? "Variant" : "Paraphrase";
  const key = kind === "scores" ? "n" : "o";
  $("open-key").textContent = key;
  $("open").setAttribute("aria-keyshortcuts", key);
}

function piecesInto(element, pieces) {
  for (const [text, marked] of pieces) {
    if (!marked) {
      element.append(text);
      continue;
    }
    const mark = document.createElement("mark");
    mark.append(text);
    element.append(mark);
  }
}

function fillTexts(list, texts, side) {
  list.replaceChildren();
  for (const text of texts) {
    const name = document.createElement("dt");
    const words = document.createElement("dd");
    name.append(text.field.replaceAll("_", " "));
    words.dir = "auto";
    piecesInto(words, text[side]);
    list.append(name, words);
  }
}

export function showItem(item, number, count) {
  $("item-title").textContent = `Item ${number} of ${count}`;
  $("label").textContent = $("label-again").textContent = item.label;
  $("change").hidden = item.changes.length === 0;
  $("change").textContent = item.changes.map((words) => words.join(" → ")).join(", ");
  $("texts").style.setProperty("--rows", 1 + 2 * item.texts.length);
  $("shared").replaceChildren();
  for (const { field, text } of item.shared) {
    const name = document.createElement("dt");
    const words = document.createElement("dd");
    name.append(`${field.replaceAll("_", " ")} of both`);
    words.dir = "auto";
    words.append(text);
    $("shared").append(name, words);
  }
  fillTexts($("original"), item.texts, "original");
  fillTexts($("variant"), item.texts, "variant");
  $("notice").hidden = true;
  $("item").hidden = false;
}

export function showDraft(draft, active, state) {
  for (const scale of asked) {
    for (const input of document.getElementsByName(scale)) {
      input.checked = input.value === String(draft[scale]);
    }
    $(scale).classList.toggle("active", scale === active);
  }
  if ($("comment").value !== draft.comment) $("comment").value = draft.comment;
  $("state").textContent = state;
}

export function showProgress(who, answered, count) {
  $("who").textContent = who;
  $("bar").max = count;
  $("bar").value = answered;
  $("progress").textContent = `${answered} of ${count} answered`;
}

export function showNotice(title, text, button = null, pressed = null) {
  $("item").hidden = true;
  $("notice").hidden = false;
  $("notice-title").textContent = title;
  $("notice-text").textContent = text;
  $("notice-button").hidden = button === null;
  $("notice-button").textContent = button ?? "";
  $("notice-button").onclick = pressed;
  (button ? $("notice-button") : $("notice")).focus();
}

export function showTrouble(text) {
  $("trouble").hidden = text === "";
  $("trouble").textContent = text;
}

// For those who hear the page.
export function say(text) {
  $("said").textContent = text;
}
