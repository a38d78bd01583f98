//! Tables of Markdown.

use std::io::{self, Write};

/// Begins a table with these headings.
pub(super) fn head(headings: &[&str], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| {} |\n|{}", headings.join(" | "), "---|".repeat(headings.len()))
}

/// A row of it. A vertical bar in a cell would end the cell, and so would the end of a line.
pub(super) fn row(cells: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.trim().replace('|', "\\|").replace('\n', " ")).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}
