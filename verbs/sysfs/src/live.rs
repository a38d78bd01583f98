//! Files of the private tree whose contents change: counters, and the effects of a fault plan on a port. When
//! a program has opened one, the descriptor is redirected to a file in memory with the present contents. The
//! tree has the recipes of numbers (`live/counters/...`), and the file to which `live/DEVICE/counted` leads
//! has the counters of the processes; for a second port it is `live/DEVICE/counted2`.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::FILE;

use crate::condition::{LINE_BYTES, PortCondition, RECORD_BYTES, RECORD_WORDS, RECORDS, WORD_BYTES, numbers};
use crate::kernel::{FOLDER, OwnedDescriptor, errno, open_private, read_private, set_errno};

/// Number of records that are read at a time, onto the stack.
const RECORDS_PER_READ: usize = 4;
/// Maximum length of a path that /proc returns, in bytes.
const PATH_BYTES: usize = 2048;
/// Maximum length of a recipe, in bytes.
const RECIPE_BYTES: usize = 64;
/// Maximum length of a number, in bytes.
const NUMBER_BYTES: usize = 24;
/// The GID of an index without an address.
const NO_GID: &[u8] = b"0000:0000:0000:0000:0000:0000:0000:0000\n";

/// The working folder may be in the private tree, so that relative paths lead to its files.
static IN_PRIVATE_TREE: AtomicBool = AtomicBool::new(false);

/// Checks whether the program begins in the private tree.
pub(crate) fn detect_working_folder() {
    let mut scratch = [0_u8; PATH_BYTES];
    // SAFETY: the buffer has this length and may be written.
    let length = unsafe { libc::syscall(libc::SYS_getcwd, scratch.as_mut_ptr(), scratch.len()) };
    let path = usize::try_from(length).ok().and_then(|length| scratch.get(..length));
    let root = FOLDER.value().map(CStr::to_bytes);
    if path.zip(root).is_some_and(|(path, root)| path.starts_with(root)) {
        IN_PRIVATE_TREE.store(true, Ordering::Relaxed);
    }
}

/// Notes that the working folder was changed to one of the private tree, if that succeeded.
pub(crate) fn note_working_folder(result: c_int) {
    if result == 0 {
        IN_PRIVATE_TREE.store(true, Ordering::Relaxed);
    }
}

/// Reports whether relative paths may lead to files of the private tree.
#[inline]
pub(crate) fn is_in_private_tree() -> bool {
    IN_PRIVATE_TREE.load(Ordering::Relaxed)
}

/// The counters of all processes for a device, by the index of the counter.
pub(crate) struct CounterTotals([u64; RECORD_WORDS]);

impl CounterTotals {
    /// Reads the present counters from the file whose name consists of these parts; all 0 if nothing was ever
    /// counted.
    pub(crate) fn now(file: &[&[u8]]) -> CounterTotals {
        let mut totals = CounterTotals([0; RECORD_WORDS]);
        let Some(file) = open_private(file) else { return totals };
        let mut scratch = [0_u8; RECORDS_PER_READ * RECORD_BYTES];
        for first in (0..RECORDS).step_by(RECORDS_PER_READ) {
            let length = file.read(&mut scratch, first * RECORD_BYTES);
            for record in scratch.get(..length).unwrap_or_default().chunks_exact(RECORD_BYTES) {
                totals.add(record);
            }
            if length < scratch.len() {
                break;
            }
        }
        totals
    }

    fn add(&mut self, record: &[u8]) {
        for (total, word) in self.0.iter_mut().zip(record.chunks_exact(WORD_BYTES)) {
            let word = word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
            *total = total.wrapping_add(word);
        }
    }

    /// Returns the sum of the counters at these indices.
    pub(crate) fn sum(&self, indices: impl Iterator<Item = usize>) -> u64 {
        indices.filter_map(|index| self.0.get(index)).fold(0, |sum, each| sum.wrapping_add(*each))
    }

    /// Computes the number of a recipe: a divisor and indices, in decimal.
    fn number(&self, recipe: &[u8]) -> Option<u64> {
        let mut words = numbers(recipe);
        let divisor = words.next()??;
        self.sum(words.flatten().filter_map(|index| usize::try_from(index).ok())).checked_div(divisor)
    }
}

/// Formats a number as sysfs does.
fn line(mut number: u64, scratch: &mut [u8; NUMBER_BYTES]) -> &[u8] {
    let mut start = scratch.len();
    let mut put = |byte: u8| {
        start = start.saturating_sub(1);
        if let Some(next) = scratch.get_mut(start) {
            *next = byte;
        }
    };
    put(b'\n');
    loop {
        put(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    scratch.get(start..).unwrap_or_default()
}

/// Redirects a descriptor that a program has opened to the present contents, if the file is one that changes.
/// Leaves errno unchanged.
pub(crate) fn refresh(descriptor: c_int) {
    if descriptor >= 0 {
        let before = errno();
        // If this fails, the program reads the file of the tree.
        let _ = replace(descriptor);
        set_errno(before);
    }
}

/// Redirects a stream as [`refresh`] does, before anything was read.
///
/// # Safety
/// `stream` is null or was just opened.
pub(crate) unsafe fn refresh_stream(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: the caller guarantees that the stream is open.
        refresh(unsafe { libc::fileno(stream) });
    }
}

fn replace(descriptor: c_int) -> Option<()> {
    let mut path = [0_u8; PATH_BYTES];
    let path = path_of(descriptor, &mut path)?;
    let inside = path.strip_prefix(FOLDER.value()?.to_bytes())?;
    let mut parts = inside.rsplitn(7, |byte| *byte == b'/');
    let (name, folder) = (parts.next()?, parts.next()?);
    match folder {
        b"counters" | b"hw_counters" => {
            // The path is DEVICE/ports/1/counters/NAME.
            let port = port_suffix(parts.next()?);
            let device = parts.nth(1)?;
            let mut recipe = [0_u8; RECIPE_BYTES];
            let recipe = read_private(&[b"/live/", folder, b"/", name], &mut recipe)?;
            let mut scratch = [0_u8; NUMBER_BYTES];
            let totals = CounterTotals::now(&[b"/live/", device, b"/counted", port]);
            put(descriptor, line(totals.number(recipe)?, &mut scratch))
        }
        b"1" | b"2" if matches!(name, b"state" | b"phys_state" | b"rate") => {
            // The path is DEVICE/ports/1/NAME.
            let port = port_suffix(folder);
            let device = parts.nth(1)?;
            let condition = PortCondition::now(&[b"/live/", device, b"/counted", port])?;
            put(descriptor, condition.line((device, port), name, &mut [0; LINE_BYTES])?)
        }
        b"gids" => {
            // The path is DEVICE/ports/1/gids/N.
            let port = port_suffix(parts.next()?);
            let whose = (parts.nth(1)?, port);
            match gid_file(whose, inside, name, &mut [0; LINE_BYTES])? {
                GidFile::Of(line) => put(descriptor, line),
                GidFile::Empty => put(descriptor, NO_GID),
            }
        }
        b"types" | b"ndevs" if parts.next()? == b"gid_attrs" => {
            // The path is DEVICE/ports/1/gid_attrs/types/N.
            let port = port_suffix(parts.next()?);
            let whose = (parts.nth(1)?, port);
            match gid_file(whose, inside, name, &mut [0; LINE_BYTES])? {
                GidFile::Of(line) => put(descriptor, line),
                GidFile::Empty => redirect_to_unreadable(descriptor),
            }
        }
        _ => None,
    }
}

/// The present contents of a file of the GID table.
enum GidFile<'a> {
    Of(&'a [u8]),
    Empty,
}

/// Returns the present contents; `None` if they are those in the tree. `whose` is the device, and the suffix
/// of the port's file names; `inside` is the file, whose `name` is an index of the table.
fn gid_file<'a>(
    (device, port): (&[u8], &[u8]),
    inside: &[u8],
    name: &[u8],
    scratch: &'a mut [u8; LINE_BYTES],
) -> Option<GidFile<'a>> {
    let index = usize::try_from(numbers(name).next()??).ok()?;
    let condition = PortCondition::now(&[b"/live/", device, b"/counted", port]).unwrap_or_default();
    let Some(origin) = condition.gid_origin(index) else { return Some(GidFile::Empty) };
    let mut digits = [0_u8; NUMBER_BYTES];
    let digits = line(u64::try_from(origin).ok()?, &mut digits);
    let folder = inside.strip_suffix(name)?;
    let found: &[u8] = read_private(&[folder, digits.strip_suffix(b"\n")?], scratch)?;
    match found {
        [] => Some(GidFile::Empty),
        _ if origin == index => None,
        found => Some(GidFile::Of(found)),
    }
}

/// Returns the suffix of a port's file names, which is empty for the first port.
fn port_suffix(port: &[u8]) -> &[u8] {
    if port == b"1" { b"" } else { port }
}

/// Redirects a descriptor to a file with this text.
fn put(descriptor: c_int, text: &[u8]) -> Option<()> {
    // SAFETY: the name is a C string.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, c"sysfs".as_ptr(), libc::MFD_CLOEXEC) };
    let fresh = OwnedDescriptor::of(made)?;
    if fresh.write(text) { redirect_to_file(descriptor, &fresh) } else { None }
}

/// Redirects the program's descriptor to the file of `fresh`, with an unchanged close-on-exec flag.
fn redirect_to_file(descriptor: c_int, fresh: &OwnedDescriptor) -> Option<()> {
    // SAFETY: the arguments are descriptors, the program's and one of this object, and no memory is accessed.
    unsafe {
        let close_on_exec =
            libc::syscall(libc::SYS_fcntl, descriptor, libc::F_GETFD) & i64::from(libc::FD_CLOEXEC);
        let flags = if close_on_exec != 0 { libc::O_CLOEXEC } else { 0 };
        libc::syscall(libc::SYS_dup3, fresh.number(), descriptor, flags);
    }
    Some(())
}

/// Redirects a descriptor to a file that cannot be read: EINVAL, as Linux returns for the attributes of an
/// index without an address.
fn redirect_to_unreadable(descriptor: c_int) -> Option<()> {
    // SAFETY: no memory is accessed.
    let fresh = OwnedDescriptor::of(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
    redirect_to_file(descriptor, &fresh)
}

/// Returns the path of a descriptor, from /proc.
fn path_of(descriptor: c_int, scratch: &mut [u8]) -> Option<&[u8]> {
    let mut digits = [0_u8; NUMBER_BYTES];
    let digits = line(u64::try_from(descriptor).ok()?, &mut digits);
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    let front = b"/proc/self/fd/";
    let mut name = [0_u8; 48];
    name.get_mut(..front.len())?.copy_from_slice(front);
    name.get_mut(front.len()..front.len() + digits.len())?.copy_from_slice(digits);
    let (from, link, buffer, bytes) = (libc::AT_FDCWD, name.as_ptr(), scratch.as_mut_ptr(), scratch.len());
    // SAFETY: the path is a C string, and the buffer has this length and may be written. 64-bit ARM has no
    // readlink.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, from, link, buffer, bytes) };
    scratch.get(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_sysfs_does() {
        let text = |number| line(number, &mut [0; NUMBER_BYTES]).to_vec();
        assert_eq!(text(0), b"0\n");
        assert_eq!(text(1234567890), b"1234567890\n");
        assert_eq!(text(u64::MAX), b"18446744073709551615\n");
    }

    #[test]
    fn recipes_sum_and_divide() {
        let mut totals = CounterTotals([0; RECORD_WORDS]);
        let mut record = [0; RECORD_BYTES];
        record[8..16].copy_from_slice(&1000_u64.to_ne_bytes());
        record[504..512].copy_from_slice(&7_u64.to_ne_bytes());
        totals.add(&record);
        totals.add(&record);
        assert_eq!(totals.number(b"4 1\n"), Some(500));
        assert_eq!(totals.number(b"1 1 63\n"), Some(2014));
        assert_eq!(
            totals.number(b"1 64 9999999999999999999999\n"),
            Some(0),
            "counters that are not there count nothing"
        );
        for wrong in [&b""[..], b"\n", b"0 1\n", b"x 1\n"] {
            assert_eq!(totals.number(wrong), None, "{wrong:?}");
        }
    }
}
