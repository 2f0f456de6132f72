// What goes to and comes from the server. An answer that cannot be saved is tried again, for
// as long as the page is open.

const token = location.hash.slice(1);
const PAUSES = [500, 1000, 2000, 5000]; // milliseconds between tries; the last one goes on

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  const body = await response.json();
  if (!response.ok) throw new Refused(response.status, body.error);
  return body;
}

export function readSession() {
  return ask("session");
}

// Saves an event; `told` hears why it is not saved yet. Throws `Refused` where trying again
// would not help.
export async function save(position, event, told) {
  const body = JSON.stringify({ position, event });
  for (let tries = 0; ; tries++) {
    try {
      return (await ask("events", { method: "POST", body })).position;
    } catch (error) {
      if (error instanceof Refused && error.status < 500) throw error;
      told(error instanceof Refused ? `The server could not write it: ${error.message}.`
        : "The server does not answer: has the command been stopped?");
      await new Promise((done) => setTimeout(done, PAUSES[Math.min(tries, PAUSES.length - 1)]));
    }
  }
}

// What is not saved yet survives a closed tab: it lies in the browser until it is.
export function drafts(session) {
  const key = (id) => `merge-nli ${session.session} ${session.annotator} ${id}`;
  return {
    read(id) {
      try {
        return JSON.parse(localStorage.getItem(key(id)));
      } catch {
        return null;
      }
    },
    write(id, draft) {
      try {
        localStorage.setItem(key(id), JSON.stringify(draft));
      } catch {
        // The browser keeps nothing: only what is not yet saved could be lost.
      }
    },
    forget: (id) => localStorage.removeItem(key(id)),
  };
}

// Be the only tab: `lost` is called when another takes over. False where there is one already.
export function beAlone(name, lost, { steal = false } = {}) {
  return new Promise((decided) => {
    navigator.locks
      .request(name, steal ? { steal } : { ifAvailable: true }, (lock) => {
        decided(lock !== null);
        return lock === null ? undefined : new Promise(() => {});
      })
      .catch(lost);
  });
}
