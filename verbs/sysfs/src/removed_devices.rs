//! The private tree while a device is pulled out: a tree of links to the remaining devices is made in it, and
//! paths lead there. The name of that tree says which devices are missing, so that its contents never change
//! either.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::condition::PortCondition;
use crate::kernel::{FileName, errno, open_private, read_private, set_errno};
use crate::request::{DeviceSet, Name, device_name};

/// Maximum number of devices of a tree.
const MAX_DEVICES: u32 = 16;
/// Maximum length of a netlink answer about a device, in bytes.
const ANSWER_BYTES: usize = 512;
/// Folder of the real folders of devices.
const VIRTUAL: &[u8] = b"/sys/devices/virtual/";
/// Prefix of the names of such trees, below the private tree.
const WITHOUT_PREFIX: &[u8] = b"/without-";
const DIGITS: usize = 4;

/// Number of devices of the tree, which never changes; 0 if it is not known yet. Programs open a thousand
/// files of a tree in a row, and each open looks at the devices.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns the devices of the tree that are present now.
pub(crate) fn devices() -> DeviceSet {
    let mut count = COUNT.load(Ordering::Relaxed);
    if count == 0 {
        count = (0..MAX_DEVICES).find(|device| !is_device(*device)).unwrap_or(MAX_DEVICES);
        COUNT.store(count, Ordering::Relaxed);
    }
    let mut devices = DeviceSet { count, ..DeviceSet::default() };
    for device in 0..count {
        let is_removed = condition(device, 1).is_some_and(|condition| condition.is_removed);
        devices.removed |= u64::from(is_removed) << device;
    }
    devices
}

/// Returns the condition of a device's port; `None` if nothing was counted yet, or if there is no such
/// device.
pub(crate) fn condition(device: u32, port: u32) -> Option<PortCondition> {
    let file = if port == 1 { &b"counted"[..] } else { b"counted2" };
    PortCondition::now(&[b"/netlink/", Name::of_device(device, file).bytes()])
}

fn is_device(device: u32) -> bool {
    open_private(&[b"/netlink/", Name::of_device(device, b"1").bytes()]).is_some()
}

/// Returns the suffix that leads from the private tree to the tree of the present devices, for this path;
/// empty if that is the private tree itself. Leaves errno unchanged.
pub(crate) fn suffix(path: &[u8]) -> Suffix {
    let before = errno();
    let devices = devices();
    let suffix = match devices.removed {
        0 => Suffix::default(),
        removed => {
            let suffix = Suffix::of(removed);
            // If the tree cannot be made, all devices are shown.
            let is_made = make(&suffix, devices).is_some();
            if is_made && !is_under_present_device(&suffix, path) { suffix } else { Suffix::default() }
        }
    };
    set_errno(before);
    suffix
}

/// Reports whether a path is below the real folder of a present device. That folder is in the private tree,
/// so that programs which follow links themselves do not find one more.
fn is_under_present_device(suffix: &Suffix, path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(VIRTUAL) else { return false };
    // The path is CLASS/NAME, followed by the rest.
    let mut slashes = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let Some(class) = slashes.next() else { return false };
    let end = slashes.next().unwrap_or(rest.len());
    let Some(device) = rest.get(..end).filter(|_| end > class + 1) else { return false };
    FileName::private(&[suffix.bytes(), VIRTUAL, device]).is_some_and(|name| name.exists())
}

/// A suffix of the private tree's name.
#[derive(Default)]
pub(crate) struct Suffix {
    bytes: [u8; WITHOUT_PREFIX.len() + DIGITS],
    length: usize,
}

impl Suffix {
    fn of(removed: u64) -> Suffix {
        let mut suffix = Suffix::default();
        let digits = (0..DIGITS as u32).rev().map(|digit| hexadecimal(removed >> (4 * digit) & 0xf));
        for (target, byte) in suffix.bytes.iter_mut().zip(WITHOUT_PREFIX.iter().copied().chain(digits)) {
            *target = byte;
            suffix.length += 1;
        }
        suffix
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

const fn hexadecimal(digit: u64) -> u8 {
    if digit < 10 { b'0' + digit as u8 } else { b'a' + (digit - 10) as u8 }
}

/// Removes such a suffix from the rest of a path behind the private tree's.
pub(crate) fn strip(path: &[u8]) -> &[u8] {
    let rest = path.strip_prefix(WITHOUT_PREFIX).and_then(|rest| rest.split_at_checked(DIGITS));
    match rest {
        Some((digits, rest)) if digits.iter().all(u8::is_ascii_hexdigit) => rest,
        _ => path,
    }
}

/// Folders of such a tree, outer ones first.
const FOLDERS: [&[u8]; 11] = [
    b"",
    b"/sys",
    b"/sys/class",
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/sys/devices",
    b"/sys/devices/virtual",
    b"/sys/devices/virtual/infiniband",
    b"/sys/devices/virtual/infiniband_verbs",
    b"/dev",
    b"/dev/infiniband",
];
/// Name of the folder that is made last, as a mark that the tree is complete.
const COMPLETE: &[u8] = b"/complete";

/// Makes the tree, if it does not exist. Other processes may be making it: each piece appears atomically, and
/// existing ones stay.
fn make(suffix: &Suffix, devices: DeviceSet) -> Option<()> {
    let end = suffix.bytes();
    let complete = FileName::private(&[end, COMPLETE])?;
    if complete.exists() {
        return Some(());
    }
    for folder in FOLDERS {
        FileName::private(&[end, folder])?.make_folder();
    }
    let link = |path: &[&[u8]], target: &FileName| -> Option<()> {
        let mut parts: [&[u8]; 4] = [end, b"", b"", b""];
        parts.iter_mut().skip(1).zip(path).for_each(|(to, part)| *to = part);
        FileName::private(&parts)?.make_link(target);
        Some(())
    };
    for same in [&b"/sys/class/infiniband_mad"[..], b"/sys/class/infiniband_verbs/abi_version"] {
        link(&[same], &FileName::private(&[same])?)?;
    }
    let nothing = FileName::of(&[b"/dev/null"])?;
    link(&[b"/dev/infiniband/rdma_cm"], &nothing)?;
    for device in (0..devices.count).filter(|device| devices.removed >> device & 1 == 0) {
        let mut answer = [0_u8; ANSWER_BYTES];
        let answer = read_private(&[b"/netlink/", Name::of_device(device, b"1").bytes()], &mut answer)?;
        let name = device_name(answer)?;
        let uverbs = Name::of_uverbs(device);
        for (class, name) in [(&b"infiniband/"[..], name), (b"infiniband_verbs/", uverbs.bytes())] {
            link(&[b"/sys/class/", class, name], &FileName::of(&[b"../../devices/virtual/", class, name])?)?;
            let there = FileName::private(&[VIRTUAL, class, name])?;
            link(&[VIRTUAL, class, name], &there)?;
        }
        link(&[b"/dev/infiniband/", uverbs.bytes()], &nothing)?;
    }
    complete.make_folder();
    complete.exists().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_tree_says_what_it_is_without() {
        assert_eq!(Suffix::of(0x8a01).bytes(), b"/without-8a01");
        assert_eq!(Suffix::of(2).bytes(), b"/without-0002");
        assert_eq!(Suffix::default().bytes(), b"");
        assert_eq!(strip(b"/without-0002/sys/class/infiniband"), b"/sys/class/infiniband");
        for other in [&b"/sys/class"[..], b"/without-", b"/without-00", b"/without-xxxx/sys", b""] {
            assert_eq!(strip(other), other);
        }
    }
}
