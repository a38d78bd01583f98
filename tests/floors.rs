//! The architecture as a test: which floor may stand on which, who may use which package, where
//! `unsafe` may be, and what a source file looks like. ARCHITECTURE.md gives the reasons.

use std::fs;
use std::path::{Path, PathBuf};

/// Floors from the bottom: folder, package name, and the packages of ours it may import. A package
/// in a subfolder belongs to the floor of the folder.
const FLOORS: [(&str, &str, &[&str]); 3] = [
    ("transport", "pumice-transport", &[]),
    ("device", "pumice-device", &["pumice-transport"]),
    ("verbs", "pumice-verbs", &["pumice-transport", "pumice-device"]),
];

/// Packages with one door: (package, the only folder whose manifest may name it; "" is the root).
const DOORS: [(&str, &str); 4] =
    [("etherparse", "transport"), ("crc32fast", "transport"), ("socket2", "device"), ("clap", "")];

/// Where `unsafe` may be, tests apart: the edges at which the device meets the kernel and application
/// memory, and the C ABI. A name that ends in `/` covers the folder.
const UNSAFE_ALLOWED: &[&str] = &[
    // Application memory.
    "device/src/memory/",
    // System calls.
    "device/src/address_watch.rs",
    "device/src/cancellation.rs",
    "device/src/event_fd.rs",
    "device/src/event_pipe.rs",
    "device/src/interface.rs",
    "device/src/port/",
    "device/src/system_call.rs",
    "device/src/share/datagram.rs",
    "device/src/share/folder.rs",
    "device/src/share/lock.rs",
    // Tests only: from deep in the code under test to the coroutine that runs it.
    "device/src/share/simulation/world.rs",
    "device/src/share/system/",
    // Registering memory that is not owned is the caller's promise; these hand it on.
    "device/src/hca/memory.rs",
    "device/src/hca/owned_memory.rs",
    "device/src/resources/memory.rs",
    // Memory that the safe API owns.
    "verbs/src/buffer.rs",
    "verbs/src/memory.rs",
    // The C ABI.
    "verbs/capi/",
    // In the place of the C library's functions.
    "verbs/sysfs/",
    "verbs/rspreload/",
];

const MAX_LINES: usize = 700;
const VAGUE_NAMES: [&str; 8] =
    ["util", "utils", "misc", "helper", "helpers", "manager", "common_utils", "stuff"];

#[test]
fn floors_import_only_floors_below() {
    let mut faults = Vec::new();
    for (folder, own_name, allowed) in FLOORS {
        for manifest in files(folder, "toml").iter().filter(|file| file.ends_with("Cargo.toml")) {
            for package in dependencies(&read(manifest)) {
                let ours = package.starts_with("pumice");
                if ours && package != own_name && !allowed.contains(&package.as_str()) {
                    faults.push(format!("{} depends on {package}", manifest.display()));
                }
            }
        }
        let above: Vec<String> = FLOORS
            .iter()
            .map(|(_, name, _)| *name)
            .filter(|name| *name != own_name && !allowed.contains(name))
            .map(|name| name.replace('-', "_"))
            .collect();
        for source in files(folder, "rs") {
            for (number, line) in code_lines(&read(&source)) {
                if above.iter().any(|name| line.contains(name.as_str())) {
                    faults.push(format!("{}:{number} names a floor above: {line}", source.display()));
                }
            }
        }
    }
    assert_no(faults);
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
                let place = if door.is_empty() { "the root package" } else { door };
                faults.push(format!("{}: {package} belongs in {place} only", manifest.display()));
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
fn unsafe_stays_at_the_edges() {
    let mut faults = Vec::new();
    for source in sources() {
        let path = source.to_string_lossy().into_owned();
        if UNSAFE_ALLOWED.iter().any(|edge| path == *edge || (edge.ends_with('/') && path.starts_with(edge)))
        {
            continue;
        }
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number < tests_from && has_unsafe(&line) {
                faults.push(format!("{path}:{number}: {line}"));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut faults = Vec::new();
    for source in sources() {
        let text = read(&source);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in code_lines(&text) {
            let opens = line.contains("unsafe {") || line.contains("unsafe impl");
            if opens && !safety_comment_above(&lines, number) {
                faults.push(format!("{}:{number}: {line}", source.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut faults = Vec::new();
    for source in sources() {
        let count = read(&source).lines().count();
        if count > MAX_LINES {
            faults.push(format!("{} has {count} lines (at most {MAX_LINES})", source.display()));
        }
    }
    assert_no(faults);
}

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

#[test]
fn ignored_tests_say_why() {
    let bare = concat!("#[", "ignore]");
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in code_lines(&read(&source)) {
            if line.contains(bare) {
                faults.push(format!("{}:{number}: write #[ignore = \"reason\"]", source.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn tests_do_not_sleep() {
    let sleep = concat!("thread::", "sleep");
    let mut faults = Vec::new();
    for source in sources() {
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number >= tests_from && line.contains(sleep) {
                faults.push(format!("{}:{number}: wait for the event instead", source.display()));
            }
        }
    }
    assert_no(faults);
}

/// A promise without a test is none: the last column of the threat model's tables of promises names tests.
#[test]
fn the_tests_that_the_threat_model_names_exist() {
    let text = read("docs/threat-model.md");
    let sources: Vec<String> = ["transport", "device", "verbs", "src", "tests"]
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .map(read)
        .collect();
    let (mut faults, mut count) = (Vec::new(), 0);
    let mut in_promises = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_promises = line.starts_with("| Promise | Test |") || in_promises && line.starts_with('|');
        let Some((_, tests)) = line.trim_end_matches(" |").rsplit_once('|').filter(|_| in_promises) else {
            continue;
        };
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && !line.contains("---") && !line.contains("| Test |") {
            faults.push(format!("docs/threat-model.md:{number} names no test"));
        }
        for name in names {
            count += 1;
            if !sources.iter().any(|source| source.contains(&format!("fn {name}("))) {
                faults.push(format!("docs/threat-model.md:{number}: there is no test {name}"));
            }
        }
    }
    assert_no(faults);
    assert!(count > 20, "{count} tests are named");
}

#[test]
fn the_reader_of_manifests_sees_every_form_of_dependency() {
    let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n\
                [dependencies.d]\nversion = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\n\"e\" = { path = \"e\" }\n\
                f = { package = \"pumice-verbs\", path = \"v\" }\n[features]\ng = []\n";
    assert_eq!(dependencies(text), ["a", "b", "d", "e", "f", "pumice-verbs"]);
}

#[test]
fn the_reader_of_sources_skips_comments_and_knows_unsafe() {
    let text = "// unsafe { in words }\nlet a = 1; // unsafe {\nlet b = \"unsafe {\";\nunsafe { f() }\n";
    let found: Vec<usize> =
        code_lines(text).into_iter().filter(|(_, line)| has_unsafe(line)).map(|(n, _)| n).collect();
    assert_eq!(found, [4]);
    assert!(!has_unsafe("#![forbid(unsafe_code)]"));
    assert!(has_unsafe("pub unsafe fn f() {}"));
    let lines = ["// SAFETY: because", "// of that.", "let x = unsafe { y };", "", "unsafe { z };"];
    assert!(safety_comment_above(&lines, 3));
    assert!(!safety_comment_above(&lines, 5));
}

fn assert_no(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

/// The repository: cargo names it, and built by plain `rustc` the test runs in it.
fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Text of a file named relative to the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files with an extension below a folder, relative to the repository, sorted.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
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

/// Every Rust source of the workspace.
fn sources() -> Vec<PathBuf> {
    let found: Vec<PathBuf> =
        ["src", "transport", "device", "verbs", "tests"].iter().flat_map(|f| files(f, "rs")).collect();
    assert!(found.len() > 10, "the sources are not where this test looks for them");
    found
}

/// Every manifest of the workspace.
fn manifests() -> Vec<PathBuf> {
    let below = FLOORS.iter().flat_map(|(folder, _, _)| files(folder, "toml"));
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

/// Where a file's tests begin, counted from 1: at its test module, or at once in a file of tests.
fn first_test_line(source: &Path, text: &str) -> usize {
    let stem = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let in_tests_folder = source.components().any(|part| part.as_os_str() == "tests");
    if in_tests_folder || stem == "tests" || stem.ends_with("_tests") {
        return 1;
    }
    // An attribute on a single import or on `mod tests;` does not begin a module of tests.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let module = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", next] if next.starts_with("mod ") && next.ends_with('{'));
    lines.windows(2).position(module).map_or(usize::MAX, |index| index + 1)
}

fn unquote(key: &str) -> String {
    key.trim().trim_matches(['"', '\'']).to_owned()
}

/// Lines with their numbers from 1, without comments and without the contents of string literals
/// that begin and end on the line.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    let strip = |line: &str| {
        let mut code = String::new();
        let mut in_string = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if in_string => {
                    characters.next();
                }
                '"' => in_string = !in_string,
                '\'' if !in_string && characters.peek() == Some(&'"') => {
                    characters.next();
                }
                '/' if !in_string && characters.peek() == Some(&'/') => break,
                _ if in_string => {}
                _ => code.push(character),
            }
        }
        code.trim().to_owned()
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, strip(line))).collect()
}

/// Whether code (without comments and strings) uses the keyword.
fn has_unsafe(code: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// Whether a SAFETY comment stands on the line (from 1) or above it: reached over other comments,
/// attributes and the beginning of the same statement, but not over an empty line or a finished one.
fn safety_comment_above(lines: &[&str], number: usize) -> bool {
    let mut index = number - 1;
    loop {
        let line = lines.get(index).map_or("", |line| line.trim());
        if line.contains("SAFETY:") {
            return true;
        }
        let Some(above) = index.checked_sub(1) else { return false };
        let above_line = lines.get(above).map_or("", |line| line.trim());
        let comment = above_line.starts_with("//") || above_line.starts_with("#[");
        if above_line.is_empty() || (!comment && above_line.ends_with([';', '}'])) {
            return false;
        }
        index = above;
    }
}
