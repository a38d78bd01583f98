//! Paths into the private tree: recognizes them, and converts between public and private paths.

use std::ffi::{CStr, c_char};

use crate::kernel::{FOLDER, MAX_VALUE_BYTES, exists};
use crate::removed_devices;

/// Maximum length of a path of the private tree, with its NUL. The buffer is on the stack, which may be a
/// signal's.
const PATH_BYTES: usize = 2 * MAX_VALUE_BYTES;

/// Reports whether a path leads into the private tree: `/sys/class/infiniband*`,
/// `/sys/devices/virtual/infiniband*` or `/dev/infiniband`, or may: `/sys/class/net/NAME/device/infiniband`.
/// The first two bytes decide for nearly every path.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub(crate) unsafe fn is_private(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    let path = path.cast::<u8>();
    // SAFETY: the second byte is there if the first is not NUL, and so on.
    unsafe { *path == b'/' && matches!(*path.add(1), b's' | b'd' | b'/') && is_under(path) }
}

/// # Safety
/// `path` is a C string.
#[inline(never)]
unsafe fn is_under(path: *const u8) -> bool {
    // SAFETY: each pointer is at most at the NUL of the C string.
    unsafe {
        if let Some(sys) = after(path, b"sys") {
            let class = after(sys, b"class");
            if class.and_then(|class| after(class, b"net")).is_some_and(|net| names_devices(net)) {
                return true;
            }
            let class = class.or_else(|| after(after(sys, b"devices")?, b"virtual"));
            return class
                .and_then(|class| after(class, b"infiniband"))
                .is_some_and(|rest| matches!(*rest, 0 | b'/' | b'_'));
        }
        after(path, b"dev")
            .and_then(|dev| after(dev, b"infiniband"))
            .is_some_and(|rest| matches!(*rest, 0 | b'/'))
    }
}

/// Reports whether the rest of a path after `/sys/class/net` is `/NAME/device/infiniband` or below.
///
/// # Safety
/// `rest` is a C string.
unsafe fn names_devices(rest: *const u8) -> bool {
    // SAFETY: the same as for `after`.
    unsafe {
        let Some(mut next) = after(rest, b"") else { return false };
        while !matches!(*next, 0 | b'/') {
            next = next.add(1);
        }
        after(next, b"device")
            .and_then(|device| after(device, b"infiniband"))
            .is_some_and(|rest| matches!(*rest, 0 | b'/'))
    }
}

/// Reports whether a path for which [`is_private`] is true belongs to a network interface. Such a path leads
/// into the private tree only if it exists there, because network interfaces are the host's.
///
/// # Safety
/// `path` is a C string.
unsafe fn is_of_interface(path: *const u8) -> bool {
    // SAFETY: the caller guarantees that it is a C string.
    unsafe { after(path, b"sys").and_then(|sys| after(after(sys, b"class")?, b"net")).is_some() }
}

/// Returns the rest of a path after slashes and `name`; `None` if it does not begin with these.
///
/// # Safety
/// `path` is a C string.
unsafe fn after(path: *const u8, name: &[u8]) -> Option<*const u8> {
    let mut next = path;
    // SAFETY: no step goes beyond a byte that was compared with one other than NUL.
    unsafe {
        if *next != b'/' {
            return None;
        }
        while *next == b'/' {
            next = next.add(1);
        }
        for byte in name {
            if *next != *byte {
                return None;
            }
            next = next.add(1);
        }
    }
    Some(next)
}

/// The destination of a call with a path.
pub(crate) enum PathDestination {
    /// To the path that the program gave: no private tree is named.
    Unchanged,
    /// Into the private tree.
    Private,
    /// Nowhere: the path is too long.
    TooLong,
}

/// A buffer for a path of the private tree.
pub(crate) struct PrivatePath([u8; PATH_BYTES]);

impl PrivatePath {
    pub(crate) const fn new() -> PrivatePath {
        PrivatePath([0; PATH_BYTES])
    }

    /// Returns the path as a C string.
    pub(crate) const fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Takes the private form of a path for which [`is_private`] is true.
    ///
    /// # Safety
    /// `path` is a C string.
    #[cold]
    pub(crate) unsafe fn take(&mut self, path: *const c_char) -> PathDestination {
        // SAFETY: the caller guarantees that it is a C string.
        let of_interface = unsafe { is_of_interface(path.cast()) };
        // SAFETY: the caller guarantees that it is a C string.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let Some(root) = FOLDER.value().map(CStr::to_bytes) else { return PathDestination::Unchanged };
        let suffix = removed_devices::suffix(path);
        let is_joined = self.join(root, suffix.bytes(), path).is_some();
        if of_interface {
            // SAFETY: the joined path is a C string.
            return if is_joined && unsafe { exists(self.as_ptr()) } {
                PathDestination::Private
            } else {
                PathDestination::Unchanged
            };
        }
        if is_joined { PathDestination::Private } else { PathDestination::TooLong }
    }

    /// Joins the parts; `None` if they are too long.
    fn join(&mut self, root: &[u8], suffix: &[u8], path: &[u8]) -> Option<()> {
        let (front, back) = self.0.split_at_mut_checked(root.len())?;
        let (middle, back) = back.split_at_mut_checked(suffix.len())?;
        middle.copy_from_slice(suffix);
        let (back, end) = back.split_at_mut_checked(path.len())?;
        front.copy_from_slice(root);
        back.copy_from_slice(path);
        *end.first_mut()? = 0;
        Some(())
    }
}

/// Converts a path that the C library returned to its public form, in place, because it becomes shorter.
///
/// # Safety
/// `path` is null or a C string that may be written.
pub(crate) unsafe fn show(path: *mut c_char) {
    let Some(root) = FOLDER.value().map(CStr::to_bytes) else { return };
    if path.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that it is a C string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let Some(shown) = bytes.strip_prefix(root).map(removed_devices::strip) else { return };
    if shown.first() != Some(&b'/') {
        return;
    }
    let length = shown.len();
    // SAFETY: the end of the string, including its NUL, moves to its beginning.
    unsafe { path.copy_from(path.add(bytes.len() - length), length) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_private_tree_are_known() {
        for (path, expected) in [
            (c"/sys/class/infiniband", true),
            (c"/sys/class/infiniband/", true),
            (c"/sys//class///infiniband/pumice0/ports", true),
            (c"//sys/class/infiniband", true),
            (c"/sys/class/infiniband_verbs/uverbs0", true),
            (c"/sys/class/infiniband_mad/abi_version", true),
            (c"/sys/devices/virtual/infiniband/pumice0", true),
            (c"/sys/devices/virtual/infiniband_verbs", true),
            (c"/dev/infiniband", true),
            (c"/dev/infiniband/uverbs0", true),
            (c"/sys/class/infinibandx", false),
            (c"/sys/class/infini", false),
            (c"/sys/class/net/eth0/device/infiniband", true),
            (c"/sys/class/net/eth0/device//infiniband/pumice0/node_guid", true),
            (c"/sys/class/net/eth0/device/infiniband_x", false),
            (c"/sys/class/net/eth0/device", false),
            (c"/sys/class/net//device/infiniband", false),
            (c"/sys/class/net", false),
            (c"/sys/class/net/", false),
            (c"/sys/class/net/infiniband", false),
            (c"/sys/class", false),
            (c"/sys/devices/virtual/net", false),
            (c"/sys/devices/infiniband", false),
            (c"/dev/infiniband_x", false),
            (c"/dev/null", false),
            (c"/sysclass/infiniband", false),
            (c"sys/class/infiniband", false),
            (c"/x/sys/class/infiniband", false),
            (c"/", false),
            (c"/s", false),
            (c"//", false),
            (c"", false),
        ] {
            // SAFETY: the path is a C string.
            assert_eq!(unsafe { is_private(path.as_ptr()) }, expected, "{path:?}");
        }
        // SAFETY: the path is null.
        assert!(!unsafe { is_private(std::ptr::null()) });
    }

    #[test]
    fn a_path_is_put_behind_the_folder_or_is_too_long() {
        let mut joined = PrivatePath::new();
        joined.join(b"/run/x", b"", b"/dev/infiniband").unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&joined.0), Ok(c"/run/x/dev/infiniband"));
        joined.join(b"/run/x", b"/without-0001", b"/dev").unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&joined.0), Ok(c"/run/x/without-0001/dev"));
        joined.join(b"/run/x", b"", &[b'/'; PATH_BYTES - 7]).unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&joined.0).unwrap().count_bytes(), PATH_BYTES - 1);
        assert!(joined.join(b"/run/x", b"", &[b'/'; PATH_BYTES - 6]).is_none());
        assert!(joined.join(&[b'/'; PATH_BYTES + 1], b"", b"").is_none());
    }
}
