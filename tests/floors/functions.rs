//! Functions and how long they are.

use super::token::Token;

/// A function with a body: its name, its first line from 1, and how many lines it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

/// The functions of a file, those in others included.
pub(super) fn functions(source: &[Token]) -> Vec<Function> {
    let begins = |pair: &[Token]| pair[0].is_word("fn") && pair[1].word().is_some();
    let starts = source.windows(2).enumerate().filter(|(_, pair)| begins(pair)).map(|(index, _)| index);
    starts.filter_map(|index| function(source, index)).collect()
}

fn function(source: &[Token], start: usize) -> Option<Function> {
    let mut depth = 0_usize;
    let mut in_body = false;
    for token in &source[start..] {
        let opens = ['(', '[', '{'].iter().any(|mark| token.is(*mark));
        let closes = [')', ']', '}'].iter().any(|mark| token.is(*mark));
        if depth == 0 && (token.is(';') || closes) {
            return None; // a declaration, or a type
        }
        in_body |= depth == 0 && token.is('{');
        depth = if opens { depth + 1 } else { depth - usize::from(closes) };
        if closes && depth == 0 && in_body {
            let name = source[start + 1].word()?.to_owned();
            let line = source[start].line;
            return Some(Function { name, line, lines: token.line - line + 1 });
        }
    }
    None
}

#[test]
fn functions_are_measured_from_their_name_to_their_end() {
    let source = super::token::tokens(
        "trait T { fn a(&self); }\nfn b(x: [u8; 4]) -> u8 {\n  { 1 }\n}\ntype F = fn(u8);",
    );
    assert_eq!(functions(&source), [Function { name: "b".to_owned(), line: 2, lines: 3 }]);
}
