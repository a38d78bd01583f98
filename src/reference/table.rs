//! Writes Markdown tables.

use std::io::{self, Write};

/// Begins a table with these headings.
pub(super) fn head(headings: &[&str], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| {} |\n|{}", headings.join(" | "), "---|".repeat(headings.len()))
}

/// Writes a row. Vertical bars and line ends in a cell are escaped, because they would end the cell.
pub(super) fn row(cells: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.trim().replace('|', "\\|").replace('\n', " ")).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}
