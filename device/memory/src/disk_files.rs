//! Detection of mapped files that are on a disk, by the list of mounted file systems.
//!
//! Linux from 6.5 on pins no page of a shared writable mapping if the file system has to track writes,
//! because a device writes without notifying it (mm/gup.c, `writable_file_mapping_allowed`). This does not
//! concern files that are memory (of memfd_create(2), shmget(2), tmpfs or hugetlbfs), mounts with DAX, and
//! device nodes. Files of a file system that gives them another device number than its mount has (btrfs) are
//! not detected, and pass.

use pumice_platform::outside;

/// Types of file systems whose files are memory or devices.
const IN_MEMORY: [&str; 7] = ["tmpfs", "devtmpfs", "ramfs", "hugetlbfs", "proc", "sysfs", "devpts"];

/// The device number of a file system: major, minor.
pub(super) type DeviceNumber = (u32, u32);

/// Returns the type of the file system on a disk with this device number; `None` if it is in memory or
/// unknown.
pub(super) fn type_on_disk(device: DeviceNumber) -> Option<String> {
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

#[cfg(test)]
mod tests {
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
}
