//! Environment variables, copied once, because a program may change its environment later.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering};

/// Maximum length of a value, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 512;

const UNREAD: u8 = 0;
/// State: a thread copies the value.
const COPYING: u8 = 1;
const READY: u8 = 2;
/// State: there is no usable value.
const NONE: u8 = 3;

/// Variable with the folder of the private tree.
pub(crate) static FOLDER: Variable = Variable::new(c"PUMICE_SYSFS");
/// Variable with the path of libpumice.so.
pub(crate) static LIBRARY: Variable = Variable::new(c"PUMICE_LIBRARY");

/// A variable that holds an absolute path. It is written once and read after that.
pub(crate) struct Variable {
    name: &'static CStr,
    state: AtomicU8,
    /// Value, with a NUL at the end.
    text: UnsafeCell<[u8; MAX_VALUE_BYTES + 1]>,
}

// SAFETY: only the thread that moved the state from NEW to COPYING writes, and others read from READY on.
unsafe impl Sync for Variable {}

impl Variable {
    const fn new(name: &'static CStr) -> Variable {
        let text = UnsafeCell::new([0; MAX_VALUE_BYTES + 1]);
        Variable { name, state: AtomicU8::new(UNREAD), text }
    }

    /// Returns the path without a slash at its end, if there is one. `None` while another thread, or code
    /// that a signal has interrupted, copies it: that is before `main`.
    pub(crate) fn value(&self) -> Option<&'static CStr>
    where
        Self: 'static,
    {
        if self.state.load(Ordering::Acquire) == UNREAD {
            self.copy();
        }
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: nothing writes once the state is READY, and variables are statics.
        let text: &'static [u8; MAX_VALUE_BYTES + 1] = unsafe { &*self.text.get() };
        CStr::from_bytes_until_nul(text).ok()
    }

    fn copy(&self) {
        if self.state.compare_exchange(UNREAD, COPYING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        // SAFETY: the name ends with NUL, and no pointer into the environment is kept beyond this call.
        let found: *const c_char = unsafe { libc::getenv(self.name.as_ptr()) };
        // SAFETY: getenv returns a C string.
        let found = (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_bytes());
        let path = found.and_then(usable);
        if let Some(path) = path {
            // SAFETY: this is the only writer, see `Sync`.
            let text = unsafe { &mut *self.text.get() };
            for (to, from) in text.iter_mut().zip(path) {
                *to = *from;
            }
        }
        self.state.store(if path.is_some() { READY } else { NONE }, Ordering::Release);
    }
}

/// Returns a path as it is put in front of others: absolute, and short enough.
fn usable(mut path: &[u8]) -> Option<&[u8]> {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    (path.starts_with(b"/") && path.len() <= MAX_VALUE_BYTES).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_not_too_long() {
        assert_eq!(usable(b"/run/x//"), Some(&b"/run/x"[..]));
        for wrong in [&b""[..], b"/", b"run/x", &[b'/'; MAX_VALUE_BYTES + 1]] {
            assert_eq!(usable(wrong), None);
        }
        let longest = [b"/".as_slice(), &[b'x'; MAX_VALUE_BYTES - 1]].concat();
        assert_eq!(usable(&longest), Some(&longest[..]));
        assert_eq!(usable(&[&longest[..], b"x"].concat()), None);
    }

    #[test]
    fn a_value_is_copied_once() {
        static PATH: Variable = Variable::new(c"PATH");
        static MISSING: Variable = Variable::new(c"PUMICE_NO_SUCH_VARIABLE");
        let first = PATH.value().map(CStr::as_ptr);
        assert_eq!(first, PATH.value().map(CStr::as_ptr));
        assert_eq!(MISSING.value(), None);
    }
}
