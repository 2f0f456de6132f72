"use strict";
// The address knows what is shown: every control that was changed, and the seed that is open.

(() => {
  const controls = [...document.querySelectorAll("select[id], input[id]")].filter(({ id }) => id !== "every");
  const valueOf = (control) => (control.type === "checkbox" ? String(control.checked) : control.value);
  const usual = new Map(controls.map((control) => [control.id, valueOf(control)]));

  function address() {
    const view = new URLSearchParams();
    for (const control of controls) {
      if (valueOf(control) !== usual.get(control.id)) view.set(control.id, valueOf(control));
    }
    if (Report.openedSeed) view.set("seed", Report.openedSeed);
    return `${location.href.split("#")[0]}${view.size ? `#${view}` : ""}`;
  }

  function setTo(control, value) {
    if (control.type === "checkbox") control.checked = value === "true";
    else control.value = value;
    if (valueOf(control) !== value) control.value = usual.get(control.id); // of another report
    for (const name of ["input", "change"]) control.dispatchEvent(new Event(name, { bubbles: true }));
  }

  /** What other controls offer hangs on configuration and source, so these come first. */
  function restore() {
    const view = new URLSearchParams(location.hash.slice(1));
    const first = ["config", "source"];
    const order = [...first, ...controls.map(({ id }) => id).filter((id) => !first.includes(id))];
    for (const id of order) {
      const control = document.getElementById(id);
      if (control && view.has(id)) setTo(control, view.get(id));
    }
    if (view.has("seed")) Report.openSeed(view.get("seed"));
  }

  let waiting = 0;
  const remember = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => history.replaceState(null, "", address()), 200);
  };
  for (const name of ["input", "change", "seed"]) document.addEventListener(name, remember);
  addEventListener("hashchange", () => location.hash.includes("=") && restore());
  const button = document.getElementById("link");
  button.addEventListener("click", () => Report.copy(button, address()));
  if (location.hash.includes("=")) restore();
})();
