//! Trees for /sys that earlier programs had. Other interfaces, addresses or options make another tree, and
//! each takes half a megabyte, in memory where the runtime folder is.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Trees that stay although no process uses them, the latest ones.
const KEPT: usize = 16;
/// Trees that one run removes: it must not take long.
const MOST_REMOVED: usize = 16;
/// The lock of those who begin to use a tree, shared, and of those who remove some.
const LOCK: &str = "sysfs.lock";
/// How names of trees begin.
const PREFIX: &str = "sysfs-";

/// Says to those who remove trees that this process begins to use one: until it becomes the program, whose
/// environment names the tree.
pub(super) fn hold(runtime: &Path) {
    let lock = File::options().create(true).append(true).open(runtime.join(LOCK));
    if let Ok(lock) = lock
        && lock.lock_shared().is_ok()
    {
        // It is closed on exec.
        std::mem::forget(lock);
    }
}

/// Removes trees that no process uses, beyond the latest ones, unless another process begins to use one now.
pub(super) fn remove(runtime: &Path) {
    let trees = trees(runtime);
    if trees.len() <= KEPT {
        return;
    }
    let Ok(lock) = File::options().create(true).append(true).open(runtime.join(LOCK)) else { return };
    if lock.try_lock().is_err() {
        return;
    }
    let environments = environments();
    let is_used = |tree: &Path| {
        let name = tree.file_name().unwrap_or_default().as_bytes();
        environments.iter().any(|one| one.windows(name.len()).any(|window| window == name))
    };
    let unused = trees.into_iter().skip(KEPT).rev().filter(|tree| !is_used(tree));
    for tree in unused.take(MOST_REMOVED) {
        let _ = fs::remove_dir_all(tree);
    }
}

/// All trees, those first that programs began to use last.
fn trees(runtime: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    let mut trees: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()))
        .filter_map(|entry| {
            let about = entry.metadata().ok().filter(fs::Metadata::is_dir)?;
            Some((about.modified().ok()?, entry.path()))
        })
        .collect();
    trees.sort_by(|one, other| other.cmp(one));
    trees.into_iter().map(|(_, tree)| tree).collect()
}

/// The environments of all processes of this user.
fn environments() -> Vec<Vec<u8>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read(process.path().join("environ")).ok()).collect()
}

/// A program begins to use a tree.
pub(super) fn touch(tree: &Path) {
    if let Ok(folder) = File::open(tree) {
        let _ = folder.set_modified(SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn trees_that_no_process_uses_go_the_oldest_first() {
        let runtime = std::env::temp_dir().join(format!("pumice-old-trees-{}", std::process::id()));
        let begin = SystemTime::now() - Duration::from_secs(1000);
        let tree = |number: u64| runtime.join(format!("{PREFIX}{number:016x}"));
        for number in 0..40 {
            fs::create_dir_all(tree(number).join("sys/class")).unwrap();
            File::open(tree(number)).unwrap().set_modified(begin + Duration::from_secs(number)).unwrap();
        }
        // The oldest tree has a program that runs, the next one was used again.
        let mut program = Command::new("cat");
        program.env("PUMICE_SYSFS", tree(0)).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut program = program.spawn().unwrap();
        touch(&tree(1));
        let left = || (0..40).filter(|number| tree(*number).exists()).collect::<Vec<u64>>();

        // Another process is about to use a tree.
        let other = File::options().create(true).append(true).open(runtime.join(LOCK)).unwrap();
        other.lock_shared().unwrap();
        remove(&runtime);
        assert_eq!(left().len(), 40);
        drop(other);

        remove(&runtime);
        assert_eq!(left(), [0, 1].into_iter().chain(18..40).collect::<Vec<_>>(), "some at a time");
        remove(&runtime);
        assert_eq!(left(), [0, 1].into_iter().chain(25..40).collect::<Vec<_>>());
        remove(&runtime);
        assert_eq!(left().len(), KEPT + 1, "that of the program beside the latest ones");
        program.kill().unwrap();
        program.wait().unwrap();
        remove(&runtime);
        assert_eq!(left().len(), KEPT);
        fs::remove_dir_all(&runtime).unwrap();
    }
}
