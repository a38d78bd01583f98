//! The fenced blocks of documents, and what a comment before a block says about it.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The document, from the top folder of the project.
    pub(crate) document: PathBuf,
    /// The line of the fence, from 1.
    pub(crate) line: usize,
    /// The first word behind the fence; empty for none.
    pub(crate) language: String,
    /// What stands between `<!--` and `-->` in the last line before the block; empty for nothing.
    pub(crate) remark: String,
    /// The lines between the fences.
    pub(crate) text: String,
}

impl Block {
    /// Where it is.
    pub(crate) fn location(&self) -> String {
        format!("{}:{}", self.document.display(), self.line)
    }

    /// What the remark says behind this word and a colon; a word may be there several times.
    pub(crate) fn all_remarks(&self, word: &str) -> impl Iterator<Item = &str> {
        let parts = self.remark.split(';').map(str::trim);
        parts.filter_map(move |part| part.strip_prefix(word)?.strip_prefix(':')).map(str::trim)
    }

    /// What it says behind the first of them.
    pub(crate) fn said(&self, word: &str) -> Option<&str> {
        self.all_remarks(word).next()
    }

    /// Why it is not run or compiled, if the document says so.
    pub(crate) fn excuse(&self) -> Option<&str> {
        self.said("not run")
    }
}

/// The blocks of a text.
pub(crate) fn blocks_of(document: &Path, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut remark = String::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, words)) = lines.next() {
        let trimmed = words.trim();
        let Some(info) = trimmed.strip_prefix("```") else {
            if let Some(comment) = trimmed.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) {
                comment.trim().clone_into(&mut remark);
            } else if !trimmed.is_empty() {
                remark.clear();
            }
            continue;
        };
        let indent = words.len() - words.trim_start().len();
        let mut inside = String::new();
        for (_, code) in lines.by_ref().take_while(|(_, code)| !code.trim().starts_with("```")) {
            inside.push_str(code.get(indent..).unwrap_or_default());
            inside.push('\n');
        }
        let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
        blocks.push(Block {
            document: document.to_owned(),
            line,
            language,
            remark: std::mem::take(&mut remark),
            text: inside,
        });
    }
    blocks
}

/// The top folder of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and all documents below docs, by name.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The blocks of a document.
pub(crate) fn blocks(document: &Path) -> Vec<Block> {
    blocks_of(document, &fs::read_to_string(root().join(document)).unwrap())
}

#[test]
fn blocks_have_their_language_and_their_remark() {
    let text = "A.\n\n<!-- not run: needs a NIC; file: a.c -->\n```c\nint x;\n```\n\n```\nplain\n```\n";
    let found = blocks_of(Path::new("a.md"), text);
    let [first, second] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((first.line, first.language.as_str(), first.text.as_str()), (4, "c", "int x;\n"));
    assert_eq!((first.excuse(), first.said("file")), (Some("needs a NIC"), Some("a.c")));
    assert_eq!((second.language.as_str(), second.remark.as_str()), ("", ""));
}
