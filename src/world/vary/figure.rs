//! Finds a program's own figure in what it prints.

/// Returns the figure with this title: the number in the column of the last table that has it, or else the
/// last number behind it in a line.
pub(super) fn of(output: &str, title: &str) -> Option<f64> {
    let mut found = None;
    let mut column = None;
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == title) {
            column = Some(at);
        }
        let is_row = words.first().is_some_and(|word| word.parse::<f64>().is_ok());
        match column.and_then(|column| words.get(column)).filter(|_| is_row) {
            Some(cell) => found = cell.parse().ok().or(found),
            None => found = behind(line, title).or(found),
        }
    }
    found
}

/// Returns the first number in a line behind a text.
fn behind(line: &str, title: &str) -> Option<f64> {
    let (_, rest) = line.split_once(title)?;
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let from = rest.find(|c: char| c.is_ascii_digit())?;
    let number = rest.get(from..)?;
    let end = number.find(|c| !is_part(c)).unwrap_or(number.len());
    let is_negative = rest.get(..from)?.ends_with('-');
    let value: f64 = number.get(..end)?.trim_end_matches('.').parse().ok()?;
    Some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_figure_is_in_a_column_or_behind_its_title() {
        let table =
            " #bytes #iterations    t_min[usec]    t_typical[usec]\n 2 100 1.25 1.27\n 4 100 1.3 1.31\n---\n";
        assert_eq!(of(table, "t_typical[usec]"), Some(1.31));
        assert_eq!(of(table, "t_max[usec]"), None);
        assert_eq!(of("took: 3 ms\nlatency = 12.5us (mean)\n", "latency"), Some(12.5));
        assert_eq!(of("change: -4.\n", "change"), Some(-4.0));
        assert_eq!(of("latency: none\n", "latency"), None);
    }
}
