//! What stands at the door: actions of others are pinned, and each folder has a recipe and a reviewer.

use std::path::Path;

use super::assert_no;
use super::tree::{read, tracked_files};

/// Lines `uses: ACTION` that name no commit of it, or do not say which version the commit is.
fn unpinned(text: &str) -> Vec<&str> {
    let is_pinned = |action: &str| {
        let (commit, version) = match action.split_once('@').and_then(|(_, rest)| rest.split_once(" # v")) {
            Some(parts) => parts,
            None => return action.starts_with("./"),
        };
        let is_hexadecimal = |digit| matches!(digit, '0'..='9' | 'a'..='f');
        commit.len() == 40 && commit.chars().all(is_hexadecimal) && version.split('.').count() == 3
    };
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix("uses: ")).filter(|action| !is_pinned(action)).collect()
}

#[test]
fn actions_are_pinned_by_their_commits() {
    let mut faults = Vec::new();
    let of_github = |file: &&std::path::PathBuf| {
        file.starts_with(".github") && file.extension().is_some_and(|end| end == "yml")
    };
    let files = tracked_files();
    assert!(
        files.iter().filter(of_github).count() >= 5,
        "the workflows are not where this test looks for them"
    );
    for file in files.iter().filter(of_github) {
        let text = read(file);
        faults.extend(unpinned(&text).into_iter().map(|action| {
            format!(
                "{}: {action}: write ACTION@COMMIT # v1.2.3, so that no one can change what runs",
                file.display()
            )
        }));
    }
    assert_no(faults);
}

/// The folders of the table of recipes in CONTRIBUTING.md.
fn folders(text: &str) -> Vec<String> {
    let table = text.split_once("\n| Folder | Recipes | Who reviews |\n").map_or("", |(_, rest)| rest);
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn each_folder_has_a_recipe_and_a_reviewer() {
    let folders = folders(&read("CONTRIBUTING.md"));
    assert!(folders.len() >= 15, "the table is not where this test looks for it: {folders:?}");
    let files = tracked_files();
    let mut faults: Vec<String> = folders
        .iter()
        .filter(|folder| !files.iter().any(|file| file.starts_with(folder)))
        .map(|folder| format!("CONTRIBUTING.md: there is no folder {folder}"))
        .collect();
    // Files at the top belong to all, and the one of a crate that has others below it, to that crate.
    let in_folder = files.iter().filter(|file| file.components().count() > 1);
    for file in in_folder.filter(|file| !folders.iter().any(|folder| file.starts_with(folder))) {
        if file.parent() != Some(Path::new("device")) {
            faults.push(format!("CONTRIBUTING.md: no row of the table of recipes has {}", file.display()));
        }
    }
    assert_no(faults);
}

#[test]
fn pins_and_rows_are_recognised() {
    let commit = "11d5960a326750d5838078e36cf38b85af677262";
    let text =
        format!("- uses: a/b@{commit} # v4.4.0\n  uses: c/d@v4\n- uses: ./here\n- uses: e/f@{commit}\n");
    assert_eq!(unpinned(&text), ["c/d@v4".to_owned(), format!("e/f@{commit}")]);
    let text =
        "\n| Folder | Recipes | Who reviews |\n|---|---|---|\n| `a`, `b/c` | `no` | d |\n\n| `e` | f | g |\n";
    assert_eq!(folders(text), ["a", "b/c"]);
}
