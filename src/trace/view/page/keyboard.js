// Keys, and the page that explains them and the signs.

const KEYS = [
  ["/", "search"], ["?", "this help"], ["Esc", "close the help; leave the search; choose no request"],
  ["← →", "earlier, later"], ["+ −", "show less time, more time"], ["0", "show all of the time"],
  ["↑ ↓", "the request above, below; with Page, Home, End in the table"],
  ["n  N", "next, previous request with trouble"], ["z  Enter", "show the time of the chosen request"],
  ["c", "counters below the packets of each queue pair, or none"],
  ["[ ]", "to where a counter changed before, after; a click on a counter goes to its time"],
  ["t", "dark or light"], ["Tab", "to the next part of the page"],
  ["wheel, drag", "zoom and move the timeline and the ladder; Shift and wheel moves"],
];
const SIGNS = [
  ["a request's packet", 0, 1], ["an answer", ANSWER, 1], ["sent again", 0, 2],
  ["lost by a fault plan", LOST, 1], ["sent and not arrived", NOT_ARRIVED, 1],
  ["dropped on arrival", DROPPED, 1], ["doubled on its way", DOUBLED, 1],
];
const MARKS = [
  ["◆", "a fault plan"], ["▲", "a NAK or a congestion notification"],
  ["↻", "the requester repeats, or waits"],
  ["⊘", "a packet was dropped, or came again"], ["!", "something went wrong"], ["•", "states and others"],
  ["▂▆▃", "a counter: its full height is its largest value"],
];

class Keyboard {
  constructor(page) {
    this.page = page;
    this.help = byId("help");
    byId("help-button").addEventListener("click", () => this.openHelp());
    document.addEventListener("keydown", (event) => this.key(event));
    const keys = KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]);
    byId("keys").append(...keys);
    byId("part-signs").append(...page.trace.parts.map((words, kind) => element("li", {},
      element("span", { class: `swatch part-${kind}` }), words)));
  }

  openHelp() {
    const list = SIGNS.map(([words, flags, transmission]) => {
      const canvas = element("canvas", { width: "64", height: "16" });
      const item = element("li", {}, canvas, words);
      const context = prepareCanvas(canvas, 64, 16);
      const right = flags & (LOST | NOT_ARRIVED) ? 40 : 58;
      strokeLook(context, packetLook(flags, transmission), this.page.colours, () => {
        context.moveTo(2, 8);
        context.lineTo(right, 8);
      });
      drawEnd(context, flags, right, 8, 1, this.page.colours);
      return item;
    });
    const marks = MARKS.map(([sign, words]) => element("li", {}, `${sign}  ${words}`));
    byId("signs").replaceChildren(...list, ...marks);
    this.help.showModal();
  }

  key(event) {
    const { page } = this, isTyping = event.target.matches("input, select");
    if (this.help.open || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") {
      if (isTyping) event.target.blur();
      else {
        page.counters.setCursor(null);
        page.choose(-1);
      }
      return;
    }
    if (isTyping) return;
    const actions = {
      "/": () => byId("search").focus(), "?": () => this.openHelp(), t: () => page.toggleTheme(),
      "+": () => page.axis.zoom(0.6), "=": () => page.axis.zoom(0.6), "-": () => page.axis.zoom(1 / 0.6),
      "0": () => page.axis.whole(), ArrowLeft: () => page.axis.pan(-0.15),
      ArrowRight: () => page.axis.pan(0.15),
      ArrowUp: () => page.table.move(-1), ArrowDown: () => page.table.move(1),
      n: () => page.nextTrouble(1), N: () => page.nextTrouble(-1), z: () => page.showChosen(),
      c: () => page.counters.toggle(), "[": () => page.counters.step(-1), "]": () => page.counters.step(1),
    };
    const action = actions[event.key];
    if (!action || (event.key.startsWith("Arrow") && event.target.closest("#detail"))) return;
    event.preventDefault();
    action();
  }
}
