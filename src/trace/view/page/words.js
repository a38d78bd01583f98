// Texts: times, numbers, and elements of the page. What comes from a trace becomes text, never markup.

/** A time with a unit that fits it; `digits` behind the point. */
function timeText(ns, digits = 1) {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < 1e6) return `${(ns / 1e3).toFixed(digits)} µs`;
  if (size < 1e9) return `${(ns / 1e6).toFixed(digits)} ms`;
  return `${(ns / 1e9).toFixed(digits + 1)} s`;
}

/** A time as a place on an axis whose ticks are `step` ns apart: enough digits to tell ticks apart. */
function axisText(ns, step) {
  const [unit, name] = ns < 1e3 && step < 1e3 ? [1, "ns"] : ns < 1e6 && step < 1e6 ? [1e3, "µs"]
    : ns < 1e10 ? [1e6, "ms"] : [1e9, "s"];
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / unit))));
  return `${(ns / unit).toFixed(digits)} ${name}`;
}

/** A count with its noun. */
function countText(count, noun, nouns = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}

const hexText = (number) => `0x${number.toString(16)}`;

/** An element with properties and children; strings become text. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
