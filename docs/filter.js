// A field above each long table, which shows the rows that have all words. No network, no library. "?filter=WORDS" fills it in.
(() => {
    const wanted = new URLSearchParams(location.search).get("filter") ?? "";
    for (const table of document.querySelectorAll("main table")) {
        const rows = [...table.querySelectorAll("tbody tr")];
        if (rows.length < 12) continue;
        const field = document.createElement("input");
        field.type = "search";
        field.placeholder = `Search these ${rows.length} rows`;
        field.setAttribute("aria-label", field.placeholder);
        field.style.cssText = "width: 100%; max-width: 40em; padding: 0.4em; margin: 1em 0 0.5em; font: inherit;";
        // The book's own keys, such as "s" and the arrows, are letters here.
        field.addEventListener("keydown", (event) => event.stopPropagation());
        // Numbers and names of a run stand for any in a sentence: words of what pumice printed need not all be there.
        const show = () => {
            const words = field.value.toLowerCase().match(/[a-z_][a-z_0-9-]*|\d+/g) ?? [];
            const texts = rows.map((row) => row.textContent.toLowerCase());
            const hits = texts.map((text) => words.filter((word) => text.includes(word)).length);
            const most = Math.max(...hits);
            const least = most === words.length ? words.length : Math.max(1, most);
            rows.forEach((row, index) => { row.hidden = words.length > 0 && hits[index] < least; });
        };
        field.addEventListener("input", show);
        (table.closest(".table-wrapper") ?? table).before(field);
        field.value = wanted;
        show();
    }
})();
