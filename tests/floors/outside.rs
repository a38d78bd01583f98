//! What is loaded into programs learns of time, chance, processes, the environment and files through one
//! gate.

use super::assert_no;
use super::source::{code_lines, first_test_line};
use super::tree::{read, sources};

/// What programs load.
const LOADED: [&str; 6] = [
    "device/",
    "transport/src/",
    "verbs/src/",
    "verbs/capi/src/",
    "verbs/rspreload/src/",
    "verbs/checkpreload/src/",
];

/// The gate.
const GATE: &str = "device/platform/src/outside/";

/// Parts of sources that belong to tests: models of threads, and a simulated kernel.
const OF_TESTS: [&str; 3] = [
    "device/engine/src/driver/handover_model.rs",
    "device/platform/src/spin_lock_model.rs",
    "device/fabric/src/simulation/",
];

/// What nothing else names. A word, or a part of a path; `fs::` stands for the functions of std::fs.
const DIRECT: [&str; 35] = [
    "Instant::now",
    "SystemTime::now",
    "clock_gettime",
    "gettimeofday",
    "elapsed",
    "thread::sleep",
    "nanosleep",
    "yield_now",
    "thread::park",
    "wait_timeout",
    "wait_timeout_while",
    "recv_timeout",
    "RandomState",
    "getrandom",
    "process::id",
    "getpid",
    "getppid",
    "gettid",
    "thread::current",
    "thread::spawn",
    "thread::Builder",
    "available_parallelism",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "env::var",
    "env::var_os",
    "env::vars",
    "env::args",
    "env::args_os",
    "env::temp_dir",
    "env::current_exe",
    "File::open",
    "OpenOptions::new",
];

/// A function that is in the place of the C library's of its name, and asks nothing.
const CALL_REPLACEMENTS: (&str, &str) = ("verbs/checkpreload/src/calls.rs", "nanosleep");

/// Whether a line of code has a name as a whole word.
fn has(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (code[..at].chars().next_back(), code[at + name.len()..].chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a line of code calls a function of std::fs.
fn calls_of_files(code: &str) -> bool {
    code.match_indices("fs::").any(|(at, _)| {
        let before = code[..at].trim_end_matches("std::").chars().next_back();
        let name = &code[at + 4..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(name.len());
        end > 0
            && name[end..].starts_with('(')
            && !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[test]
fn the_operating_system_is_called_through_its_gate() {
    let mut faults = Vec::new();
    let mut called = 0;
    for source in sources() {
        let path = source.to_string_lossy().into_owned();
        let is_loaded = LOADED.iter().any(|folder| path.starts_with(folder)) && path.contains("/src/");
        let is_of_tests = OF_TESTS.iter().any(|part| path.starts_with(part));
        if !is_loaded || path.starts_with(GATE) || is_of_tests {
            continue;
        }
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number >= tests_from {
                break;
            }
            let code = line.trim_start();
            called += usize::from(code.contains("outside::"));
            if code.starts_with("use ") || code.starts_with("pub use ") || code.starts_with("pub(crate) use ")
            {
                continue;
            }
            let is_direct = |name: &&&str| (path.as_str(), **name) != CALL_REPLACEMENTS && has(code, name);
            let direct = DIRECT.iter().find(is_direct).copied();
            if let Some(name) = direct.or_else(|| calls_of_files(code).then_some("fs::")) {
                faults.push(format!("{path}:{number}: {name}: ask pumice_platform::outside instead"));
            }
        }
    }
    assert!(called > 100, "the gate is not asked as this test reads it: {called}");
    assert_no(faults);
}

#[test]
fn names_are_found_as_words_only() {
    assert!(has("let now = Instant::now();", "Instant::now"));
    assert!(!has("my_getpid()", "getpid") && !has("yield_now_and_then", "yield_now"));
    assert!(calls_of_files("std::fs::read(path)") && calls_of_files("fs::remove_file(path)"));
    assert!(!calls_of_files("rustix::fs::flock(file)") && !calls_of_files("fs::File::from(file)"));
}
