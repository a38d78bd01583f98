//! The modules of a crate, as `mod` declarations make them out of files, and what each names of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::token::{Token, TokenKind, tokens};
use super::tree::read;

/// A module: a file or a part of one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The file that it is in.
    pub(super) file: PathBuf,
    /// The module around it; that of the root is the root.
    pub(super) parent: usize,
    /// Compiled for tests only.
    pub(super) is_test: bool,
    pub(super) children: BTreeMap<String, usize>,
    /// What it defines by name.
    pub(super) items: BTreeSet<String>,
    /// Macros that it defines.
    pub(super) macros: BTreeSet<String>,
    /// What it imports or re-exports: path, name here (`*` for all), whether others see it.
    pub(super) imports: Vec<Import>,
    /// Paths of two and more parts in its code.
    pub(super) paths: Vec<Vec<String>>,
    /// Every word of its code outside of imports.
    pub(super) words: BTreeSet<String>,
    /// Macros that it calls by a single name.
    pub(super) calls: BTreeSet<String>,
}

/// One leaf of a `use`.
#[derive(Debug, Clone)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) name: String,
    pub(super) is_public: bool,
}

/// A crate's modules; the first is its root.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
    /// `mod` declarations without a file.
    pub(super) missing: Vec<String>,
    /// Files that `include!` names.
    pub(super) included: Vec<PathBuf>,
}

impl Modules {
    /// Reads a crate from its root file.
    pub(super) fn read(root: &Path, is_test: bool) -> Modules {
        let mut modules = Modules::default();
        modules.all.push(Module { file: root.to_owned(), is_test, ..Module::default() });
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        modules.read_file(0, &folder);
        modules
    }

    /// Reads the file of a module, whose children are in `folder`.
    fn read_file(&mut self, module: usize, folder: &Path) {
        let file = self.all[module].file.clone();
        let source = tokens(&read(&file));
        let end = source.len();
        self.read_part(&source, 0, end, module, folder, 0);
    }

    /// Reads the tokens from `at` to `end`; those before `test_until` are for tests only.
    fn read_part(
        &mut self,
        source: &[Token],
        mut at: usize,
        end: usize,
        module: usize,
        folder: &Path,
        mut test_until: usize,
    ) {
        let mut path_attribute = None;
        while at < end {
            let is_test = self.all[module].is_test || at < test_until;
            let token = &source[at];
            if token.is('#') && source.get(at + 1).is_some_and(|next| next.is('[')) {
                let close = closing(source, at + 1, end);
                let inside = &source[at + 2..close.min(end)];
                if is_for_tests(inside) {
                    test_until = test_until.max(item_end(source, close + 1, end));
                } else if !is_test {
                    self.note_attribute(source, at + 2, close.min(end), module);
                }
                if let [name, _, Token { kind: TokenKind::Text(text), .. }] = inside
                    && name.is_word("path")
                {
                    path_attribute = Some(text.clone());
                }
                at = close + 1;
                continue;
            }
            let Some(word) = token.word() else {
                at += 1;
                continue;
            };
            let next = source.get(at + 1);
            match word {
                "mod" => {
                    let name = next.and_then(Token::word).unwrap_or_default().to_owned();
                    let opens = source.get(at + 2).is_some_and(|token| token.is('{'));
                    let child = self.add(module, &name, is_test);
                    let path = path_attribute.take();
                    if opens {
                        let close = closing(source, at + 2, end);
                        self.read_part(source, at + 3, close, child, &folder.join(&name), 0);
                        at = close + 1;
                    } else {
                        self.read_child(module, child, &name, folder, path);
                        at += 3;
                    }
                }
                "use" if next.is_some_and(|next| !next.is('<')) => {
                    let stop =
                        (at..end).find(|&index| source[index].is(';')).unwrap_or(end.saturating_sub(1));
                    if !is_test {
                        let is_public = is_public(source, at);
                        let mut leaves = Vec::new();
                        leaves_of(source, &mut (at + 1), stop, &[], &mut leaves);
                        let import = |(path, name)| Import { path, name, is_public };
                        self.all[module].imports.extend(leaves.into_iter().map(import));
                    }
                    at = stop + 1;
                }
                "include" if next.is_some_and(|next| next.is('!')) => {
                    if let Some(Token { kind: TokenKind::Text(text), .. }) = source.get(at + 3) {
                        let path = self.all[module].file.parent().unwrap_or(Path::new("")).join(text);
                        self.included.push(normal(&path));
                    }
                    at += 3;
                }
                _ => {
                    let length = path_length(source, at, end);
                    if !is_test {
                        self.note(source, at, length, module);
                    }
                    at += length;
                }
            }
        }
    }

    /// Notes a path of so many tokens, which may be a single word.
    fn note(&mut self, source: &[Token], at: usize, length: usize, module: usize) {
        let words: Vec<String> =
            source[at..at + length].iter().filter_map(Token::word).map(str::to_owned).collect();
        let [first, ..] = &words[..] else { return };
        let into = &mut self.all[module];
        let before = at.checked_sub(1).and_then(|index| source.get(index));
        const DEFINING: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        if words.len() == 1 && before.and_then(Token::word).is_some_and(|word| DEFINING.contains(&word)) {
            into.items.insert(first.clone());
        } else if words.len() == 1
            && before.is_some_and(|mark| mark.is('!'))
            && at >= 2
            && source[at - 2].is_word("macro_rules")
        {
            into.macros.insert(first.clone());
            into.items.insert(first.clone());
        } else if words.len() == 1 && source.get(at + 1).is_some_and(|mark| mark.is('!')) {
            into.calls.insert(first.clone());
        }
        into.words.insert(first.clone());
        if words.len() > 1 {
            into.paths.push(words);
        }
    }

    /// Notes the paths of an attribute, such as `value_parser = super::rows::names()`.
    fn note_attribute(&mut self, source: &[Token], mut at: usize, end: usize, module: usize) {
        while at < end {
            let length = if source[at].word().is_some() { path_length(source, at, end) } else { 1 };
            if length > 1 {
                self.note(source, at, length, module);
            }
            at += length;
        }
    }

    fn add(&mut self, parent: usize, name: &str, is_test: bool) -> usize {
        let file = self.all[parent].file.clone();
        self.all.push(Module { file, parent, is_test, ..Module::default() });
        let child = self.all.len() - 1;
        self.all[parent].children.insert(name.to_owned(), child);
        child
    }

    /// Finds and reads the file of a module that is declared without a body.
    fn read_child(
        &mut self,
        parent: usize,
        child: usize,
        name: &str,
        folder: &Path,
        attribute: Option<String>,
    ) {
        let beside = self.all[parent].file.parent().unwrap_or(Path::new("")).to_owned();
        let candidates = match attribute {
            Some(path) => vec![normal(&beside.join(path))],
            None => vec![folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")],
        };
        let Some(file) = candidates.iter().find(|file| super::tree::exists(file)) else {
            self.missing.push(format!("{}: mod {name} has no file", self.all[parent].file.display()));
            return;
        };
        let inner = match file.file_name().is_some_and(|name| name == "mod.rs") {
            true => file.parent().unwrap_or(Path::new("")).to_owned(),
            false => file.with_extension(""),
        };
        self.all[child].file = file.clone();
        self.read_file(child, &inner);
    }
}

/// A path without `.` and `..` in it.
fn normal(path: &Path) -> PathBuf {
    let mut parts: Vec<_> = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_str() {
            Some("..") => drop(parts.pop()),
            Some(".") => {}
            _ => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// The index of the bracket that closes the one at `open`.
fn closing(source: &[Token], open: usize, end: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in source.iter().enumerate().take(end).skip(open) {
        match token.kind {
            TokenKind::Mark('(' | '[' | '{') => depth += 1,
            TokenKind::Mark(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    end
}

/// Whether an attribute says that its item is for tests only.
fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().filter_map(Token::word).collect();
    // Proofs are tests that Kani compiles as well.
    let is_proof = matches!(words[..], ["cfg", "any", "test", "kani"]);
    is_proof || matches!(words[..], ["test"] | ["cfg", "test"] | ["cfg", "all", "test", ..])
}

/// Behind the item, field, arm or statement that begins at `at`.
fn item_end(source: &[Token], at: usize, end: usize) -> usize {
    let mut index = at;
    // Other attributes, then visibility.
    while source.get(index).is_some_and(|token| token.is('#')) {
        index = closing(source, index + 1, end) + 1;
    }
    let mut ends_at_block = true;
    while index < end {
        match &source[index].kind {
            TokenKind::Mark(';' | ',') => return index + 1,
            TokenKind::Mark('{') => {
                index = closing(source, index, end);
                if ends_at_block {
                    return index + 1;
                }
            }
            TokenKind::Mark('(' | '[') => index = closing(source, index, end),
            TokenKind::Mark(')' | ']' | '}') => return index,
            TokenKind::Word(word) if matches!(word.as_str(), "use" | "const" | "static" | "let") => {
                ends_at_block = false;
            }
            TokenKind::Word(word) if word == "fn" => ends_at_block = true,
            _ => {}
        }
        index += 1;
    }
    end
}

fn is_public(source: &[Token], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    if source[before].is_word("pub") {
        return true;
    }
    source[before].is(')')
        && source[..before]
            .iter()
            .rposition(|token| token.is('('))
            .is_some_and(|open| open.checked_sub(1).is_some_and(|index| source[index].is_word("pub")))
}

/// The tokens of a path `a::b::c` that begins at `at`, which is a word.
fn path_length(source: &[Token], at: usize, end: usize) -> usize {
    let mut length = 1;
    while at + length + 1 < end
        && source[at + length].kind == TokenKind::Separator
        && source[at + length + 1].word().is_some()
    {
        length += 2;
    }
    length
}

/// The leaves of a tree of imports, with the names that they get.
fn leaves_of(
    source: &[Token],
    at: &mut usize,
    end: usize,
    before: &[String],
    leaves: &mut Vec<(Vec<String>, String)>,
) {
    // The path of the leaf that is being read; none when it is complete.
    let mut path: Option<Vec<String>> = None;
    while *at < end {
        let token = &source[*at];
        *at += 1;
        match &token.kind {
            TokenKind::Word(word) if word == "as" => {
                let name = source[*at].word().unwrap_or("_").to_owned();
                *at += 1;
                leaves.extend(path.take().map(|path| (path, name)));
            }
            TokenKind::Word(word) => {
                let path = path.get_or_insert_with(|| before.to_vec());
                if word != "self" || path.is_empty() {
                    path.push(word.clone());
                }
            }
            TokenKind::Mark('*') => {
                leaves.push((path.take().unwrap_or_else(|| before.to_vec()), "*".to_owned()));
            }
            TokenKind::Mark('{') => {
                let inner = path.take().unwrap_or_else(|| before.to_vec());
                leaves_of(source, at, end, &inner, leaves);
            }
            TokenKind::Mark(',') => leaves.extend(path.take().map(named)),
            TokenKind::Mark('}') => break,
            _ => {}
        }
    }
    leaves.extend(path.take().map(named));
}

fn named(path: Vec<String>) -> (Vec<String>, String) {
    let name = path.last().cloned().unwrap_or_default();
    (path, name)
}

#[test]
fn imports_are_taken_apart() {
    let source = tokens("a::{b, c::{self, d as e,}, f::*};");
    let mut leaves = Vec::new();
    leaves_of(&source, &mut 0, source.len() - 1, &[], &mut leaves);
    let shown: Vec<String> =
        leaves.iter().map(|(path, name)| format!("{}={name}", path.join("::"))).collect();
    assert_eq!(shown, ["a::b=b", "a::c=c", "a::c::d=e", "a::f=*"]);
}
