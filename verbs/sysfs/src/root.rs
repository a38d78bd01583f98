//! The folder that PUMICE_SYSFS names, copied once: a program may change its environment later.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering};

/// The longest folder, in bytes.
pub(crate) const MAX_ROOT_BYTES: usize = 512;

const NEW: u8 = 0;
/// Someone copies it.
const COPYING: u8 = 1;
const READY: u8 = 2;
/// There is none that can be used.
const NONE: u8 = 3;

/// A path, written once and read after that.
struct Root {
    state: AtomicU8,
    text: UnsafeCell<[u8; MAX_ROOT_BYTES]>,
    length: UnsafeCell<usize>,
}

// SAFETY: only who moved the state from NEW to COPYING writes, and others read from READY on.
unsafe impl Sync for Root {}

static ROOT: Root = Root {
    state: AtomicU8::new(NEW),
    text: UnsafeCell::new([0; MAX_ROOT_BYTES]),
    length: UnsafeCell::new(0),
};

/// The folder without a slash at its end, if there is one.
pub(crate) fn root() -> Option<&'static [u8]> {
    match ROOT.state.load(Ordering::Acquire) {
        READY => copied(),
        NONE => None,
        // Interrupted while it is being copied, by a signal or another thread: the environment still has it.
        COPYING => from_environment(),
        _ => {
            if ROOT.state.compare_exchange(NEW, COPYING, Ordering::AcqRel, Ordering::Acquire).is_err() {
                return from_environment();
            }
            let found = from_environment();
            if let Some(path) = found {
                // SAFETY: this is the one writer, see `Sync`.
                let (text, length) = unsafe { (&mut *ROOT.text.get(), &mut *ROOT.length.get()) };
                for (to, from) in text.iter_mut().zip(path) {
                    *to = *from;
                }
                *length = path.len();
            }
            ROOT.state.store(if found.is_some() { READY } else { NONE }, Ordering::Release);
            found
        }
    }
}

fn copied() -> Option<&'static [u8]> {
    // SAFETY: nobody writes once the state is READY.
    let (text, length) = unsafe { (&*ROOT.text.get(), *ROOT.length.get()) };
    text.get(..length)
}

fn from_environment() -> Option<&'static [u8]> {
    // SAFETY: a name that ends with NUL; nothing of the environment is kept longer than the call, unless it
    // is copied.
    let found: *const c_char = unsafe { libc::getenv(c"PUMICE_SYSFS".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: getenv gives a C string.
    usable(unsafe { CStr::from_ptr(found) }.to_bytes())
}

/// The folder as it is put in front of paths: absolute, and short enough.
fn usable(mut path: &[u8]) -> Option<&[u8]> {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    (path.starts_with(b"/") && path.len() <= MAX_ROOT_BYTES).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_absolute_and_not_too_long() {
        assert_eq!(usable(b"/run/x//"), Some(&b"/run/x"[..]));
        for wrong in [&b""[..], b"/", b"run/x", &[b'/'; MAX_ROOT_BYTES + 1]] {
            assert_eq!(usable(wrong), None);
        }
        let longest = [b"/".as_slice(), &[b'x'; MAX_ROOT_BYTES - 1]].concat();
        assert_eq!(usable(&longest), Some(&longest[..]));
        assert_eq!(usable(&[&longest[..], b"x"].concat()), None);
    }
}
