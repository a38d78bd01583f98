//! Which paths lead into the private tree, and what they are called there and outside.

use std::ffi::{CStr, c_char};

use crate::kernel::exists;
use crate::remaining;
use crate::variable::{FOLDER, MAX_VALUE_BYTES};

/// Room for a path of the private tree, its NUL included. It is on the stack, which may be a signal's.
const PATH_BYTES: usize = 2 * MAX_VALUE_BYTES;

/// Whether a path leads into the private tree: `/sys/class/infiniband*`, `/sys/devices/virtual/infiniband*`
/// or `/dev/infiniband`, or may: `/sys/class/net/NAME/device/infiniband`. The first two bytes tell for nearly
/// every path.
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
    unsafe { *path == b'/' && matches!(*path.add(1), b's' | b'd' | b'/') && leads_into(path) }
}

/// # Safety
/// `path` is a C string.
#[inline(never)]
unsafe fn leads_into(path: *const u8) -> bool {
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

/// Whether what comes after `/sys/class/net` is `/NAME/device/infiniband` or below.
///
/// # Safety
/// `rest` is a C string.
unsafe fn names_devices(rest: *const u8) -> bool {
    // SAFETY: as for `after`.
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

/// Whether a path for which [`is_private`] is true leads into the private tree only if it is there: network
/// interfaces are the host's.
///
/// # Safety
/// `path` is a C string.
unsafe fn is_of_interface(path: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { after(path, b"sys").and_then(|sys| after(after(sys, b"class")?, b"net")).is_some() }
}

/// Where a path goes on after slashes and `name`; none if that is not what comes.
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

/// Where a call goes.
pub(crate) enum Destination {
    /// To the path that the program gave: no private tree is named.
    AsGiven,
    /// Into the private tree.
    Private,
    /// Nowhere: the path is too long.
    TooLong,
}

/// Room for a path of the private tree.
pub(crate) struct PrivatePath([u8; PATH_BYTES]);

impl PrivatePath {
    pub(crate) const fn new() -> PrivatePath {
        PrivatePath([0; PATH_BYTES])
    }

    /// The path as a C string.
    pub(crate) const fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Takes the private form of a path for which [`is_private`] is true.
    ///
    /// # Safety
    /// `path` is a C string.
    #[cold]
    pub(crate) unsafe fn take(&mut self, path: *const c_char) -> Destination {
        // SAFETY: the caller's promise.
        let of_interface = unsafe { is_of_interface(path.cast()) };
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let Some(root) = FOLDER.value().map(CStr::to_bytes) else { return Destination::AsGiven };
        let suffix = remaining::suffix(path);
        let is_joined = self.join(root, suffix.bytes(), path).is_some();
        if of_interface {
            // SAFETY: a C string once it is joined.
            return if is_joined && unsafe { exists(self.as_ptr()) } {
                Destination::Private
            } else {
                Destination::AsGiven
            };
        }
        if is_joined { Destination::Private } else { Destination::TooLong }
    }

    /// None: it is too long.
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

/// Gives a path that the C library answered with the name it has outside, in place: it becomes shorter.
///
/// # Safety
/// `path` is null or a C string that may be written.
pub(crate) unsafe fn show(path: *mut c_char) {
    let Some(root) = FOLDER.value().map(CStr::to_bytes) else { return };
    if path.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let Some(shown) = bytes.strip_prefix(root).map(remaining::strip) else { return };
    if shown.first() != Some(&b'/') {
        return;
    }
    let length = shown.len();
    // SAFETY: the end of the string, its NUL included, moves to its beginning.
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
            // SAFETY: a C string.
            assert_eq!(unsafe { is_private(path.as_ptr()) }, expected, "{path:?}");
        }
        // SAFETY: null is asked for.
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
