//! The crates of the repository and the files from which Cargo compiles them.

use std::path::{Path, PathBuf};

use super::tree::{exists, files, read};

/// Folders of packages, "" for the repository itself.
pub(super) const PACKAGES: [&str; 21] = [
    "",
    "transport",
    "device/calls",
    "device/platform",
    "device/memory",
    "device/model",
    "device/faults",
    "device/fabric",
    "device/engine",
    "device/recording",
    "device/analysis",
    "device",
    "verbs",
    "verbs/perf",
    "verbs/capi",
    "verbs/sysfs",
    "verbs/rspreload",
    "verbs/checkpreload",
    "verbs/carry",
    "verbs/world",
    "fuzz",
];

/// The file that a package's library or program begins with.
pub(super) fn main_file(package: &str) -> Option<PathBuf> {
    ["src/lib.rs", "src/main.rs"].iter().map(|file| Path::new(package).join(file)).find(|file| exists(file))
}

/// Every file with which Cargo begins a target of a package; true: a test, a benchmark, an example or a build
/// script.
pub(super) fn targets(package: &str) -> Vec<(PathBuf, bool)> {
    let folder = Path::new(package);
    let mut found: Vec<(PathBuf, bool)> = main_file(package).map(|file| (file, false)).into_iter().collect();
    for (name, is_test) in [("tests", true), ("benches", true), ("examples", true), ("src/bin", false)] {
        let target_folder = folder.join(name);
        for file in files(&target_folder.to_string_lossy(), "rs") {
            let parent = file.parent();
            let is_main = file.file_name().is_some_and(|file| file == "main.rs")
                && parent.and_then(Path::parent) == Some(&target_folder);
            if parent == Some(&target_folder) || is_main {
                found.push((file, is_test));
            }
        }
    }
    for build in ["build.rs", "src/build.rs"].map(|file| folder.join(file)) {
        if exists(&build) {
            found.push((build, true));
        }
    }
    let manifest = read(folder.join("Cargo.toml"));
    let named = manifest.lines().filter_map(|line| line.trim().strip_prefix("path = \"")?.strip_suffix('"'));
    for file in named.filter(|file| file.ends_with(".rs")).map(|file| folder.join(file)) {
        if !found.iter().any(|(known, _)| *known == file) {
            found.push((file, true));
        }
    }
    found
}
