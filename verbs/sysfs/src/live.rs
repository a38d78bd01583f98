//! Files of the private tree whose contents change: counters, and what a fault plan does to a port. When a
//! program has opened one, the descriptor
//! is given another file behind it, in memory, with the number as it is now. What the number is made of is in
//! the tree (`live/counters/...`), and what the processes have counted in the file that
//! `live/DEVICE/counted` leads to, or of a second port `live/DEVICE/counted2`.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::FILE;

use crate::condition::{Condition, LINE_BYTES};
use crate::kernel::{Descriptor, open_private, read_private};
use crate::original::{errno, set_errno};
use crate::records::{RECORD_BYTES, RECORD_WORDS, RECORDS, WORD_BYTES, numbers};
use crate::variable::FOLDER;

/// Records that are read at a time, onto the stack.
const AT_A_TIME: usize = 4;
/// Room for a path that /proc tells, for a recipe and for a number.
const PATH_BYTES: usize = 2048;
const RECIPE_BYTES: usize = 64;
const NUMBER_BYTES: usize = 24;
/// The GID of an index without an address.
const NO_GID: &[u8] = b"0000:0000:0000:0000:0000:0000:0000:0000\n";

/// Whether the working folder may be in the private tree, so that relative paths lead to files of it.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// Looks where the program begins.
pub(crate) fn look_where() {
    let mut room = [0_u8; PATH_BYTES];
    // SAFETY: so many bytes that may be written.
    let length = unsafe { libc::syscall(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) };
    let path = usize::try_from(length).ok().and_then(|length| room.get(..length));
    let root = FOLDER.value().map(CStr::to_bytes);
    if path.zip(root).is_some_and(|(path, root)| path.starts_with(root)) {
        INSIDE.store(true, Ordering::Relaxed);
    }
}

/// The working folder was changed to one of the private tree, if that succeeded.
pub(crate) fn entered(result: c_int) {
    if result == 0 {
        INSIDE.store(true, Ordering::Relaxed);
    }
}

/// Whether relative paths may lead to files of the private tree.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.load(Ordering::Relaxed)
}

/// What all processes have counted of a device, by the index of the counter.
pub(crate) struct Totals([u64; RECORD_WORDS]);

impl Totals {
    /// As it is now in the file with the name that these parts make; all 0 if nothing was ever counted.
    pub(crate) fn now(file: &[&[u8]]) -> Totals {
        let mut totals = Totals([0; RECORD_WORDS]);
        let Some(file) = open_private(file) else { return totals };
        let mut room = [0_u8; AT_A_TIME * RECORD_BYTES];
        for first in (0..RECORDS).step_by(AT_A_TIME) {
            let length = file.read(&mut room, first * RECORD_BYTES);
            for record in room.get(..length).unwrap_or_default().chunks_exact(RECORD_BYTES) {
                totals.add(record);
            }
            if length < room.len() {
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

    /// The sum of the counters at these indices.
    pub(crate) fn sum(&self, indices: impl Iterator<Item = usize>) -> u64 {
        indices.filter_map(|index| self.0.get(index)).fold(0, |sum, each| sum.wrapping_add(*each))
    }

    /// The number that a recipe makes: a divisor and indices, in decimal.
    fn number(&self, recipe: &[u8]) -> Option<u64> {
        let mut words = numbers(recipe);
        let divisor = words.next()??;
        self.sum(words.flatten().filter_map(|index| usize::try_from(index).ok())).checked_div(divisor)
    }
}

/// A number as sysfs writes it.
fn line(mut number: u64, room: &mut [u8; NUMBER_BYTES]) -> &[u8] {
    let mut start = room.len();
    let mut put = |byte: u8| {
        start = start.saturating_sub(1);
        if let Some(next) = room.get_mut(start) {
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
    room.get(start..).unwrap_or_default()
}

/// A program has opened a file: if it is one that changes, what it says now is put behind the descriptor. The
/// errno stays.
pub(crate) fn refresh(descriptor: c_int) {
    if descriptor >= 0 {
        let before = errno();
        // Where it cannot be done the program reads the file of the tree.
        let _ = replace(descriptor);
        set_errno(before);
    }
}

/// As [`refresh`], before anything was read.
///
/// # Safety
/// `stream` is null or was just opened.
pub(crate) unsafe fn refresh_stream(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: the caller's promise.
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
            // DEVICE/ports/1/counters/NAME
            let port = mark(parts.next()?);
            let device = parts.nth(1)?;
            let mut recipe = [0_u8; RECIPE_BYTES];
            let recipe = read_private(&[b"/live/", folder, b"/", name], &mut recipe)?;
            let mut room = [0_u8; NUMBER_BYTES];
            let totals = Totals::now(&[b"/live/", device, b"/counted", port]);
            put(descriptor, line(totals.number(recipe)?, &mut room))
        }
        b"1" | b"2" if matches!(name, b"state" | b"phys_state" | b"rate") => {
            // DEVICE/ports/1/NAME
            let port = mark(folder);
            let device = parts.nth(1)?;
            let condition = Condition::now(&[b"/live/", device, b"/counted", port])?;
            put(descriptor, condition.line((device, port), name, &mut [0; LINE_BYTES])?)
        }
        b"gids" => {
            // DEVICE/ports/1/gids/N
            let port = mark(parts.next()?);
            let whose = (parts.nth(1)?, port);
            match gid_file(whose, inside, name, &mut [0; LINE_BYTES])? {
                GidFile::Of(line) => put(descriptor, line),
                GidFile::Empty => put(descriptor, NO_GID),
            }
        }
        b"types" | b"ndevs" if parts.next()? == b"gid_attrs" => {
            // DEVICE/ports/1/gid_attrs/types/N
            let port = mark(parts.next()?);
            let whose = (parts.nth(1)?, port);
            match gid_file(whose, inside, name, &mut [0; LINE_BYTES])? {
                GidFile::Of(line) => put(descriptor, line),
                GidFile::Empty => put_unreadable(descriptor),
            }
        }
        _ => None,
    }
}

/// What a file of the GID table says now.
enum GidFile<'a> {
    Of(&'a [u8]),
    Empty,
}

/// None: what it says in the tree. `whose`: the device, and what is behind the names of the port's files;
/// `inside`: the file, whose `name` is an index of the table.
fn gid_file<'a>(
    (device, port): (&[u8], &[u8]),
    inside: &[u8],
    name: &[u8],
    room: &'a mut [u8; LINE_BYTES],
) -> Option<GidFile<'a>> {
    let index = usize::try_from(numbers(name).next()??).ok()?;
    let condition = Condition::now(&[b"/live/", device, b"/counted", port]).unwrap_or_default();
    let Some(origin) = condition.gid_origin(index) else { return Some(GidFile::Empty) };
    let mut digits = [0_u8; NUMBER_BYTES];
    let digits = line(u64::try_from(origin).ok()?, &mut digits);
    let folder = inside.strip_suffix(name)?;
    let found: &[u8] = read_private(&[folder, digits.strip_suffix(b"\n")?], room)?;
    match found {
        [] => Some(GidFile::Empty),
        _ if origin == index => None,
        found => Some(GidFile::Of(found)),
    }
}

/// What is behind the names of a port's files; the first port has names without a number.
fn mark(port: &[u8]) -> &[u8] {
    if port == b"1" { b"" } else { port }
}

/// Puts a file with this text behind a descriptor.
fn put(descriptor: c_int, text: &[u8]) -> Option<()> {
    // SAFETY: a C string.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, c"sysfs".as_ptr(), libc::MFD_CLOEXEC) };
    let fresh = Descriptor::of(made)?;
    if fresh.write(text) { replace_by(descriptor, &fresh) } else { None }
}

/// The descriptor of the program leads to what this one leads to, and stays open over an exec as before.
fn replace_by(descriptor: c_int, fresh: &Descriptor) -> Option<()> {
    // SAFETY: descriptors, and no memory: the program's, and one of this object's.
    unsafe {
        let kept = libc::syscall(libc::SYS_fcntl, descriptor, libc::F_GETFD) & i64::from(libc::FD_CLOEXEC);
        let flags = if kept != 0 { libc::O_CLOEXEC } else { 0 };
        libc::syscall(libc::SYS_dup3, fresh.number(), descriptor, flags);
    }
    Some(())
}

/// Puts something behind a descriptor that cannot be read: EINVAL, as Linux says of the attributes of an
/// index without an address.
fn put_unreadable(descriptor: c_int) -> Option<()> {
    // SAFETY: no memory is involved.
    let fresh = Descriptor::of(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
    replace_by(descriptor, &fresh)
}

/// What /proc says a descriptor is.
fn path_of(descriptor: c_int, room: &mut [u8]) -> Option<&[u8]> {
    let mut digits = [0_u8; NUMBER_BYTES];
    let digits = line(u64::try_from(descriptor).ok()?, &mut digits);
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    let front = b"/proc/self/fd/";
    let mut name = [0_u8; 48];
    name.get_mut(..front.len())?.copy_from_slice(front);
    name.get_mut(front.len()..front.len() + digits.len())?.copy_from_slice(digits);
    let (from, link, buffer, bytes) = (libc::AT_FDCWD, name.as_ptr(), room.as_mut_ptr(), room.len());
    // SAFETY: a C string, and so many bytes that may be written. 64-bit ARM has no readlink.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, from, link, buffer, bytes) };
    room.get(..usize::try_from(length).ok()?)
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
        let mut totals = Totals([0; RECORD_WORDS]);
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
