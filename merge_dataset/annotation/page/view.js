// Puts things on the page. Texts of the data only ever become text nodes.

export const $ = (id) => document.getElementById(id);
export const SCALES = ["fluency", "reasoning"];

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
  $("change").textContent = item.changes.map((words) => words.join(" → ")).join(", ");
  $("texts").style.setProperty("--rows", 1 + 2 * item.texts.length);
  fillTexts($("original"), item.texts, "original");
  fillTexts($("variant"), item.texts, "variant");
  $("notice").hidden = true;
  $("item").hidden = false;
}

export function showDraft(draft, active, state) {
  for (const scale of SCALES) {
    for (const input of document.getElementsByName(scale)) {
      input.checked = Number(input.value) === draft[scale];
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
