//! Each recipe of CONTRIBUTING.md that adds something has an example, which scripts/checks/recipes.sh builds.

use std::path::{Path, PathBuf};

use super::assert_no;
use super::tree::{exists, files, read, sources};

/// Where the examples are.
const FOLDER: &str = "tests/recipes";

/// The recipes: the words behind "Add a", and the examples that each names.
fn recipes(text: &str) -> Vec<(&str, Vec<&str>)> {
    let parts = text.split("\n### ").skip(1);
    let adding = parts.filter(|part| part.starts_with("Add a ") || part.starts_with("Add an "));
    let names = |part| {
        let links = str::split(part, "](tests/recipes/").skip(1);
        links.filter_map(|rest| rest.split_once(".patch)").map(|(name, _)| name)).collect()
    };
    adding.map(|part| (part.lines().next().unwrap_or_default(), names(part))).collect()
}

#[test]
fn each_recipe_has_an_example_and_each_example_a_recipe() {
    let text = read("CONTRIBUTING.md");
    let recipes = recipes(&text);
    let mut faults = Vec::new();
    for (title, names) in &recipes {
        match names[..] {
            [name] if exists(&Path::new(FOLDER).join(format!("{name}.patch"))) => {}
            [name] => faults.push(format!("{title}: there is no {FOLDER}/{name}.patch")),
            _ => faults.push(format!("{title}: it names {} examples, and not one", names.len())),
        }
    }
    for patch in files(FOLDER, "patch") {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let count = recipes.iter().filter(|(_, names)| names.contains(&name.as_str())).count();
        if count != 1 {
            faults.push(format!("{}: {count} recipes have it", patch.display()));
        }
    }
    assert!(recipes.len() >= 10, "the recipes are not where this test looks for them");
    assert_no(faults);
}

/// scripts/checks/recipes.sh runs the command behind "its test:". The test is in the example, or it is one
/// that the example gives a row. An example that is a page has none: tests/docs.rs runs pages.
#[test]
fn each_example_names_its_test() {
    let text = read("CONTRIBUTING.md");
    let mut faults = Vec::new();
    for (title, names) in recipes(&text) {
        let [name] = names[..] else { continue };
        let part = text.split("\n### ").find(|part| part.starts_with(title));
        let command =
            part.and_then(|part| part.split_once("; its test: `cargo test -p ")?.1.split('`').next());
        let filter = command.and_then(|command| command.split_whitespace().last()).unwrap_or_default();
        let is_known = |source: &PathBuf| read(source).contains(&format!("fn {filter}"));
        let has_test = !filter.is_empty()
            && (read(format!("{FOLDER}/{name}.patch")).contains(filter) || sources().iter().any(is_known));
        if !has_test && name != "page" {
            faults.push(format!("{title}: the line of its example names no test that there is: {command:?}"));
        }
    }
    assert_no(faults);
}

#[test]
fn recipes_and_their_examples_are_recognised() {
    let text = "## Recipes\n### Add a b\n\nSee [b.patch](tests/recipes/b.patch).\n### Cite c\n### Add an e\n";
    assert_eq!(recipes(text), [("Add a b", vec!["b"]), ("Add an e", vec![])]);
}
