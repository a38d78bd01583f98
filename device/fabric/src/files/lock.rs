//! Locks on bytes of a shared file, which the kernel releases when the last descriptor is closed.
//!
//! The locks belong to the open file and not to the process: a fork child shares them, another open of the
//! same file does not, and a killed process loses them at once.

use std::io;

use libc::{c_int, c_short};
use pumice_transport::wire::ProcessIndex;

use crate::system::File;

/// Position of the first lockable byte, far behind the contents. A process that changes the file holds this
/// byte; the owner of a process index holds the byte that is as many bytes further.
const FIRST_BYTE: i64 = 1 << 30;

/// Byte whose lock is the right to change the file: no process has the index 0.
pub(crate) const CHANGES: u32 = 0;

/// Locks a process index. Returns false if another open file has the lock.
pub(crate) fn try_lock(file: &File, process: ProcessIndex) -> io::Result<bool> {
    try_lock_byte(file, process.into())
}

/// Locks any byte, counted from [`CHANGES`]. Returns false if another open file has the lock.
pub(crate) fn try_lock_byte(file: &File, byte: u32) -> io::Result<bool> {
    set(file, libc::F_WRLCK, byte)
}

/// Locks any byte in shared mode, together with other open files that do the same. Returns false if another
/// process has it exclusively.
pub(crate) fn try_lock_byte_shared(file: &File, byte: u32) -> io::Result<bool> {
    set(file, libc::F_RDLCK, byte)
}

/// Releases the lock on a byte.
pub(crate) fn unlock_byte(file: &File, byte: u32) -> io::Result<()> {
    set(file, libc::F_UNLCK, byte).map(|_| ())
}

/// Reports whether another open file has a lock of either kind on a byte.
pub(crate) fn is_byte_locked(file: &File, byte: u32) -> io::Result<bool> {
    let mut asked = request(libc::F_WRLCK, byte, byte);
    file.control_lock(libc::F_OFD_GETLK, &mut asked)?;
    Ok(c_int::from(asked.l_type) != libc::F_UNLCK)
}

fn set(file: &File, kind: c_int, byte: u32) -> io::Result<bool> {
    match file.control_lock(libc::F_OFD_SETLK, &mut request(kind, byte, byte)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns, for each process index, whether another open file has its lock.
pub(crate) fn locked_processes(file: &File) -> io::Result<[bool; 256]> {
    let mut locked = [false; 256];
    let (first, last) = (ProcessIndex::FIRST, ProcessIndex::LAST);
    if let Some(locked) = locked.get_mut(usize::from(first)..=usize::from(last)) {
        locked_bytes(file, first.into(), locked)?;
    }
    Ok(locked)
}

/// Sets, for each byte from `first` on, whether another open file has its lock.
pub(crate) fn locked_bytes(file: &File, first: u32, locked: &mut [bool]) -> io::Result<()> {
    let Some(last) = (locked.len() as u32).checked_sub(1).map(|further| first + further) else {
        return Ok(());
    };
    let mut ranges = vec![(first, last)];
    while let Some((from, to)) = ranges.pop() {
        let mut asked = request(libc::F_WRLCK, from, to);
        file.control_lock(libc::F_OFD_GETLK, &mut asked)?;
        if c_int::from(asked.l_type) == libc::F_UNLCK {
            continue;
        }
        // The kernel returns any one of the locks in the range, so the bytes on both sides of it are queried
        // again.
        let found = |byte: i64| u32::try_from(byte - FIRST_BYTE).unwrap_or(0).clamp(from, to);
        let (begin, end) = (found(asked.l_start), found(asked.l_start.saturating_add(asked.l_len - 1)));
        for byte in begin..=end {
            if let Some(locked) = locked.get_mut((byte - first) as usize) {
                *locked = true;
            }
        }
        if from < begin {
            ranges.push((from, begin - 1));
        }
        if end < to {
            ranges.push((end + 1, to));
        }
    }
    Ok(())
}

fn request(kind: c_int, first: u32, last: u32) -> libc::flock {
    libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: FIRST_BYTE + i64::from(first),
        l_len: i64::from(last) - i64::from(first) + 1,
        // The kernel requires 0 for a lock of an open file.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const fn nth(index: u8) -> ProcessIndex {
        ProcessIndex::new(index)
    }

    #[test]
    fn a_lock_is_seen_by_other_opens_until_the_last_descriptor_is_closed() {
        let path = std::env::temp_dir().join(format!("pumice-lock-test-{}", std::process::id()));
        let mut options = fs::File::options();
        options.create(true).read(true).write(true);
        let (a, b) = (options.open(&path).unwrap(), options.open(&path).unwrap());
        fs::remove_file(&path).unwrap();
        let (b_again, a, b) = (File::from(b.try_clone().unwrap()), File::from(a), File::from(b));
        for process in [1, 7, 8, 254, 100] {
            assert!(try_lock(&b, nth(process)).unwrap() && !try_lock(&a, nth(process)).unwrap());
        }
        assert!(try_lock_byte(&b, CHANGES).unwrap() && !try_lock_byte(&a, CHANGES).unwrap());
        let locked = |file: &File| {
            let processes = locked_processes(file).unwrap();
            (0..=255).filter(|&process: &usize| processes[process]).collect::<Vec<_>>()
        };
        assert_eq!(locked(&a), [1, 7, 8, 100, 254]);
        assert_eq!(locked(&b), [0_usize; 0], "one's own are not in the way");
        unlock_byte(&b, 8).unwrap();
        drop(b);
        assert_eq!(locked(&a), [1, 7, 100, 254], "a copy of the descriptor is left");
        drop(b_again);
        assert_eq!(locked(&a), [0_usize; 0]);
        assert!(try_lock_byte(&a, CHANGES).unwrap());
    }
}
