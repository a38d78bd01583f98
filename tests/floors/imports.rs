//! Floors import only floors below them, and some packages have one door.

use std::path::PathBuf;

use super::assert_no;
use super::source::code_lines;
use super::tree::{files, read};

/// Floors from the bottom: folder and package. A floor imports floors before it only. A package in a
/// subfolder that has no row belongs to the floor of the folder.
const FLOORS: [(&str, &str); 12] = [
    ("transport", "pumice-transport"),
    ("device/calls", "pumice-calls"),
    ("device/platform", "pumice-platform"),
    ("device/memory", "pumice-memory"),
    ("device/model", "pumice-model"),
    ("device/faults", "pumice-faults"),
    ("device/fabric", "pumice-fabric"),
    ("device/engine", "pumice-engine"),
    ("device/recording", "pumice-recording"),
    ("device/analysis", "pumice-analysis"),
    ("device", "pumice-device"),
    ("verbs", "pumice-verbs"),
];

/// Floors that import none of ours.
const STANDALONE_PACKAGES: [&str; 2] = ["pumice-transport", "pumice-calls"];

/// Beside the floors, with the same rules: folder, package, and the packages of ours that it may import.
const ALLOWED_SIDE_IMPORTS: [(&str, &str, &[&str]); 1] =
    [("fuzz", "pumice-fuzz", &["pumice-transport", "pumice-device", "pumice-world"])];

/// Every floor, and the packages of ours that it may import.
fn floors() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let below = |index: usize| FLOORS.iter().take(index).map(|(_, name)| *name).collect();
    let houses = FLOORS.iter().enumerate().map(|(index, (folder, name))| {
        (*folder, *name, if STANDALONE_PACKAGES.contains(name) { Vec::new() } else { below(index) })
    });
    houses
        .chain(ALLOWED_SIDE_IMPORTS.map(|(folder, name, allowed)| (folder, name, allowed.to_vec())))
        .collect()
}

/// Files of a floor: those of its folder, without the floors that stand in folders of their own below.
fn files_of(floor: &str, ending: &str) -> Vec<PathBuf> {
    let inner = |file: &PathBuf| {
        let deepest = FLOORS.iter().map(|(folder, _)| *folder).filter(|folder| file.starts_with(folder));
        deepest.max_by_key(|folder| folder.len()).is_none_or(|folder| folder == floor)
    };
    files(floor, ending).into_iter().filter(inner).collect()
}

/// Packages with one door: (package, the only folder whose manifest may name it; "" is the root).
const DOORS: [(&str, &str); 4] =
    [("etherparse", "transport"), ("crc32fast", "transport"), ("socket2", "device"), ("clap", "")];

#[test]
fn floors_import_only_floors_below() {
    let mut faults = Vec::new();
    for (folder, own_name, allowed) in floors() {
        for manifest in files_of(folder, "toml").iter().filter(|file| file.ends_with("Cargo.toml")) {
            for package in dependencies(&read(manifest)) {
                let ours = package.starts_with("pumice");
                if ours && package != own_name && !allowed.contains(&package.as_str()) {
                    faults.push(format!("{} depends on {package}", manifest.display()));
                }
            }
        }
        let above: Vec<String> = floors()
            .iter()
            .map(|(_, name, _)| *name)
            .filter(|name| *name != own_name && !allowed.contains(name))
            .map(|name| name.replace('-', "_"))
            .collect();
        for source in files_of(folder, "rs") {
            for (number, line) in code_lines(&read(&source)) {
                if above.iter().any(|name| line.contains(name.as_str())) {
                    faults.push(format!("{}:{number} names a floor above: {line}", source.display()));
                }
            }
        }
    }
    assert_no(faults);
}

/// Call stacks of `pumice check` begin below the device: its frames are known by their crates.
#[test]
fn frames_of_every_floor_are_known_as_own() {
    let list = read("verbs/src/check/stack.rs");
    let names = FLOORS.iter().map(|(_, name)| name.replace('-', "_"));
    // Its table runs before and after calls of the device, and never around them.
    let missing = names.filter(|name| name != "pumice_calls" && !list.contains(&format!("\"{name}::\"")));
    assert_no(missing.map(|name| format!("verbs/src/check/stack.rs does not know {name}")).collect());
}

#[test]
fn packages_with_one_door_come_in_by_it() {
    let mut faults = Vec::new();
    for manifest in manifests() {
        let text = read(&manifest);
        let folder = manifest.components().next().map(|first| first.as_os_str().to_owned());
        for package in dependencies(&text) {
            let Some((_, door)) = DOORS.iter().find(|(name, _)| *name == package) else { continue };
            let at_door = match &folder {
                Some(first) if first == "Cargo.toml" => door.is_empty(),
                Some(first) => first == door,
                None => false,
            };
            if !at_door {
                let owner = if door.is_empty() { "the root package" } else { door };
                faults.push(format!("{}: {package} belongs in {owner} only", manifest.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn transport_is_no_std_and_free_of_unsafe() {
    let text = read("transport/src/lib.rs");
    assert!(text.contains("#![no_std]"), "transport/src/lib.rs lacks #![no_std]");
    assert!(text.contains("#![forbid(unsafe_code)]"), "transport/src/lib.rs lacks #![forbid(unsafe_code)]");
}

#[test]
fn the_reader_of_manifests_sees_every_form_of_dependency() {
    let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n\
                [dependencies.d]\nversion = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\n\"e\" = { path = \
                \"e\" }\n\
                f = { package = \"pumice-verbs\", path = \"v\" }\n[features]\ng = []\n";
    assert_eq!(dependencies(text), ["a", "b", "d", "e", "f", "pumice-verbs"]);
}

/// Every manifest of the workspace.
fn manifests() -> Vec<PathBuf> {
    let below = floors().into_iter().flat_map(|(folder, _, _)| files_of(folder, "toml"));
    let mut found: Vec<PathBuf> = below.filter(|file| file.ends_with("Cargo.toml")).collect();
    assert!(found.len() >= FLOORS.len(), "the manifests are not where this test looks for them");
    found.push(PathBuf::from("Cargo.toml"));
    found
}

/// Packages that a manifest names in any of its dependency tables (not in the workspace's table,
/// which only gives versions), in order; a renamed package counts under both names.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_table = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            let workspace = table.starts_with("workspace");
            in_table = !workspace && table.ends_with("dependencies");
            let named = table.rsplit_once("dependencies.").filter(|_| !workspace);
            found.extend(named.map(|(_, package)| unquote(package)));
        } else if in_table && !line.is_empty() && !line.starts_with('#') {
            let key = line.split(['=', '.']).next().unwrap_or_default();
            found.push(unquote(key));
            let renamed = line.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
            found.extend(renamed.map(str::to_owned));
        }
    }
    found
}

fn unquote(key: &str) -> String {
    key.trim().trim_matches(['"', '\'']).to_owned()
}
