//! What files are called.

use std::path::{Path, PathBuf};

use super::crates::{PACKAGES, main_file, targets};
use super::modules::Modules;
use super::tree::{exists, read, root, sources};
use super::{assert_at_most, assert_no, known};

const VAGUE_NAMES: [&str; 8] =
    ["util", "utils", "misc", "helper", "helpers", "manager", "common_utils", "stuff"];

#[test]
fn names_say_what_is_inside() {
    let mut faults = Vec::new();
    for source in sources() {
        for part in source.components() {
            let name = part.as_os_str().to_string_lossy();
            let stem = name.trim_end_matches(".rs");
            if VAGUE_NAMES.contains(&stem) || VAGUE_NAMES.iter().any(|v| stem.ends_with(&format!("_{v}"))) {
                faults.push(format!("{}: \"{stem}\" says nothing", source.display()));
            }
        }
    }
    assert_no(faults);
}

/// A module with a folder is `folder/mod.rs`. (Where a target of Cargo's begins, its modules are beside it.)
#[test]
fn a_module_with_a_folder_is_in_it() {
    let begins: Vec<PathBuf> =
        PACKAGES.iter().flat_map(|package| targets(package)).map(|(file, _)| file).collect();
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| !begins.contains(source)) {
        let folder = source.with_extension("");
        if root().join(&folder).is_dir() {
            faults.push(format!("{} belongs into {}/mod.rs", source.display(), folder.display()));
        }
    }
    assert_at_most(known::FILES_BESIDE_FOLDERS, faults);
}

/// A file of tests among sources is `x_tests.rs` beside `x.rs`, or `tests.rs` beside `mod.rs` or `lib.rs`;
/// `properties.rs` has what proptest checks, and `x_model.rs` is a model of x that every order of its threads
/// is tried with.
#[test]
fn files_of_tests_are_called_so() {
    let is_called_so = |file: &Path| {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let beside_mod = || ["mod.rs", "lib.rs"].iter().any(|name| exists(&file.with_file_name(name)));
        let is_named = ["_tests", "_model"].iter().any(|end| stem.ends_with(end)) || stem == "properties";
        is_named || (stem == "tests" && beside_mod())
    };
    let mut faults = Vec::new();
    for package in PACKAGES {
        let Some(main) = main_file(package) else { continue };
        let modules = Modules::read(&main, false);
        for module in modules.all.iter().filter(|module| module.is_test) {
            let parent = &modules.all[module.parent];
            // What tests bring along has folders of its own, which are no tests: a simulation, a replay.
            let is_tests = !parent.is_test && module.file != parent.file && contains_tests(&module.file);
            if is_tests && !is_called_so(&module.file) {
                faults.push(format!("{} belongs into a file of the name …_tests.rs", module.file.display()));
            }
        }
    }
    assert_at_most(known::TESTS_OTHERWISE, faults);
}

fn contains_tests(file: &Path) -> bool {
    read(file).lines().any(|line| line.starts_with("#[test]"))
}
