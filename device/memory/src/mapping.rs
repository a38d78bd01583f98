//! The mappings of the process, as the kernel reports them, and which mapped files are on a disk.
//!
//! Linux from 6.5 on pins no page of a shared writable mapping if the file system has to track writes,
//! because a device writes without notifying it (mm/gup.c, `writable_file_mapping_allowed`). This does not
//! concern files that are memory (of memfd_create(2), shmget(2), tmpfs or hugetlbfs), mounts with DAX, and
//! device nodes. Files of a file system that gives them another device number than its mount has (btrfs) are
//! not detected, and pass.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

use pumice_platform::error::ResourceError;
use pumice_platform::outside;

use super::on_demand;

/// Types of file systems whose files are memory or devices.
const IN_MEMORY: [&str; 7] = ["tmpfs", "devtmpfs", "ramfs", "hugetlbfs", "proc", "sysfs", "devpts"];

/// The device number of a file system: major, minor.
pub(super) type DeviceNumber = (u32, u32);

/// Returns the type of the file system on a disk with this device number; `None` if it is in memory or
/// unknown.
fn type_on_disk(device: DeviceNumber) -> Option<String> {
    let mounts = outside::files::fact_text("/proc/self/mountinfo").ok()?;
    find(&mounts, device)
}

/// Finds the type in the text of mountinfo, whose lines are
/// `id parent major:minor root place options fields… - type source options`.
fn find(mounts: &str, (major, minor): DeviceNumber) -> Option<String> {
    let number = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        if mount.nth(2) != Some(&number) {
            return None;
        }
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1).unwrap_or_default());
        let has_dax = options.split(',').any(|option| option.starts_with("dax") && option != "dax=never");
        (!IN_MEMORY.contains(&kind) && !has_dax).then(|| kind.to_owned())
    })
}

/// Checks that a range is mapped readable, and writable with `write`, and not behind the end of a file: what
/// a registration would pin. Where the kernel does not report it (no procfs), everything passes. Returns true
/// if some of it is of files.
///
/// # Errors
/// Fails with `BadAddress` if a part of it is not.
pub fn check_mapped(address: u64, length: u64, write: bool) -> Result<bool, ResourceError> {
    find_mappings(address, length, write).map(|found| found.has_files)
}

/// Checks a range as [`check_mapped`] does, and that a device could pin it: with `write`, that no part is a
/// shared writable mapping of a file on a disk.
///
/// # Errors
/// `BadAddress`: a part of the range is not mapped with these rights. `Refused`: a part of it is mapped from
/// such a file.
pub fn check_pinnable(address: u64, length: u64, write: bool) -> Result<bool, ResourceError> {
    let found = find_mappings(address, length, write)?;
    let kind = found.shared_writable.into_iter().find_map(type_on_disk);
    match kind {
        None => Ok(found.has_files),
        Some(kind) => Err(ResourceError::Refused {
            what: format!(
                "{length} bytes at {address:#x} have pages of a file on a disk ({kind}) that is mapped \
                 MAP_SHARED and for writing, which Linux does not pin since 6.5: map it MAP_PRIVATE or \
                 read-only, use memfd_create(2) or a file in /dev/shm, or register with IBV_ACCESS_ON_DEMAND"
            )
            .into(),
            errno: libc::EFAULT,
        }),
    }
}

/// Facts about the mappings of a range.
#[derive(Default)]
struct MappingFacts {
    has_files: bool,
    /// Device numbers of files that are mapped shared and writable; recorded only for a range to be written.
    shared_writable: Vec<DeviceNumber>,
}

fn find_mappings(address: u64, length: u64, write: bool) -> Result<MappingFacts, ResourceError> {
    if length == 0 {
        return Ok(MappingFacts::default());
    }
    let Ok(maps) = outside::files::open("/proc/self/maps") else { return Ok(MappingFacts::default()) };
    let wanted_range = WantedRange::new(address, length, write);
    let covered =
        wanted_range.is_covered_by_queries(&maps).unwrap_or_else(|| wanted_range.is_covered_by_list(maps));
    if covered {
        Ok(wanted_range.found.into_inner())
    } else {
        Err(ResourceError::BadAddress { address, length })
    }
}

/// Returns the mapping that has an address; `None` too where the kernel does not report it.
pub fn mapping_at(address: u64) -> Option<Range<u64>> {
    let maps = outside::files::open("/proc/self/maps").ok()?;
    if let Some(answer) = ProcmapQuery::query_kernel(&maps, address) {
        return answer.map(|mapping| mapping.start..mapping.end);
    }
    let lines = BufReader::with_capacity(1 << 14, maps).split(b'\n').map_while(Result::ok);
    let mappings = lines.filter_map(|line| Mapping::parse(&line));
    mappings.map(|mapping| mapping.start..mapping.end).find(|range| range.contains(&address))
}

/// A range that should be mapped with rights.
struct WantedRange {
    address: u64,
    end: u64,
    write: bool,
    /// Facts about the mappings that were met.
    found: RefCell<MappingFacts>,
}

impl WantedRange {
    fn new(address: u64, length: u64, write: bool) -> WantedRange {
        WantedRange { address, end: address.saturating_add(length), write, found: RefCell::default() }
    }

    fn is_granted_by(&self, mapping: &Mapping) -> bool {
        mapping.readable && (mapping.writable || !self.write) && self.has_pages_of(mapping)
    }

    /// Reports whether the range's last page in a mapped file exists: then those before it do. Pages of other
    /// memory come with the first access.
    fn has_pages_of(&self, mapping: &Mapping) -> bool {
        self.note(mapping);
        let last = mapping.end.min(self.end).saturating_sub(1);
        let can_look = mapping.is_file && last >= self.address && on_demand::is_available();
        !can_look || on_demand::load(last, &mut [0]).is_ok()
    }

    /// Records the facts about a mapping that was met.
    fn note(&self, mapping: &Mapping) {
        let mut found = self.found.borrow_mut();
        found.has_files |= mapping.is_file;
        let is_noticed = self.write && mapping.is_file && mapping.is_shared && mapping.writable;
        if is_noticed && !found.shared_writable.contains(&mapping.device) {
            found.shared_writable.push(mapping.device);
        }
    }

    /// Asks for one mapping after the other, which Linux answers since 6.11; `None` if it does not.
    fn is_covered_by_queries(&self, maps: &File) -> Option<bool> {
        let mut covered_to = self.address;
        while covered_to < self.end {
            let Some(mapping) = ProcmapQuery::query_kernel(maps, covered_to)? else { return Some(false) };
            if !self.is_granted_by(&mapping) || mapping.end <= covered_to {
                return Some(false);
            }
            covered_to = mapping.end;
        }
        Some(true)
    }

    /// Reads the list of all mappings, up to those of the range.
    fn is_covered_by_list(&self, maps: File) -> bool {
        let mut covered_to = self.address;
        let mut reader = BufReader::with_capacity(1 << 14, maps);
        let mut line = Vec::with_capacity(256);
        while covered_to < self.end {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return false,
                Ok(_) => {}
                // A list that cannot be read proves nothing.
                Err(_) => return true,
            }
            let Some(mapping) = Mapping::parse(&line) else { continue };
            if mapping.end <= covered_to {
                continue;
            }
            if mapping.start > covered_to || !self.is_granted_by(&mapping) {
                return false;
            }
            covered_to = mapping.end;
        }
        true
    }
}

/// `struct procmap_query` of linux/fs.h.
#[derive(Default)]
#[repr(C)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    /// Lengths and addresses of names and build IDs, which are not requested.
    rest: [u64; 3],
}

impl ProcmapQuery {
    /// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
    const REQUEST: u32 = 3 << 30 | (size_of::<ProcmapQuery>() as u32) << 16 | (b'f' as u32) << 8 | 17;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
    const SHARED: u64 = 8;

    /// Returns the mapping at an address: `Some(None)` if there is none, `None` if the kernel does not
    /// answer.
    fn query_kernel(maps: &File, address: u64) -> Option<Option<Mapping>> {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_addr: address,
            ..ProcmapQuery::default()
        };
        // SAFETY: a structure of the size that the request says, for the kernel to write to.
        let outcome = unsafe { libc::ioctl(maps.as_raw_fd(), ProcmapQuery::REQUEST as _, &raw mut query) };
        if outcome == 0 {
            return Some(Some(Mapping {
                start: query.vma_start,
                end: query.vma_end,
                readable: query.vma_flags & ProcmapQuery::READABLE != 0,
                writable: query.vma_flags & ProcmapQuery::WRITABLE != 0,
                is_file: query.inode != 0,
                is_shared: query.vma_flags & ProcmapQuery::SHARED != 0,
                device: (query.dev_major, query.dev_minor),
            }));
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT) => Some(None),
            _ => None,
        }
    }
}

/// A part of the address space. A line of the list is `start-end rights offset device inode …`, the addresses
/// in hexadecimal.
struct Mapping {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
    /// The mapping is not memory that is the process's alone.
    is_file: bool,
    is_shared: bool,
    device: DeviceNumber,
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Mapping> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut bounds = words.next()?.split(|byte| *byte == b'-').map(hexadecimal);
        let rights = words.next()?;
        let mut device = words.nth(1)?.split(|byte| *byte == b':').map(hexadecimal);
        let mut number = || u32::try_from(device.next()??).ok();
        let device = (number()?, number()?);
        let inode = words.next()?;
        Some(Mapping {
            start: bounds.next()??,
            end: bounds.next()??,
            readable: rights.contains(&b'r'),
            writable: rights.contains(&b'w'),
            is_file: inode != b"0",
            is_shared: rights.contains(&b's'),
            device,
        })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn the_list_of_mounts_says_what_is_on_a_disk() {
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                      24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro\n\
                      25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=1k\n\
                      26 24 0:44 / /a\\040-\\040b rw master:2 - overlay overlay rw,lowerdir=/l\n\
                      27 24 259:1 / /pmem rw - xfs /dev/pmem0 rw,attr2,dax=always,inode64\n\
                      28 24 259:2 / /plain rw - xfs /dev/pmem1 rw,dax=never\n\
                      29 24 0:50\n";
        let kind = |major, minor| find(mounts, (major, minor));
        assert_eq!(kind(254, 0).as_deref(), Some("ext4"));
        assert_eq!(kind(0, 44).as_deref(), Some("overlay"));
        assert_eq!(kind(259, 2).as_deref(), Some("xfs"));
        for (major, minor) in [(0, 21), (0, 23), (259, 1), (0, 1), (0, 50), (25, 4)] {
            assert_eq!(kind(major, minor), None, "{major}:{minor}");
        }
    }

    #[test]
    fn lines_are_read() {
        let line = b"7f10a000-7f10b000 r--p 00001000 fd:00 131 /usr/lib/x y.so\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f10_a000, 0x7f10_b000));
        assert!(mapping.readable && !mapping.writable && mapping.is_file && !mapping.is_shared);
        assert_eq!(mapping.device, (0xfd, 0));
        assert!(Mapping::parse(b"7f10a000-7f10b000 rw-s 00000000 00:01 9 /memfd:x\n").unwrap().is_shared);
        assert!(!Mapping::parse(b"7f10a000-7f10b000 rw-p 00000000 00:00 0 \n").unwrap().is_file);
        for bad in [&b""[..], b"x-y r--p", b"12", b"12 rw", b"1-2", b"1-2 r--p 0 9 1"] {
            assert!(Mapping::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn ranges_are_mapped_with_their_rights_or_not() {
        static CONSTANT: [u8; 9] = [3; 9];
        let here = CONSTANT.as_ptr() as u64;
        let buffer = vec![0_u8; 3 << 20];
        let writable = buffer.as_ptr() as u64;
        // (first, bytes, write, mapped)
        let table = [
            (here, 9, false, true),
            (writable, 3 << 20, true, true),
            (here, 9, true, false),
            (writable, 1 << 46, true, false),
            (8, 1, false, false),
            (u64::MAX - 9, 9, false, false),
        ];
        for (address, length, write, mapped) in table {
            let result = check_mapped(address, length, write);
            assert_eq!(
                result.map(|_| ()).map_err(|error| error.errno()),
                if mapped { Ok(()) } else { Err(libc::EFAULT) }
            );
            let wanted_range = WantedRange::new(address, length, write);
            let maps = || File::open("/proc/self/maps").unwrap();
            assert_eq!(wanted_range.is_covered_by_list(maps()), mapped, "{length} bytes at {address:#x}");
            assert!(wanted_range.is_covered_by_queries(&maps()).is_none_or(|covered| covered == mapped));
        }
        assert_eq!(check_mapped(writable, 3 << 20, true), Ok(false));
        assert_eq!(check_mapped(8, 0, true), Ok(false));
    }

    #[test]
    fn what_lies_behind_the_end_of_a_file_is_not_there() {
        let page = 1 << 16;
        let file = File::from(memfd_create("pumice-test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(page).unwrap();
        let map = MmapOptions::new().len(2 * page as usize).map_raw(&file).unwrap();
        let first = map.as_ptr().expose_provenance() as u64;
        let errno = |first, length| check_mapped(first, length, true).map_err(|error| error.errno());
        assert_eq!(errno(first, page), Ok(true), "a sparse file");
        assert_eq!(errno(first, page + 1), Err(libc::EFAULT));
        assert_eq!(errno(first + page, page), Err(libc::EFAULT));
        let wanted_range = WantedRange::new(first, 2 * page, true);
        assert!(!wanted_range.is_covered_by_list(File::open("/proc/self/maps").unwrap()));
        assert!(wanted_range.is_covered_by_queries(&File::open("/proc/self/maps").unwrap()) != Some(true));
        file.set_len(2 * page).unwrap();
        assert_eq!(errno(first, 2 * page), Ok(true));
        let range = mapping_at(first + page).unwrap();
        assert!(range.start <= first && range.end >= first + 2 * page);
        assert_eq!(mapping_at(8), None);
    }

    #[test]
    fn a_shared_file_on_a_disk_cannot_be_pinned_for_writing() {
        let page = 1 << 16;
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let path = folder.join(format!("pumice-pinned-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(page).unwrap();
        let about = rustix::fs::fstat(&file).unwrap();
        let device = (rustix::fs::major(about.st_dev), rustix::fs::minor(about.st_dev));
        let is_on_disk = type_on_disk(device).is_some();
        let shared = MmapOptions::new().len(page as usize).map_raw(&file).unwrap();
        let at = |map: &memmap2::MmapRaw| map.as_ptr().expose_provenance() as u64;
        let errno = |map: &memmap2::MmapRaw, write| {
            check_pinnable(at(map), page, write).map_err(|error| error.errno())
        };
        assert_eq!(errno(&shared, true), if is_on_disk { Err(libc::EFAULT) } else { Ok(true) });
        assert_eq!(errno(&shared, false), Ok(true));
        assert_eq!(check_mapped(at(&shared), page, true).ok(), Some(true), "no pin, no refusal");
        if is_on_disk {
            let sentence = check_pinnable(at(&shared), page, true).unwrap_err().to_string();
            assert!(sentence.contains("MAP_SHARED") && sentence.contains("memfd_create"), "{sentence}");
            let by_list = WantedRange::new(at(&shared), page, true);
            assert!(by_list.is_covered_by_list(File::open("/proc/self/maps").unwrap()));
            assert_eq!(by_list.found.into_inner().shared_writable, [device]);
        }
        let private = memmap2::MmapRaw::from(MmapOptions::new().len(page as usize).map_anon().unwrap());
        assert_eq!(errno(&private, true), Ok(false));
        let memory = File::from(memfd_create("pumice-test", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(page).unwrap();
        assert_eq!(errno(&MmapOptions::new().map_raw(&memory).unwrap(), true), Ok(true));
    }
}
