//! Rooms import only rooms below them, and no files of a crate import each other in a circle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::crates::{PACKAGES, main_file};
use super::graph::{circles, graph};
use super::modules::Modules;
use super::rooms::{is_root, room_of, table};
use super::tree::{files, read, root};
use super::{assert_at_most, assert_no, known};

/// The lines between which docs/rooms.md has the table of rooms.
const BEGIN: &str = "<!-- rooms -->\n";
const END: &str = "<!-- /rooms -->\n";

#[test]
fn rooms_import_only_rooms_below() {
    let mut faults = Vec::new();
    for package in PACKAGES {
        let Some(main) = main_file(package) else { continue };
        for (from, used) in graph(&Modules::read(&main, false)) {
            let Some((house, Some(own))) = room_of(&from) else { continue };
            for to in used {
                let above = match room_of(&to) {
                    Some((_, Some(other))) => other > own,
                    Some((_, None)) => is_root(&to, house),
                    None => false,
                };
                if above {
                    faults.push(format!("{} uses {}, which is above it", from.display(), to.display()));
                }
            }
        }
    }
    assert_at_most(known::UPWARD, faults);
}

#[test]
fn every_file_stands_in_a_room() {
    let mut faults = Vec::new();
    for source in files("", "rs") {
        if let Some((house, None)) = room_of(&source)
            && !is_root(&source, house)
        {
            faults.push(format!("{} is in no room of tests/floors/rooms.rs", source.display()));
        }
    }
    assert_at_most(known::WITHOUT_ROOM, faults);
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut faults = Vec::new();
    for package in PACKAGES {
        let Some(main) = main_file(package) else { continue };
        let found = circles(&graph(&Modules::read(&main, false)));
        let known =
            known::IN_CIRCLES.iter().find(|(name, _)| *name == package).map_or(0, |(_, count)| *count);
        let count: usize = found.iter().map(Vec::len).sum();
        if count > known {
            let shown = found.iter().map(|circle| {
                circle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
            });
            let shown: Vec<String> = shown.collect();
            faults
                .push(format!("{count} files in circles, {known} are known:\n    {}", shown.join("\n    ")));
        }
    }
    assert_no(faults);
}

#[test]
fn no_folders_import_each_other() {
    let mut faults = Vec::new();
    for package in PACKAGES {
        let Some(main) = main_file(package) else { continue };
        let used = graph(&Modules::read(&main, false));
        let edges: BTreeMap<(PathBuf, PathBuf), &PathBuf> = used
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)))
            .filter_map(|(from, to)| Some((folders_apart(from, to)?, from)))
            .collect();
        for ((one, other), file) in &edges {
            if let Some(back) = edges.get(&(other.clone(), one.clone())).filter(|_| one < other) {
                faults.push(format!(
                    "{} uses {}, and {} uses {}",
                    file.display(),
                    other.display(),
                    back.display(),
                    one.display()
                ));
            }
        }
    }
    assert_no(faults);
}

/// Returns the folders at which the paths of two files part, if both part at a folder.
fn folders_apart(one: &Path, other: &Path) -> Option<(PathBuf, PathBuf)> {
    let shared = one.iter().zip(other.iter()).take_while(|(one, other)| one == other).count();
    let folder = |file: &Path| -> Option<PathBuf> {
        let below = file.iter().skip(shared).nth(1).is_some();
        below.then(|| file.iter().take(shared + 1).collect())
    };
    Some((folder(one)?, folder(other)?))
}

#[test]
fn the_page_of_rooms_shows_the_rooms() {
    let text = read("docs/rooms.md");
    let Some((before, (shown, after))) =
        text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)))
    else {
        return;
    };
    if shown.trim() == table().trim() {
        return;
    }
    if std::env::var_os("PUMICE_WRITE_ROOMS").is_some() {
        let whole = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
        std::fs::write(root().join("docs/rooms.md"), whole).expect("the file can be written");
        return;
    }
    panic!(
        "the table of docs/rooms.md is not that of tests/floors/rooms.rs: run \
         PUMICE_WRITE_ROOMS=1 cargo test --test floors"
    );
}

#[test]
fn circles_are_found_and_re_exports_are_followed() {
    let graph = [("a", vec!["b", "d"]), ("b", vec!["c"]), ("c", vec!["a"]), ("d", vec![])];
    let graph = graph
        .into_iter()
        .map(|(from, to)| {
            (Path::new(from).to_owned(), to.iter().map(|to| Path::new(to).to_owned()).collect())
        })
        .collect();
    let found = circles(&graph);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0], ["a", "b", "c"].map(|name| Path::new(name).to_owned()));
}
