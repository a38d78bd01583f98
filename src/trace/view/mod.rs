//! A timeline as one page that any browser shows, also without a network.
//!
//! `page/` has the page's own text, style and script; they and the data are put into one file. Names and
//! texts of a trace are hostile: they are JSON in an element that no browser executes, without a `<` that
//! could end that element, and the script puts them onto the page as text only. The page's policy allows its
//! own script and style by their digests, and forbids loading anything.

mod data;
mod flights;
mod requests;
mod sha256;

use std::io::{self, Write};

use pumice_device::trace::Timeline;

use data::PageData;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// Parts of the script; those that others use come first.
const SCRIPT: [&str; 11] = [
    include_str!("page/words.js"),
    include_str!("page/data.js"),
    include_str!("page/filter.js"),
    include_str!("page/time_axis.js"),
    include_str!("page/ladder.js"),
    include_str!("page/counters.js"),
    include_str!("page/timeline.js"),
    include_str!("page/table.js"),
    include_str!("page/detail.js"),
    include_str!("page/keyboard.js"),
    include_str!("page/main.js"),
];
/// Placeholders in the page for its parts.
const SLOTS: [&str; 4] = ["{{policy}}", "{{style}}", "{{data}}", "{{script}}"];

/// Writes the page.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let script = format!("\"use strict\";\n{}", SCRIPT.join("\n"));
    let [of_script, of_style] = [script.as_str(), STYLE].map(sha256::source_name);
    let policy = format!(
        "default-src 'none'; script-src '{of_script}'; style-src '{of_style}'; base-uri 'none'; \
         form-action 'none'"
    );
    let mut rest = PAGE;
    for slot in SLOTS {
        let (before, after) = rest.split_once(slot).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        match slot {
            "{{policy}}" => out.write_all(policy.as_bytes())?,
            "{{style}}" => out.write_all(STYLE.as_bytes())?,
            "{{script}}" => out.write_all(script.as_bytes())?,
            _ => serde_json::to_writer(EscapeLessThan(&mut *out), &PageData::of(timeline))?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// A writer that escapes `<` in JSON, where it occurs only in texts, so that no text ends the element that it
/// is in.
struct EscapeLessThan<'a>(&'a mut dyn Write);

impl Write for EscapeLessThan<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (number, piece) in bytes.split(|byte| *byte == b'<').enumerate() {
            if number > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(piece)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_slot_once_and_in_order() {
        let mut rest = PAGE;
        for slot in SLOTS {
            let (before, after) = rest.split_once(slot).expect("it is there");
            assert!(!before.contains("{{") && !after.contains(slot), "{slot}");
            rest = after;
        }
        assert!(!rest.contains("{{"));
    }

    #[test]
    fn no_text_ends_the_element_of_the_data() {
        let mut bytes = Vec::new();
        serde_json::to_writer(EscapeLessThan(&mut bytes), "</script><!--<script>&\u{2028}").expect("memory");
        let text = String::from_utf8(bytes).expect("JSON");
        assert!(!text.contains('<'));
        let back: String = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, "</script><!--<script>&\u{2028}");
    }

    #[test]
    fn neither_script_nor_style_ends_its_element() {
        assert!(!SCRIPT.iter().any(|part| part.contains("</script") || part.contains("<!--")));
        assert!(!STYLE.contains("</style"));
    }
}
