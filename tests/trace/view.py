"""Looks at pages of `pumice trace view` in a real Chromium. Prints PASS or FAIL for each thing that a user does.

    view.py LOSSY.html HOSTILE.html MANY.html [PICTURES]

LOSSY is of four processes with the tags server-a, client-a, server-b and client-b, and one lost packet of request 59
of server-a. HOSTILE is of the trace that hostile.py writes. MANY has about 200,000 packets. PICTURES is a folder.
"""

import pathlib
import sys

from browser import Browser

TITLE = "document.querySelector('#detail-title')?.textContent ?? ''"
ROWS = "Number(document.querySelector('#requests').getAttribute('aria-rowcount')) - 1"
# A chosen value, and the event that a user's choice causes.
CHOOSE = "(() => {{ const s = document.querySelector('#{0}'); s.value = {1}; " \
    "s.dispatchEvent(new Event('{2}', {{ bubbles: true }})); }})()"
# Half a minute of a hand on the wheel: in, along, out again, and along where everything is seen.
MOVE = """(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const gaps = [], { packets } = page.trace, from = packets.at[0], all = packets.endMax[packets.count - 1] - from;
  let before = await frame();
  page.frames.length = 0;
  const step = async () => { const now = await frame(); gaps.push(now - before); before = now; };
  for (let i = 0; i <= 60; i++) { page.axis.set(from - all * i / 200, from + all * (1.3 - i / 200)); await step(); }
  for (let i = 0; i < 80; i++) { page.axis.zoom(0.9, 0.4); await step(); }
  for (let i = 0; i < 60; i++) { page.axis.pan(0.05); await step(); }
  for (let i = 0; i < 80; i++) { page.axis.zoom(1 / 0.9, 0.4); await step(); }
  const at = (list, share) => [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) * share)];
  return [at(page.frames, 0.5), at(page.frames, 1), at(gaps, 0.5), at(gaps, 0.95), at(gaps, 1)];
})()"""


class Failed(Exception):
    """Something is not as a user expects it."""


def expect(found, wanted, what):
    if found != wanted:
        raise Failed(f"{what}: {found!r} instead of {wanted!r}")


def expect_in(part, text, what):
    if part not in text:
        raise Failed(f"{what}: no {part!r} in {text!r}")


def choose(browser, name, value, event="change"):
    browser.run(CHOOSE.format(name, value, event))
    browser.drawn()


def loads_nothing_else(browser, page):
    browser.open(page)
    expect(browser.requests, [f"file://{page}"], "what was loaded")
    totals = browser.run("document.querySelector('#totals').textContent")
    expect_in("4 processes · 800 requests", totals, "totals")
    # A load that the page's policy must refuse.
    refused = browser.run("fetch('https://127.0.0.1:9/').then(() => 'loaded', () => 'refused')")
    expect(refused, "refused", "a load")
    browser.problems = [problem for problem in browser.problems if "127.0.0.1:9" not in problem]


def tells_the_lost_packet(browser, _):
    choose(browser, "process", "String(page.trace.processes.findIndex((one) => one.tag === 'server-a'))")
    choose(browser, "status", "'lost'")
    choose(browser, "search", "'59'", "input")
    expect(browser.run(ROWS), 1, "requests 59 of server-a that lost a packet")
    browser.run("document.querySelector('.request').click()")
    expect_in("Request 59 of server-a", browser.run(TITLE), "the chosen request")
    expect_in("the fault plan had lost its packet", browser.run("document.querySelector('#story').textContent"), "story")
    packets = browser.run("[...document.querySelectorAll('#packets tbody tr')].map((row) => row.textContent)")
    expect(sum("lost by a fault plan" in one for one in packets), 1, "lost packets")
    expect(any("sent for the 2. time" in one for one in packets), True, "a packet is sent again")
    parts = browser.run("document.querySelector('#parts').textContent")
    expect_in("until the acknowledgement timer expired", parts, "parts")
    browser.click("#clear")
    expect(browser.run(ROWS), 800, "requests without a filter")


def searches(browser, _):
    browser.key("/")
    expect(browser.run("document.activeElement.id"), "search", "focus")
    browser.type("client-b send 17")
    expect(browser.run(ROWS), browser.run(
        "page.trace.requests.number.filter((_, i) => page.filter.requests[i]).length"), "rows")
    texts = browser.run("[...document.querySelectorAll('.request')].map((row) => row.textContent)")
    expect(len(texts) > 0 and all("client-b" in text and "SEND" in text for text in texts), True, f"found {texts}")
    choose(browser, "search", "'no such thing'", "input")
    expect((browser.run(ROWS), browser.run("document.querySelectorAll('.request').length")), (0, 0), "rows")
    browser.key("Escape")
    browser.click("#clear")


def filters(browser, _):
    choose(browser, "opcode", "'request:' + page.trace.requests.operations.indexOf('SEND')")
    expect(browser.run(ROWS), 400, "SEND requests")
    packets = "page.filter.shownPackets"
    of_requests = browser.run(packets)
    byte = "[...page.trace.opcodeNames].find(([, name]) => /ACK/.test(name))[0]"
    choose(browser, "opcode", f"'packet:' + {byte}")
    expect(0 < browser.run(packets) < of_requests, True, "acknowledgements are some of the packets")
    browser.click("#clear")
    choose(browser, "queue-pair", "'0'")
    expect(browser.run(ROWS), 200, "requests of one queue pair")
    choose(browser, "status", "'failed'")
    expect(browser.run(ROWS), 0, "failed requests")
    browser.click("#clear")


def sorts_and_keeps_few_rows(browser, _):
    browser.run("document.querySelector('[data-column=latency] button').click()")
    expect(browser.run("document.querySelector('[data-column=latency]').getAttribute('aria-sort')"), "descending", "sort")
    latencies = browser.run("page.table.rows.map((i) => page.trace.requests.duration_ns[i])")
    expect(latencies, sorted(latencies, reverse=True), "latencies")
    expect(browser.run("document.querySelectorAll('.request').length < 60"), True, "only the rows that are seen")
    browser.run("document.querySelector('#requests-body').scrollTop = 10000")
    browser.drawn()
    first = browser.run("Number(document.querySelector('.request').getAttribute('aria-rowindex'))")
    expect(first > 300, True, f"row {first} after scrolling")
    browser.run("document.querySelector('[data-column=posted] button').click()")
    browser.run("document.querySelector('#requests-body').scrollTop = 0")


def is_used_by_keys(browser, _):
    browser.key("Escape")
    browser.key("n")
    expect(browser.run("page.trace.hasTrouble(page.chosen) ? 1 : 0"), 1, "the next trouble")
    span = "page.axis.span"
    before = browser.run(span)
    browser.key("+")
    expect(browser.run(span) < before, True, "plus shows less")
    browser.key("-")
    expect(abs(browser.run(span) / before - 1) < 0.01, True, "minus shows more")
    start = browser.run("page.axis.from")
    browser.key("ArrowRight")
    expect(browser.run("page.axis.from") > start, True, "the arrow shows later time")
    browser.run("document.querySelector('#requests').focus()")
    browser.key("Home")
    expect(browser.run("page.table.rows.indexOf(page.chosen)"), 0, "the first row")
    browser.key("ArrowDown")
    expect(browser.run("page.table.rows.indexOf(page.chosen)"), 1, "the second row")
    active = browser.run("document.querySelector('#requests').getAttribute('aria-activedescendant')")
    expect(browser.run(f"document.querySelector('#{active}').getAttribute('aria-selected')"), "true", "the active row")
    browser.key("?")
    expect(browser.run("document.querySelector('#help').open"), True, "help")
    expect(browser.run("document.querySelectorAll('#keys dt').length > 8"), True, "keys are explained")
    browser.key("Escape")
    expect(browser.run("document.querySelector('#help').open"), False, "help after Escape")
    browser.key("Escape")
    expect(browser.run("page.chosen"), -1, "chosen after Escape")
    browser.key("Tab")
    outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
    expect(outline, "solid", "the outline of what has the focus")


def is_dark_and_light(browser, page):
    back = "getComputedStyle(document.body).backgroundColor"
    before = browser.run(back)
    browser.key("t")
    expect(browser.run(back) != before, True, "the theme's colour")
    browser.key("t")
    expect(browser.run(back), before, "the theme's colour after two changes")
    for scheme, is_dark in [("dark", True), ("light", False)]:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(page)
        expect(browser.run("document.documentElement.classList.contains('dark')"), is_dark, f"{scheme} as preferred")


def is_moved_by_the_mouse(browser, _):
    left, top, width, height = browser.run(
        "(({ x, y, width, height }) => [x, y, width, height])(document.querySelector('#ladder').getBoundingClientRect())")
    before = browser.run("page.axis.span")
    browser.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=-300)
    browser.drawn()
    expect(browser.run("page.axis.span") < before, True, "the wheel zooms")
    start = browser.run("page.axis.from")
    browser.mouse("mousePressed", left + width / 2, top + height / 2, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", left + width / 2, top + height / 2 - 60, button="left", buttons=1)
    browser.mouse("mouseReleased", left + width / 2, top + height / 2 - 60, button="left", clickCount=1)
    expect(browser.run("page.axis.from") > start, True, "a drag moves the time")
    # A click onto a packet chooses its request.
    browser.run("page.choose(page.trace.packets.request.find((request) => request > 300)); page.showChosen(); "
                "window.wanted = page.chosen; page.choose(-1)")
    browser.drawn()
    x, y = browser.run("(() => { const i = page.ladder.lines.find((i) => page.trace.packets.request[i] === wanted); "
                       "const [x0, y0, x1, y1] = page.ladder.ends(i); return [(x0 + x1) / 2, (y0 + y1) / 2]; })()")
    browser.click_at(left + x, top + y)
    expect(browser.run("page.chosen >= 0"), True, "a click chooses")


# Where a counter of a queue pair is drawn, in the window: its left, its middle and its width; and its place in its row.
TRACK = """(() => {{ const row = page.timeline.list[{0}];
  const place = row.tracks.findIndex(({{ name }}) => name === {1});
  const {{ x, y, width }} = page.timeline.canvas.getBoundingClientRect();
  const middle = row.tracksTop + (place + 0.5) * TRACK_HEIGHT;
  return [x + TIMELINE_LEFT, y + middle, width - TIMELINE_LEFT, middle]; }})()"""
# How many colours are in a column of a track. A copy is read: the page's own canvas is not made for it.
COLUMN = """(() => {{ const ratio = devicePixelRatio, high = Math.round(TRACK_HEIGHT * ratio);
  const copy = new OffscreenCanvas(1, high).getContext("2d", {{ willReadFrequently: true }});
  copy.drawImage(page.timeline.canvas, -Math.round({0} * ratio), -Math.round(({1} - TRACK_HEIGHT / 2) * ratio));
  return new Set(new Uint32Array(copy.getImageData(0, 0, 1, high).data.buffer)).size; }})()"""
PRESSED = "document.querySelector('#counters').getAttribute('aria-pressed')"
CURSOR = "document.querySelector('#cursor').textContent"


def shows_counters(browser, page):
    browser.open(page)
    # Of four queue pairs they are not shown unless asked for.
    height = "page.timeline.height"
    expect(browser.run(PRESSED), "false", "counters at first")
    plain = browser.run(height)
    browser.key("c")
    expect(browser.run(PRESSED), "true", "counters after c")
    names = set(browser.run("page.trace.countersOf[0].map(({ name }) => name)"))
    wanted = {"bytes under way", "round trip", "window", "packets in flight"}
    expect(wanted <= names and any("completions that wait" in name for name in names), True, f"counters {names}")
    tracks = browser.run("page.timeline.list.reduce((sum, { tracks }) => sum + tracks.length, 0)")
    expect(browser.run(f"{height} - {plain} > {tracks - 1} * TRACK_HEIGHT"), True, "room for the tracks")
    has_values_by_pointer(browser)
    has_values_by_keys(browser)
    browser.run("page.choose(5)")
    browser.drawn()
    table = browser.run("document.querySelector('#counter-values').textContent")
    for part in ("bytes under way", "round trip", "8,192 B"):
        expect_in(part, table, "the counters of a request")
    browser.key("Escape")
    expect(browser.run(CURSOR), "", "the cursor after Escape")
    browser.click("#counters")
    expect((browser.run(PRESSED), browser.run(height)), ("false", plain), "without counters again")


def has_values_by_pointer(browser):
    """A counter's area is drawn where it has a value, moves with the time, and tells the value."""
    of_bytes = "page.trace.countersOf[0].find(({ name }) => name === 'bytes under way')"
    # A message after whose acknowledgement nothing is under way for a while: the time of it is a third of what is shown.
    browser.run(f"(() => {{ const c = {of_bytes}, took = (i) => c.at[i + 1] - c.at[i]; "
                "const i = c.value.findIndex((value, i) => value === c.most && c.value[i + 1] === 0 && took(i + 1) > took(i) / 5); "
                "window.step = c.at[i + 1]; page.axis.set(c.at[i] - took(i), window.step + took(i)); })()")
    browser.drawn()
    left, top, width, middle = browser.run(TRACK.format(0, "'bytes under way'"))
    column = "TIMELINE_LEFT + page.axis.place(({0}), page.timeline.width - TIMELINE_LEFT)"
    until = column.format("window.step")
    # Beside the step the area has its colour, its edge and the background; behind it, the edge of 0 and the background.
    colours = [browser.run(COLUMN.format(f"({until} + {step})", middle)) for step in (-20, 20)]
    expect(colours, [3, 2], "colours before and behind a step")
    browser.mouse("mouseMoved", left + width / 2, top)
    expect_in("bytes under way: 8,192 B", browser.run("document.querySelector('#tip').textContent"), "the tip")
    chosen = browser.run("page.chosen")
    browser.click_at(left + width / 2, top)
    expect_in("bytes under way: 8,192 B", browser.run(CURSOR), "the cursor's words")
    expect(browser.run("page.chosen"), chosen, "a click on a counter chooses no request")
    browser.run("page.axis.pan(2)")
    browser.drawn()
    expect(browser.run(COLUMN.format(f"({until} - 20)", middle)), 1, "colours where the track was, after moving")


def has_values_by_keys(browser):
    """Brackets go from change to change, and say what changed."""
    browser.key("0")
    browser.key("Escape")
    changes = browser.run("[...new Set(page.trace.counters.flatMap(({ at }) => [...at]))].sort((a, b) => a - b).slice(0, 3)")
    found = []
    for key in ("]", "]", "]", "[", "["):
        browser.key(key)
        found.append(browser.run("page.counters.cursor"))
    expect(found, [*changes, changes[1], changes[0]], "the cursor's times")
    words = browser.run(CURSOR)
    expect(browser.run("page.counters.told(page.counters.cursor, page.trace.counters)"), words, "what the cursor says")
    expect(": " in words and " · " in words, True, words)
    # At the end it goes no further, and an earlier time that is not shown is moved to.
    browser.run("page.axis.set(page.trace.endNs * 0.9, page.trace.endNs); page.counters.setCursor(null)")
    browser.key("[")
    expect(browser.run("page.counters.cursor <= page.axis.to && page.counters.cursor >= page.axis.from"), True,
           "the cursor is in view")


def shows_hostile_texts_as_text(browser, page):
    browser.open(page)
    expect(browser.run("window.hacked"), None, "a script of a name was run")
    expect(browser.run("document.querySelectorAll('img, iframe, script:not([type]):not(:last-of-type)').length"), 0,
           "elements from names")
    names = browser.run("page.trace.processes[0].program + document.querySelector('#process').textContent")
    expect_in("</script><script>window.hacked=1</script>", names, "the name")
    browser.run("page.choose(0)")
    browser.drawn()
    expect_in("<img", browser.run(TITLE), "the tag in the detail")


def is_fluent(browser, page, pictures):
    browser.open(page)
    packets = browser.run("page.trace.packets.count")
    expect(packets >= 190_000, True, f"{packets} packets")
    ready = browser.run("performance.timing.loadEventEnd - performance.timing.navigationStart")
    if pictures:
        browser.picture(pictures / "many.png")
    draw, worst_draw, gap, most, worst_gap = browser.run(MOVE)
    search = browser.run("(() => { const begun = performance.now(); document.querySelector('#search').value = 'client'; "
                         "page.filterBy(); return performance.now() - begun; })()")
    print(f"      {packets} packets: shown after {ready} ms; drawing takes {draw:.1f} ms (median), {worst_draw:.1f} ms "
          f"(worst of 281); a frame every {gap:.1f} ms (median), {most:.1f} ms (95 %), {worst_gap:.1f} ms (worst); "
          f"a search takes {search:.0f} ms")
    # A slow machine is no failure; that something is a hundred times slower is one.
    expect(ready < 30_000 and draw < 200, True, "fluent")


def main(lossy, hostile, many, pictures=None):
    pictures = pictures and pathlib.Path(pictures)
    browser = Browser()
    checks = [(loads_nothing_else, lossy), (tells_the_lost_packet, lossy), (searches, lossy), (filters, lossy),
              (sorts_and_keeps_few_rows, lossy), (is_used_by_keys, lossy), (is_dark_and_light, lossy),
              (is_moved_by_the_mouse, lossy), (shows_counters, lossy), (shows_hostile_texts_as_text, hostile)]
    for check, page in [*checks, (lambda browser, page: is_fluent(browser, page, pictures), many)]:
        name = "is_fluent" if check.__name__ == "<lambda>" else check.__name__
        try:
            browser.run("window.page?.clearFilters()")
            check(browser, page)
            expect(browser.problems, [], "what the console says")
            print(f"PASS  the page {name.replace('_', ' ')}", flush=True)
        except (Failed, AssertionError) as problem:
            print(f"FAIL  the page {name.replace('_', ' ')}: {problem}", flush=True)
        browser.problems = []
    if pictures:
        take_pictures(browser, lossy, pictures)
    browser.close()


def take_pictures(browser, lossy, pictures):
    """The pictures of README and tutorial: everything, and the lost packet."""
    browser.open(lossy)
    browser.picture(pictures / "page.png")
    browser.run("page.choose([...page.trace.stories.keys()].find((i) => page.trace.requests.hasLoss[i])); "
                "page.showChosen()")
    browser.picture(pictures / "lost-packet.png")
    browser.run("page.axis.set(...((i) => [page.trace.requests.at[i] - 2e4, page.trace.requests.at[i] + 12e4])(page.chosen))")
    browser.picture(pictures / "ladder.png")
    browser.key("c")
    browser.picture(pictures / "counters.png")
    browser.key("t")
    browser.picture(pictures / "dark.png")
    browser.key("?")
    browser.picture(pictures / "help.png")


main(*sys.argv[1:])
