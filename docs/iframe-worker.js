// The search runs in a worker, but browsers do not start workers for a page that is opened as a file. For such a page, a
// hidden frame replaces the worker: the frame runs the worker's script, and messages are passed as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      const isReady = new Promise((resolve) => {
        frame.onload = () => {
          const page = frame.contentWindow;
          page.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = page.document.createElement("script");
          script.src = url;
          script.onload = () => resolve(page);
          page.document.body.append(script);
        };
      });
      this.postMessage = (data) => isReady.then((page) => page.dispatchEvent(new MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><body></body>";
      document.body.append(frame);
    }
  };
}
