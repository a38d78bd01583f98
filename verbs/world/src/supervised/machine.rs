//! The machine of every world: what programs can learn of it is the same everywhere.

/// The processors that every machine of a world has.
pub(crate) const PROCESSORS: u32 = 4;
/// Its memory, in bytes.
pub(crate) const MEMORY: u64 = 16 << 30;
/// Folders of facts of the machine, and the one of memory that processes share by name: every world has them,
/// without what is there.
pub(crate) const EMPTY_FOLDERS: [&str; 14] = [
    "/sys/bus/pci/devices",
    "/sys/bus/pci/slots",
    "/sys/bus/dax/devices",
    "/sys/bus/cxl/devices",
    "/sys/class/thermal",
    "/sys/class/net",
    "/sys/class/block",
    "/sys/class/dmi",
    "/sys/block",
    "/sys/devices/virtual/dmi",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/hugepages",
    // The world's own files are put there.
    SYSTEM,
    SHARED_MEMORY,
];
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
/// Where the kernel says what processors and memory there are.
pub(crate) const SYSTEM: &str = "/sys/devices/system";
/// The folder of temporary files, in one of those: what an earlier run left decides nothing.
pub(crate) const TEMPORARY: &str = "/dev/shm/tmp";

/// Files below /proc and /sys that say the same in every run.
const STEADY: [&str; 12] = [
    "/proc/self/exe",
    // Of the process itself, and of the world's own network.
    "/proc/self/fd",
    "/proc/self/mem",
    "/proc/self/uid_map",
    "/proc/self/setgroups",
    "/proc/net/if_inet6",
    "/proc/self/cmdline",
    "/proc/self/comm",
    "/proc/self/task",
    "/proc/sys/",
    "/proc/filesystems",
    "/sys/kernel/mm/transparent_hugepage/",
];

/// Whether what is read there may be otherwise in the next run.
pub(crate) fn is_unsteady(path: &str) -> bool {
    let is_of_kernel = ["/proc/", "/sys/", "/dev/"].iter().any(|root| path.starts_with(root));
    let is_plain_device =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm/", "/dev/fd/", "/dev/std"];
    is_of_kernel
        && !STEADY.iter().any(|steady| path.starts_with(steady))
        && !is_plain_device.iter().any(|device| path.starts_with(device))
}

#[cfg(test)]
mod tests {
    use super::is_unsteady;

    #[test]
    fn what_the_kernel_says_of_the_machine_is_doubted() {
        assert!(is_unsteady("/proc/self/stat") && is_unsteady("/sys/class/thermal/temp"));
        assert!(!is_unsteady("/etc/hosts") && !is_unsteady("/dev/null") && !is_unsteady("/proc/self/exe"));
    }
}
