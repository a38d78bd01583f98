//! Rust source as words, marks and texts, without comments.

/// A piece of source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword or a name.
    Word(String),
    /// The contents of a string literal.
    Text(String),
    /// `::`
    Separator,
    /// Any other character that is no space.
    Mark(char),
}

/// A piece of source, and its line from 1.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is(&self, mark: char) -> bool {
        self.kind == TokenKind::Mark(mark)
    }

    pub(super) fn is_word(&self, name: &str) -> bool {
        self.word() == Some(name)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits source into tokens. Numbers count as words, lifetimes are left out.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut reader = TokenReader { rest: text.chars().collect(), at: 0, line: 1, found: Vec::new() };
    while reader.step() {}
    reader.found
}

struct TokenReader {
    rest: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Token>,
}

impl TokenReader {
    fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn next(&mut self) -> char {
        let character = self.peek(0);
        self.line += usize::from(character == '\n');
        self.at += 1;
        character
    }

    fn push(&mut self, kind: TokenKind, line: usize) {
        self.found.push(Token { kind, line });
    }

    /// Reads one token; false at the end.
    fn step(&mut self) -> bool {
        if self.at >= self.rest.len() {
            return false;
        }
        let line = self.line;
        let (first, second) = (self.peek(0), self.peek(1));
        match (first, second) {
            ('/', '/') => while self.at < self.rest.len() && self.next() != '\n' {},
            ('/', '*') => self.skip_block_comment(),
            ('"', _) => self.read_text(line),
            ('\'', _) => self.skip_character_or_lifetime(),
            ('r' | 'b' | 'c', _) if self.begins_raw_text() => self.read_raw_text(line),
            ('b' | 'c', '"') => {
                self.next();
                self.read_text(line);
            }
            ('b', '\'') => {
                self.next();
                self.skip_character_or_lifetime();
            }
            (':', ':') => {
                self.at += 2;
                self.push(TokenKind::Separator, line);
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let mut word = String::new();
                while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                    word.push(self.next());
                }
                if word == "r" && self.peek(0) == '#' {
                    self.next(); // a raw name
                } else {
                    self.push(TokenKind::Word(word), line);
                }
            }
            _ => {
                self.next();
                if !first.is_whitespace() {
                    self.push(TokenKind::Mark(first), line);
                }
            }
        }
        true
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.rest.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.next();
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                return;
            }
        }
    }

    fn read_text(&mut self, line: usize) {
        self.next();
        let mut text = String::new();
        while self.at < self.rest.len() {
            match self.next() {
                '"' => break,
                '\\' => {
                    text.push('\\');
                    text.push(self.next());
                }
                other => text.push(other),
            }
        }
        self.push(TokenKind::Text(text), line);
    }

    /// Whether `r"`, `r#"`, `br"`, `cr#"` and so on stand here.
    fn begins_raw_text(&self) -> bool {
        let mut ahead = usize::from(self.peek(0) != 'r');
        if self.peek(ahead) != 'r' {
            return false;
        }
        ahead += 1;
        while self.peek(ahead) == '#' {
            ahead += 1;
        }
        self.peek(ahead) == '"'
    }

    fn read_raw_text(&mut self, line: usize) {
        while self.peek(0) != '"' && self.peek(0) != '#' {
            self.next();
        }
        let mut hashes = 0;
        while self.next() == '#' {
            hashes += 1;
        }
        let mut text = String::new();
        while self.at < self.rest.len() {
            let character = self.next();
            if character == '"' && (0..hashes).all(|ahead| self.peek(ahead) == '#') {
                self.at += hashes;
                break;
            }
            text.push(character);
        }
        self.push(TokenKind::Text(text), line);
    }

    fn skip_character_or_lifetime(&mut self) {
        self.next();
        if self.peek(0) == '\\' {
            self.at += 2;
            while self.at < self.rest.len() && self.next() != '\'' {}
        } else if self.peek(1) == '\'' {
            self.next();
            self.next();
        } else {
            while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                self.next();
            }
        }
    }
}

#[test]
fn comments_texts_and_lifetimes_are_distinguished() {
    let text =
        "/* a /* b */ c */ let x: &'a str = \"d // \\\" e\"; // f\nr#\"g\"h\"# b'\\'' '\"' crate::i r#type";
    let words: Vec<String> = tokens(text)
        .into_iter()
        .map(|token| match token.kind {
            TokenKind::Word(word) => word,
            TokenKind::Text(text) => format!("<{text}>"),
            TokenKind::Separator => "::".to_owned(),
            TokenKind::Mark(mark) => mark.to_string(),
        })
        .collect();
    let expected =
        ["let", "x", ":", "&", "str", "=", "<d // \\\" e>", ";", "<g\"h>", "crate", "::", "i", "type"];
    assert_eq!(words, expected);
}
