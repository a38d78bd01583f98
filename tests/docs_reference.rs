//! The reference is what the program says of itself: options, variables, statuses, errnos, events, counters,
//! faults, profiles. The book has its pages by `docs/reference.py`.

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

/// The names of the pages.
fn names() -> Vec<String> {
    reference(&[]).lines().map(str::to_owned).collect()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// What the items of an array say under this key.
fn all_remarks<'a>(items: &'a serde_json::Value, key: &str) -> Vec<&'a str> {
    items.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

/// Each page is written into a folder of the target folder, as the book has it.
#[test]
fn pages_are_the_same_each_time_and_their_links_lead_somewhere() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference");
    fs::create_dir_all(&folder).unwrap();
    let names = names();
    let mut links = 0;
    for name in &names {
        let page = reference(&[name]);
        assert!(page.starts_with("# ") && page.lines().count() > 5, "{name}: {page}");
        assert!(page == reference(&[name]), "{name}: the page differs from run to run");
        fs::write(folder.join(format!("{name}.md")), &page).unwrap();
        for target in
            page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            links += 1;
            let path = target.split('#').next().unwrap();
            let is_there = path.is_empty()
                || path.strip_prefix("../").is_some_and(|path| root().join("docs").join(path).is_file())
                || path.strip_suffix(".md").is_some_and(|page| names.iter().any(|name| name == page));
            assert!(is_there, "{name}: {target} leads nowhere");
        }
    }
    assert!(links > 5, "{links}");
}

#[test]
fn the_book_has_each_page_of_the_reference_and_no_file_of_one_is_kept() {
    let script = fs::read_to_string(root().join("docs/reference.py")).unwrap();
    for name in names() {
        assert!(
            script.contains(&format!("\"{name}\",\n")),
            "docs/reference.py does not have the page {name}"
        );
        let file = format!("docs/reference/{name}.md");
        assert!(!root().join(&file).exists(), "{file}: the program prints it, so remove the file");
    }
}

#[test]
fn each_command_and_each_option_is_in_the_reference() {
    let page = reference(&["commands"]);
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    let mut seen = 0;
    for section in &sections {
        let command = section.lines().next().unwrap();
        let help = Command::new(env!("CARGO_BIN_EXE_pumice"))
            .args(command.split(' ').skip(1))
            .arg("--help")
            .output()
            .unwrap();
        assert!(help.status.success(), "{command}");
        let help = String::from_utf8(help.stdout).unwrap();
        let words = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let options = words
            .flat_map(|line| line.split([' ', ',', '=', '[']).filter(|word| word.starts_with("--")).take(1));
        for option in options.filter(|option| !["--help", "--version"].contains(option)) {
            seen += 1;
            let has =
                |text: &str| text.contains(&format!("`{option}`")) || text.contains(&format!("`{option} "));
            let has_form = |text: &str| {
                has(text) || text.contains(&format!("`{option}=")) || text.contains(&format!("`{option}["))
            };
            let of_run = || sections.iter().find(|section| section.starts_with("pumice run\n")).copied();
            let is_there = has_form(section)
                || section.contains("It has all options of [pumice run]") && of_run().is_some_and(has_form);
            assert!(is_there, "{command} {option} is not in the reference");
        }
    }
    assert!(seen > 150, "{seen}");
    let help = Command::new(env!("CARGO_BIN_EXE_pumice")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for command in commands.filter(|word| word.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())) {
        assert!(page.contains(&format!("\n## pumice {command}\n")), "{command} is not in the reference");
    }
}

#[test]
fn each_status_errno_event_counter_fault_plan_and_personality_is_in_the_reference() {
    let explained = json(&["explain"]);
    let pages = ["statuses", "errnos", "events", "counters"].map(|name| reference(&[name])).concat();
    let known = explained.as_array().unwrap().iter().filter(|entry| entry["kind"] != "check");
    let mut seen = 0;
    for name in known.map(|entry| entry["name"].as_str().unwrap()) {
        seen += 1;
        let has = |end: &str| pages.contains(&format!("# {name}{end}"));
        assert!(has("\n") || has(" ("), "{name} is not in the reference");
    }
    assert!(seen > 150, "{seen}");
    let faults = reference(&["faults"]);
    for kind in all_remarks(&json(&["fault", "kinds"])["kinds"], "name") {
        assert!(faults.contains(&format!("\n## {kind}\n")), "the fault {kind} is not in the reference");
    }
    for plan in all_remarks(&json(&["fault", "plans"]), "name") {
        assert!(faults.contains(&format!("\n| `{plan}` |")), "the plan {plan} is not in the reference");
    }
    let personalities = reference(&["personalities"]);
    for name in all_remarks(&json(&["devices", "--personalities"]), "name") {
        assert!(personalities.contains(&format!("\n| `{name}` |")), "{name} is not in the reference");
    }
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
