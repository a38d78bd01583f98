//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository: cargo names it, and built by plain `rustc` the test runs in it.
pub(super) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Text of a file named relative to the repository.
pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether there is a file of this name.
pub(super) fn exists(path: &Path) -> bool {
    root().join(path).is_file()
}

/// Files with an extension below a folder, relative to the repository, sorted.
pub(super) fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root().join(&folder)) else { continue };
        for entry in entries {
            let entry = entry.expect("a folder of the repository can be listed");
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().expect("a file has a type").is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every Rust source of the repository.
pub(super) fn sources() -> Vec<PathBuf> {
    const FOLDERS: [&str; 7] = ["src", "transport", "device", "verbs", "tests", "benches", "fuzz"];
    let found: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| files(folder, "rs")).collect();
    assert!(found.len() > 10, "the sources are not where this test looks for them");
    found
}

/// Every file that git keeps or would take; none without git.
pub(super) fn tracked_files() -> Vec<PathBuf> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let names = git.map(|output| output.stdout).unwrap_or_default();
    let names = String::from_utf8_lossy(&names).into_owned();
    names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}
