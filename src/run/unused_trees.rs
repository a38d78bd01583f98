//! Removes trees for /sys that earlier programs had. Other interfaces, addresses or options make another
//! tree, and each takes half a megabyte, in memory where the runtime folder is.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use pumice_device::outside::world::is_in_world;
use pumice_device::sharing::network_namespace;

/// Number of the latest trees that stay although no process uses them.
const MAX_UNUSED_TREES: usize = 16;
/// Maximum number of trees that one run removes, because it must not take long.
const MAX_REMOVED: usize = 16;
/// Name of the lock that a process holds while it removes trees. With the number of a network namespace
/// appended, it is the lock of that namespace's trees: shared by processes that begin to use one, and
/// exclusive for those that remove some. A namespace is often a container, whose processes are invisible to
/// other ones.
const LOCK: &str = "sysfs.lock";
/// Prefix of the names of trees.
const PREFIX: &str = "sysfs-";
/// Separator before the number of the network namespace, in names of trees and of locks.
const NAMESPACE: &str = "-net";

/// Time for which another process may remove trees.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two attempts to lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the name of a tree in this network namespace, from the name of its contents.
pub(super) fn name_of(contents: &str) -> String {
    format!("{contents}{NAMESPACE}{}", network_namespace())
}

/// Returns the name of the lock of a tree. Trees of older versions belong to no namespace.
fn lock_of(tree: &Path) -> String {
    let name = tree.file_name().unwrap_or_default().to_string_lossy();
    name.split_once(NAMESPACE).map_or_else(|| LOCK.to_owned(), |(_, number)| lock_in(number))
}

fn lock_in(namespace: impl Display) -> String {
    format!("{LOCK}{NAMESPACE}{namespace}")
}

fn open(path: &Path) -> Result<File, String> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|error| {
        format!("{} cannot be opened: {error}; make room for it, or remove it", path.display())
    })
}

/// Locks the trees of this namespace against removal until this process becomes the program, whose
/// environment names its tree.
///
/// # Errors
/// A sentence: another process has been removing trees for too long, or is stopped while it does, and may
/// remove any tree when it continues. Or the lock cannot be made, so that any tree may be removed.
pub(super) fn lock_trees(runtime: &Path) -> Result<(), String> {
    let path = runtime.join(lock_in(network_namespace()));
    let lock = open(&path)?;
    let begun = Instant::now();
    loop {
        match lock.try_lock_shared() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(format!("{} cannot be locked: {error}", path.display()));
            }
        }
        let holder = holder(&lock, &path);
        if let Some(pid) = holder.filter(|pid| is_stopped(*pid)) {
            return Err(format!(
                "{} stays locked, and process {pid}, which has locked it, is stopped: continue it \
                 (kill -CONT {pid}) or kill it",
                path.display()
            ));
        }
        if begun.elapsed() > LOCK_TIMEOUT {
            let by = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
            let seconds = LOCK_TIMEOUT.as_secs();
            return Err(format!("{} was locked by {by} for {seconds} s: try again", path.display()));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    // The lock file is closed on exec.
    std::mem::forget(lock);
    Ok(())
}

/// Returns the process that has locked a file exclusively, as far as /proc shows it.
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

/// Returns the process in a line of /proc/locks, if it has locked a file with this inode exclusively:
/// `1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF`.
fn exclusive(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
    let found: u64 = file.rsplit(':').next()?.parse().ok()?;
    if found == inode { pid.parse().ok() } else { None }
}

/// Reports whether a process is stopped: its state follows its name, which is in parentheses.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

/// Removes trees that no process uses, beyond the latest ones, unless another process removes some, or begins
/// to use one in the same namespace now.
pub(super) fn remove(runtime: &Path) {
    if is_in_world() {
        // The folder ends with the world.
        return;
    }
    let Ok(remover) = open(&runtime.join(LOCK)) else { return };
    let trees = trees(runtime);
    if trees.len() <= MAX_UNUSED_TREES || remover.try_lock().is_err() {
        return;
    }
    let mut locks: BTreeMap<String, Option<File>> = BTreeMap::from([(LOCK.to_owned(), Some(remover))]);
    let mut is_locked = |tree: &Path| {
        let name = lock_of(tree);
        let path = runtime.join(&name);
        let lock = || open(&path).ok().filter(|lock| lock.try_lock().is_ok());
        locks.entry(name).or_insert_with(lock).is_some()
    };
    let old: Vec<PathBuf> =
        trees.into_iter().skip(MAX_UNUSED_TREES).rev().filter(|tree| is_locked(tree)).collect();
    // A process that begins to use one of these trees waits from here on; one that began earlier is in the
    // environments.
    let environments = environments();
    let is_used = |tree: &Path| {
        let name = tree.file_name().unwrap_or_default().as_bytes();
        environments.iter().any(|one| one.windows(name.len()).any(|window| window == name))
    };
    for tree in old.iter().filter(|tree| !is_used(tree)).take(MAX_REMOVED) {
        let _ = fs::remove_dir_all(tree);
    }
}

/// Returns all trees, those that programs began to use last first.
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

/// Returns the environments of all processes of this user.
fn environments() -> Vec<Vec<u8>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read(process.path().join("environ")).ok()).collect()
}

/// Notes that a program begins to use a tree.
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
        // The newest trees are of an older version.
        let tree = |number: u64| {
            let namespace = if number < 38 { format!("{NAMESPACE}7") } else { String::new() };
            runtime.join(format!("{PREFIX}{number:016x}{namespace}"))
        };
        for number in 0..40 {
            fs::create_dir_all(tree(number).join("sys/class")).unwrap();
            File::open(tree(number)).unwrap().set_modified(begin + Duration::from_secs(number)).unwrap();
        }
        // A running program uses the oldest tree, and the next one was used again.
        let mut program = Command::new("cat");
        program.env("PUMICE_SYSFS", tree(0)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        // Its environment can be read only after exec, a moment after the call that starts it returns.
        program.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        program.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        touch(&tree(1));
        let left = || (0..40).filter(|number| tree(*number).exists()).collect::<Vec<u64>>();

        // Another process is about to use a tree.
        let other = open(&runtime.join(lock_in(7))).unwrap();
        other.lock_shared().unwrap();
        remove(&runtime);
        assert_eq!(left().len(), 40);
        drop(other);
        // Another process removes trees.
        let other = open(&runtime.join(LOCK)).unwrap();
        other.lock().unwrap();
        remove(&runtime);
        assert_eq!(left().len(), 40);
        drop(other);
        // Locks of another namespace are no reason to wait.
        let other = open(&runtime.join(lock_in(8))).unwrap();
        other.lock().unwrap();

        remove(&runtime);
        assert_eq!(left(), [0, 1].into_iter().chain(18..40).collect::<Vec<_>>(), "some at a time");
        remove(&runtime);
        assert_eq!(left(), [0, 1].into_iter().chain(25..40).collect::<Vec<_>>());
        remove(&runtime);
        assert_eq!(left().len(), MAX_UNUSED_TREES + 1, "that of the program beside the latest ones");
        program.kill().unwrap();
        program.wait().unwrap();
        remove(&runtime);
        assert_eq!(left().len(), MAX_UNUSED_TREES);
        fs::remove_dir_all(&runtime).unwrap();
    }

    #[test]
    fn an_unavailable_lock_is_reported() {
        let runtime = std::env::temp_dir().join(format!("pumice-no-lock-{}", std::process::id()));
        fs::create_dir_all(runtime.join(lock_in(network_namespace()))).unwrap();
        let problem = lock_trees(&runtime).unwrap_err();
        assert!(problem.contains("cannot be opened: Is a directory"), "{problem}");
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
