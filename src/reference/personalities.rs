//! The page of the personalities, from their profiles.

use std::io::{self, Write};

use super::table;
use crate::personalities::all;

/// Writes the page.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Personalities\n\nAdapters that a device can look like: `pumice run --device NAME`. [Personalities]\
         (../personalities.md) says what for. A call that is refused fails with EOPNOTSUPP.\n"
    )?;
    let headings =
        ["Name", "What it is", "Vendor and part", "Driver", "Queue pairs", "Vendor's calls", "Refused calls"];
    table::head(&headings, out)?;
    for one in all() {
        let name = format!("`{}`", one.name);
        let refused: Vec<String> = one.refused.iter().map(|call| format!("`{call}`")).collect();
        let refused = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
        let calls = one.vendor_calls.map_or("none".to_owned(), |calls| format!("`{calls}`"));
        let cells = [&name, &one.remark, &one.id, &one.driver, &one.queue_pairs, &calls, &refused];
        table::row(&cells.map(String::as_str), out)?;
    }
    Ok(())
}
