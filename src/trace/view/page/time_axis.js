// The time that is shown, and the ticks of its axis.

/** The shortest time that fills the axis, in ns. */
const SHORTEST_NS = 50;

class TimeAxis {
  constructor(endNs, changed) {
    this.endNs = endNs;
    this.changed = changed;
    this.whole();
  }

  get span() {
    return this.to - this.from;
  }

  set(from, to) {
    const margin = this.endNs * 0.02;
    const span = Math.min(Math.max(to - from, SHORTEST_NS), this.endNs + 2 * margin);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, -margin), this.endNs + margin - span);
    this.from = start;
    this.to = start + span;
    this.changed();
  }

  whole() {
    this.set(-this.endNs * 0.02, this.endNs * 1.02);
  }

  /** Shows `factor` times as much; what is at this share of the axis stays there. */
  zoom(factor, share = 0.5) {
    const at = this.from + this.span * share;
    const span = Math.max(this.span * factor, SHORTEST_NS);
    this.set(at - span * share, at + span * (1 - share));
  }

  /** Moves by a share of what is shown. */
  pan(share) {
    this.set(this.from + this.span * share, this.to + this.span * share);
  }

  /** Shows a stretch of time, with some room around it. */
  show(from, to) {
    const room = Math.max((to - from) * 0.12, 500);
    this.set(from - room, to + room);
  }

  place(ns, length) {
    return (ns - this.from) / this.span * length;
  }

  /** Times of ticks that are at least so many pixels apart, and their distance. */
  ticks(length, apart) {
    const least = this.span * apart / length;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least);
    const ticks = [];
    for (let at = Math.max(0, Math.ceil(this.from / step) * step); at <= this.to; at += step) ticks.push(at);
    return [ticks, step];
  }
}

/** Gives a canvas the pixels that its place on the page has; its context, in CSS pixels. */
function prepareCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Colours of the page for drawing; read again when the theme changes. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["back", "panel", "line", "text", "soft", "accent", "bad", "warn", "answer", "packet"];
  const colours = Object.fromEntries(names.map((name) => [name, colour(name)]));
  colours.parts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((part) => colour(`part-${part}`));
  return colours;
}

/** Wheel and drag on a canvas move and zoom the time; `isDown` if it goes downwards. */
function moveByPointer(canvas, axis, isDown, area) {
  const share = (event) => {
    const { left, top } = canvas.getBoundingClientRect(), { start, length } = area();
    return ((isDown ? event.clientY - top : event.clientX - left) - start) / length;
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey) axis.pan((event.deltaY || event.deltaX) / 1000);
    else axis.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 400), share(event));
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { share: share(event), moved: 0 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) return;
    const now = share(event), step = held.share - now;
    held.moved += Math.abs(step) * area().length;
    if (held.moved > 3) axis.pan(step);
    held.share = now;
  });
  canvas.addEventListener("pointerup", () => {
    canvas.wasDragged = held !== null && held.moved > 3;
    held = null;
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
}
