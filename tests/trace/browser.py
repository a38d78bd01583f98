"""A real Chromium without a window, driven over a pipe: DevTools messages are JSON, each with a zero byte behind it."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {
    "Escape": 27, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36,
    "End": 35, "PageDown": 34, "Tab": 9,
}


class Browser:
    """A browser with one page. Everything that the page loads, logs or throws is kept."""

    def __init__(self, width=1440, height=900):
        program = next(filter(None, map(shutil.which, NAMES)))
        self.folder = tempfile.mkdtemp(prefix="pumice-view-")
        to_browser, self.write_to = os.pipe()
        self.read_from, from_browser = os.pipe()

        def place():
            # The browser reads from descriptor 3 and writes to 4. Neither pipe may be in the other's place before.
            one, other = os.dup(to_browser), os.dup(from_browser)
            high = (os.dup2(one, 103), os.dup2(other, 104))
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        arguments = [
            program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
            f"--window-size={width},{height}",
        ]
        if os.geteuid() == 0:
            # The browser refuses to make its sandbox as root. The page is our own.
            arguments.append("--no-sandbox")
        self.process = subprocess.Popen(
            [*arguments, "about:blank"], preexec_fn=place, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.number, self.session = b"", 0, None
        self.problems, self.requests, self.events = [], [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def receive(self, deadline):
        """The next message. Fails if the deadline passes first."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_from], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.read_from, 1 << 20)
            assert more, "the browser has ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, seconds=60, **parameters):
        """Calls a method of the DevTools protocol; what it returns."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_to, data):]
        deadline = time.monotonic() + seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.keep(answer)

    def keep(self, event):
        """Remembers what the page did."""
        method, about = event.get("method"), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(about["exceptionDetails"].get("exception", {}).get("description", str(about)))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{about['type']}: {about['args']}")
        elif method == "Log.entryAdded":
            self.problems.append(f"{about['entry']['level']}: {about['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, path):
        """Opens a file; returns when the page's script has run, and the page is drawn."""
        self.events.clear()
        self.call("Page.navigate", url=f"file://{path}")
        deadline = time.monotonic() + 60
        while "Page.loadEventFired" not in self.events:
            self.keep(self.receive(deadline))
        self.drawn()

    def run(self, script):
        """What a JavaScript expression is; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    def drawn(self):
        """Returns when the next frame but one has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key, shift=False):
        """Presses and releases a key."""
        about = {"key": key, "modifiers": 8 if shift else 0}
        if key in KEYS:
            about["windowsVirtualKeyCode"] = KEYS[key]
        if len(key) == 1 or key == "Enter":
            about["text"] = "\r" if key == "Enter" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{**about, "text": ""})
        self.drawn()

    def type(self, text):
        """Types a text into what has the focus."""
        self.call("Input.insertText", text=text)
        self.drawn()

    def mouse(self, kind, x, y, **more):
        """A mouse event at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        """Clicks into the middle of an element."""
        script = f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
        x, y = self.run(script + "return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        self.click_at(x, y)

    def click_at(self, x, y):
        """Clicks at a place of the window."""
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.drawn()

    def picture(self, path):
        """Writes what the window shows as PNG."""
        self.drawn()
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        """Ends the browser."""
        self.process.terminate()
        self.process.wait()
        os.close(self.write_to)
        os.close(self.read_from)
        shutil.rmtree(self.folder, ignore_errors=True)
