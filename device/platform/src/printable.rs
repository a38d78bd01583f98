//! Text of others on its way to a terminal: files that were sent, names that other processes have chosen.
//!
//! A terminal obeys control characters: it moves the cursor, hides text, changes the window's title. Marks of
//! direction make text read as other text. So both are shown as escapes, wherever sentences and tables are
//! printed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the text as it may be printed; line breaks and tabs stay. The escapes are those of TOML and of
/// JSON.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmful(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Reports whether a terminal does something else with a character than show it.
pub fn is_harmful(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && c != '\n' && c != '\t' || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_do_nothing() {
        let title = "\u{1b}]0;owned\u{7} and\r more\u{9b}2J \u{202e}txt";
        let shown = r"\u001b]0;owned\u0007 and\u000d more\u009b2J \u202etxt";
        assert_eq!(printable(title), shown);
        let plain = "two\n\tlines: ä 漢 ✓";
        assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
    }
}
