//! The private tree while a device is pulled out: a tree of links to what remains is made in it, and paths
//! lead there. Its name says which devices it is without, so that it never changes either.

use crate::attributes::device_name;
use crate::condition::Condition;
use crate::kernel::{FileName, open_private, read_private};
use crate::original::{errno, set_errno};
use crate::request::{Devices, Name};

/// Devices that a tree has at most.
const MOST_DEVICES: u32 = 16;
/// Room for what netlink answers about a device.
const ANSWER_BYTES: usize = 512;
/// Where the real folders of devices are.
const VIRTUAL: &[u8] = b"/sys/devices/virtual/";
/// What the names of such trees begin with, below the private tree.
const WITHOUT: &[u8] = b"/without-";
const DIGITS: usize = 4;

/// The devices of the tree now.
pub(crate) fn devices() -> Devices {
    let mut devices = Devices::default();
    while devices.count < MOST_DEVICES {
        match condition(devices.count, 1) {
            Some(condition) => devices.gone |= u64::from(condition.is_gone) << devices.count,
            None if !is_device(devices.count) => break,
            None => {}
        }
        devices.count += 1;
    }
    devices
}

/// What a port of a device is in; none if nothing was counted yet, or there is no such device.
pub(crate) fn condition(device: u32, port: u32) -> Option<Condition> {
    let file = if port == 1 { &b"counted"[..] } else { b"counted2" };
    Condition::now(&[b"/netlink/", Name::of_device(device, file).bytes()])
}

fn is_device(device: u32) -> bool {
    open_private(&[b"/netlink/", Name::of_device(device, b"1").bytes()]).is_some()
}

/// The end of the name of the tree in which a path leads to what there is now, behind that of the private
/// tree; empty if it is the private tree itself. The errno stays.
pub(crate) fn suffix(path: &[u8]) -> Suffix {
    let before = errno();
    let devices = devices();
    let suffix = match devices.gone {
        0 => Suffix::default(),
        gone => {
            let suffix = Suffix::of(gone);
            // Where it cannot be made, all devices are shown.
            let is_made = make(&suffix, devices).is_some();
            if is_made && !is_of_remaining(&suffix, path) { suffix } else { Suffix::default() }
        }
    };
    set_errno(before);
    suffix
}

/// Whether a path is below the real folder of a device that is there: that folder is in the private tree, so
/// that programs which follow links themselves do not come to one more.
fn is_of_remaining(suffix: &Suffix, path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(VIRTUAL) else { return false };
    // CLASS/NAME, and what is behind it.
    let mut slashes = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let Some(class) = slashes.next() else { return false };
    let end = slashes.next().unwrap_or(rest.len());
    let Some(device) = rest.get(..end).filter(|_| end > class + 1) else { return false };
    FileName::private(&[suffix.bytes(), VIRTUAL, device]).is_some_and(|name| name.is_there())
}

/// The end of a name.
#[derive(Default)]
pub(crate) struct Suffix {
    bytes: [u8; WITHOUT.len() + DIGITS],
    length: usize,
}

impl Suffix {
    fn of(gone: u64) -> Suffix {
        let mut suffix = Suffix::default();
        let digits = (0..DIGITS as u32).rev().map(|digit| hexadecimal(gone >> (4 * digit) & 0xf));
        for (target, byte) in suffix.bytes.iter_mut().zip(WITHOUT.iter().copied().chain(digits)) {
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

/// What is behind such an end of a name in a path behind that of the private tree.
pub(crate) fn strip(path: &[u8]) -> &[u8] {
    let rest = path.strip_prefix(WITHOUT).and_then(|rest| rest.split_at_checked(DIGITS));
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
/// A folder that is made last: then the tree is whole.
const COMPLETE: &[u8] = b"/complete";

/// Makes the tree, if it is not there. Others may be making it: each piece appears at once, and what is
/// there stays.
fn make(suffix: &Suffix, devices: Devices) -> Option<()> {
    let end = suffix.bytes();
    let complete = FileName::private(&[end, COMPLETE])?;
    if complete.is_there() {
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
    for device in (0..devices.count).filter(|device| devices.gone >> device & 1 == 0) {
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
    complete.is_there().then_some(())
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
