//! docs/reference is what the program says of itself: options, variables, statuses, events, counters, faults,
//! profiles. `UPDATE=1 cargo test --test docs_reference` writes the pages anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn reference(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pumice")).arg("reference").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pages_of_the_reference_are_what_the_program_says() {
    let folder = root().join("docs/reference");
    let names: BTreeSet<String> = reference(&[]).lines().map(str::to_owned).collect();
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&folder).unwrap();
        for name in &names {
            fs::write(folder.join(format!("{name}.md")), reference(&[name])).unwrap();
        }
    }
    for name in &names {
        let written = fs::read_to_string(folder.join(format!("{name}.md"))).unwrap_or_default();
        let said = reference(&[name]);
        let first = said.lines().zip(written.lines().chain(std::iter::repeat(""))).find(|(a, b)| a != b);
        assert!(
            written == said,
            "docs/reference/{name}.md is not what the program says (first difference: {first:?}): \
             UPDATE=1 cargo test --test docs_reference writes it anew"
        );
    }
    let there: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    assert_eq!(there, names, "docs/reference has other pages than the program");
}

/// The sources of a folder, without those of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "target" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Names of variables in string literals of the part before the tests.
fn variables_of(text: &str) -> impl Iterator<Item = String> {
    let before = text.split("#[cfg(test)]").next().unwrap_or_default();
    let ends = before.split("\"PUMICE_").skip(1).filter_map(|rest| rest.split_once('"'));
    let is_name =
        |end: &&str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    // Those that the build script reads and sets are none of a run.
    let is_of_the_build = |end: &&str| matches!(*end, "COMMIT" | "ICF") || end.starts_with("BUILT_");
    let names = ends.map(|(end, _)| end).filter(is_name).filter(move |end| !is_of_the_build(end));
    names.map(|end| format!("PUMICE_{end}"))
}

#[test]
fn every_variable_in_the_sources_is_in_the_reference() {
    let page = reference(&["environment"]);
    let mut files = Vec::new();
    for folder in ["src", "device", "verbs/src", "verbs/capi/src", "verbs/perf/src", "verbs/sysfs/src"] {
        sources(&root().join(folder), &mut files);
    }
    let mut seen = 0;
    for file in files {
        for name in variables_of(&fs::read_to_string(&file).unwrap()) {
            seen += 1;
            assert!(
                page.contains(&format!("| `{name}` |")),
                "{}: {name} is not in the reference",
                file.display()
            );
        }
    }
    assert!(seen >= 25, "{seen}");
}
