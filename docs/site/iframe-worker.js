// The theme searches in a worker, and browsers allow pages that are files none: there a hidden
// frame takes its place. The theme knows the name IFrameWorker.
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.inside = frame.contentWindow;
    const load = (address) =>
      new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: new URL(address, location), onload: done, onerror: failed });
        this.inside.document.body.appendChild(script);
      });
    this.inside.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.ready = load(url);
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
