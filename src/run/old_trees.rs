//! Trees for /sys that earlier programs had. Other interfaces, addresses or options make another tree, and
//! each takes half a megabyte, in memory where the runtime folder is.

use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Trees that stay although no process uses them, the latest ones.
const KEPT: usize = 16;
/// Trees that one run removes: it must not take long.
const MOST_REMOVED: usize = 16;
/// The lock of those who begin to use a tree, shared, and of those who remove some.
const LOCK: &str = "sysfs.lock";
/// How names of trees begin.
const PREFIX: &str = "sysfs-";

/// How long another process may remove trees.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Says to those who remove trees that this process begins to use one: until it becomes the program, whose
/// environment names the tree.
///
/// # Errors
/// A sentence: another process has been removing trees for too long, or is stopped while it does. It may
/// remove any tree when it goes on.
pub(super) fn hold(runtime: &Path) -> Result<(), String> {
    let path = runtime.join(LOCK);
    // Without the lock the tree is there for as long as others leave it.
    let Ok(lock) = File::options().create(true).append(true).open(&path) else { return Ok(()) };
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = lock.try_lock_shared() {
        let holder = holder(&lock, &path);
        if let Some(pid) = holder.filter(|pid| is_stopped(*pid)) {
            return Err(format!(
                "{} stays locked, and process {pid}, which has locked it, is stopped: continue it \
                 (kill -CONT {pid}) or kill it",
                path.display()
            ));
        }
        if begun.elapsed() > PATIENCE {
            let by = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
            let seconds = PATIENCE.as_secs();
            return Err(format!("{} was locked by {by} for {seconds} s: try again", path.display()));
        }
        std::thread::sleep(PAUSE);
    }
    // It is closed on exec.
    std::mem::forget(lock);
    Ok(())
}

/// The process that has a file locked against all others, as far as /proc tells.
fn holder(lock: &File, path: &Path) -> Option<u32> {
    let inode = lock.metadata().ok()?.ino();
    let path = fs::canonicalize(path).ok()?;
    let has_open = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|one| fs::read_link(one.path()).ok()).any(|to| to == path)
    };
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().filter_map(|line| exclusive(line, inode)).find(has_open)
}

/// The process of a line of /proc/locks, if it has a file with this inode locked against all others:
/// `1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF`.
fn exclusive(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
    let found: u64 = file.rsplit(':').next()?.parse().ok()?;
    if found == inode { pid.parse().ok() } else { None }
}

/// Whether a process is stopped: the state comes after its name, which has parentheses around it.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
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
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

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
        program.env("PUMICE_SYSFS", tree(0)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        // Its environment can be read when it has begun, which is a moment after the call that starts it
        // returns.
        program.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        program.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
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

    #[test]
    fn the_process_that_removes_trees_is_known() {
        let path = std::env::temp_dir().join(format!("pumice-{LOCK}-{}", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let (one, other) = (open(), open());
        assert_eq!(holder(&other, &path), None);
        one.lock_shared().unwrap();
        assert_eq!(holder(&other, &path), None, "others can share it");
        one.lock().unwrap();
        assert_eq!(holder(&other, &path), Some(std::process::id()));
        assert!(!is_stopped(std::process::id()));
        fs::remove_file(&path).unwrap();
    }
}
