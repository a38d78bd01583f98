// A field above a long table, or above the first of several with the same columns, which shows the rows that have all words.
// No network, no library. "?filter=WORDS" fills it in.
(() => {
    const FEWEST_ROWS = 12;
    const wanted = new URLSearchParams(location.search).get("filter") ?? "";
    const words = (text) => text.toLowerCase().match(/[a-z_][a-z_0-9-]*/g) ?? [];
    const groups = new Map();
    for (const table of document.querySelectorAll("main table")) {
        const columns = table.querySelector("thead")?.textContent ?? "";
        groups.set(columns, [...(groups.get(columns) ?? []), table]);
    }
    for (const tables of groups.values()) {
        const rows = tables.flatMap((table) => [...table.querySelectorAll("tbody tr")]);
        if (rows.length < FEWEST_ROWS) continue;
        const texts = rows.map((row) => row.textContent.toLowerCase());
        const firsts = rows.map((row) => words(row.cells[0].textContent));
        const field = document.createElement("input");
        field.type = "search";
        field.placeholder = `Search these ${rows.length} rows`;
        field.setAttribute("aria-label", field.placeholder);
        field.style.cssText = "width: 100%; max-width: 40em; padding: 0.4em; margin: 1em 0 0.5em; font: inherit;";
        // The book's own keys, such as "s" and the arrows, are letters here.
        field.addEventListener("keydown", (event) => event.stopPropagation());
        const show = () => {
            const asked = new Set(words(field.value));
            const has = texts.map((text) => [...asked].every((word) => text.includes(word)));
            // A line that was printed has numbers and names of its run, or is a part: rows that share nearly all words with it.
            if (asked.size >= 5 && !has.includes(true)) {
                firsts.forEach((first, index) => {
                    const known = first.filter((word) => asked.has(word)).length;
                    const there = [...asked].filter((word) => first.includes(word)).length;
                    has[index] = (known >= 3 && known >= 0.8 * first.length) || there >= 0.8 * asked.size;
                });
            }
            rows.forEach((row, index) => { row.hidden = asked.size > 0 && !has[index]; });
            for (const table of tables) table.hidden = [...table.querySelectorAll("tbody tr")].every((row) => row.hidden);
        };
        field.addEventListener("input", show);
        (tables[0].closest(".table-wrapper") ?? tables[0]).before(field);
        field.value = wanted;
        show();
    }
})();
