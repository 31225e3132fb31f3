// Search from files: a browser starts no worker from a file, so its script runs in a hidden frame of the page.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.inside.importScripts = (...addresses) => Promise.all(addresses.map(address => this.load(address)));
      this.started = this.load(url);
    }
    /** Run a script in the frame. */
    load(address) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, {src: new URL(address, location.href).href, async: false, onload: done, onerror: failed});
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) { this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data}))); }
    terminate() { this.inside.frameElement?.remove(); }
  };
}
