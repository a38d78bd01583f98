//! Errors in the text of a plan.

/// The reason why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TextError {
    /// The line, from 1; `None` if the error is about the whole text.
    pub line: Option<usize>,
    /// The problem, and the remedy.
    pub problem: String,
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}
