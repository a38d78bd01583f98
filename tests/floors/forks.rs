//! Locks that a fork may catch: which statics programs get with this library, and what a child has of them.
//! docs/decisions/forks.md says why.

use super::assert_no;
use super::source::{code_lines, first_test_line};
use super::tree::{read, sources};

/// What programs load. The command line and the measuring library do not fork while they have a device.
const LOADED: [&str; 4] = ["transport/src/", "device/", "verbs/src/", "verbs/capi/src/"];
/// Preloads: they have no lock at all, and of the floors ask only what has none.
const PRELOADS: [&str; 3] = ["verbs/sysfs/src/", "verbs/rspreload/src/", "verbs/checkpreload/src/"];
/// What can be held, or be half done, when another thread forks. `Once` is a part of other names.
const LOCKS: [&str; 8] = ["Mutex", "RwLock", "Condvar", "LazyLock", "OnceLock", "Once<", "Turn<", "Barrier"];
/// Types of `device/platform/src/outside/fork_generation.rs`: a child makes the value anew, or no lock guards
/// it.
const SAFE: [&str; 2] = ["PerProcess<", "InheritedOnce<"];
/// Each static of such a type: whether a child makes it anew, its name, what the child has; tabs between.
const LIST: &str = "tests/floors/forks.tsv";
/// Aliases of such types.
const ALIASES: [&str; 1] = ["WrittenPath"];

/// The type of a static that begins on this line, from the code after the name; `None`: none begins.
fn type_of_static(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let code = code.strip_prefix("pub ").unwrap_or(code);
    let code = match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => code,
    };
    let (_, after) = code.strip_prefix("static ")?.split_once(": ")?;
    Some(after.split_once(" = ").map_or(after, |(kind, _)| kind))
}

fn has_lock(kind: &str) -> bool {
    LOCKS.iter().any(|lock| kind.contains(lock)) || kind == "Once" || kind.ends_with("::Once")
}

fn is_safe(kind: &str) -> bool {
    SAFE.iter().any(|safe| kind.starts_with(safe))
        || ALIASES.iter().any(|alias| kind == *alias || kind.starts_with(&format!("[{alias};")))
}

#[test]
fn a_fork_catches_no_lock_of_a_static() {
    let mut faults = Vec::new();
    let mut found = 0;
    for source in sources() {
        let path = source.to_string_lossy().into_owned();
        let is_preload = PRELOADS.iter().any(|folder| path.starts_with(folder));
        if !is_preload && !LOADED.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number >= tests_from {
                break;
            }
            let Some(kind) = type_of_static(&line) else { continue };
            found += usize::from(is_safe(kind));
            // A thread has its own thread-locals, and a child has those of the thread that forked.
            if has_lock(kind) && (is_preload || !is_safe(kind)) {
                faults.push(format!(
                    "{path}:{number}: {kind}: a thread may hold it while another one forks; take \
                     `PerProcess` or `InheritedOnce` of device/platform/src/outside/fork_generation.rs \
                     (docs/decisions/forks.md)"
                ));
            }
        }
    }
    assert!(found > 20, "statics are not written as this test reads them: {found}");
    assert_no(faults);
}

/// The list has each static that a child makes anew or takes over, and no other.
#[test]
fn the_list_of_statics_is_that_of_the_code() {
    let list = read(LIST);
    let mut faults = Vec::new();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut rows: Vec<&str> = lines.filter_map(|line| line.split('\t').nth(1)).collect();
    for source in sources() {
        let path = source.to_string_lossy().into_owned();
        if !LOADED.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number >= tests_from {
                break;
            }
            let Some(kind) = type_of_static(&line).filter(|kind| is_safe(kind)) else { continue };
            let name =
                line.split("static ").nth(1).and_then(|rest| rest.split(':').next()).unwrap_or_default();
            let row = format!("{}: {name}", path.replace("/src/", "/"));
            match rows.iter().position(|known| *known == row) {
                Some(index) => drop(rows.swap_remove(index)),
                None => faults.push(format!("{LIST} has no row `{row}` ({kind}, {path}:{number})")),
            }
        }
    }
    faults.extend(rows.iter().map(|row| format!("{LIST}: `{row}` is no static")));
    assert_no(faults);
}

#[test]
fn statics_are_recognised() {
    assert_eq!(type_of_static("static A: Mutex<u8> = Mutex::new(0);"), Some("Mutex<u8>"));
    assert_eq!(
        type_of_static("pub(super) static A: PerProcess<Mutex<u8>> ="),
        Some("PerProcess<Mutex<u8>> =")
    );
    assert_eq!(type_of_static("let a: &'static Mutex<u8> = f();"), None);
    assert!(has_lock("Mutex<u8>") && has_lock("[Once; 2]") == has_lock("Onceler") && has_lock("Once"));
    assert!(
        is_safe("PerProcess<Mutex<u8>> =") && is_safe("[WrittenPath; MAX_DEVICES]") && !is_safe("Mutex<u8>")
    );
}
