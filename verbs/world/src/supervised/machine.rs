//! The machine of every world, and its files below /sys/devices/system.

/// Number of processors of the machine.
pub(crate) const PROCESSORS: u32 = 4;
/// Memory of the machine, in bytes.
pub(crate) const MEMORY: u64 = 16 << 30;
/// Folders with facts about the machine, and that of shared memory by name: every world has them, but empty.
pub(crate) const EMPTY_FOLDERS: [&str; 16] = [
    "/sys/bus/pci/devices",
    "/sys/bus/pci/slots",
    "/sys/bus/dax/devices",
    "/sys/bus/cxl/devices",
    "/sys/class/thermal",
    "/sys/class/net",
    "/sys/class/block",
    "/sys/class/dmi",
    "/sys/class/dma",
    "/sys/class/drm",
    "/sys/block",
    "/sys/devices/virtual/dmi",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/hugepages",
    // The world's own files are put into these.
    SYSTEM,
    SHARED_MEMORY,
];
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
/// Folder in which the kernel describes processors and memory.
pub(crate) const SYSTEM: &str = "/sys/devices/system";
/// Folder of temporary files, in one of those: it is empty, so that files of an earlier run have no effect.
pub(crate) const TEMPORARY: &str = "/dev/shm/tmp";

/// Files below /proc and /sys with the same contents in every run, and folders of such files. In these names,
/// `self` is any process of the world.
const STEADY: [&str; 24] = [
    "/proc/self",
    "/proc/self/exe",
    // Files of the process itself, and of the world's own network.
    "/proc/self/fd",
    "/proc/self/mem",
    "/proc/self/uid_map",
    "/proc/self/gid_map",
    "/proc/self/setgroups",
    "/proc/self/cmdline",
    "/proc/self/comm",
    "/proc/self/environ",
    "/proc/self/limits",
    "/proc/self/oom_score_adj",
    "/proc/self/task",
    "/proc/self/net/if_inet6",
    "/proc",
    "/proc/net/if_inet6",
    "/proc/filesystems",
    // Settings of the machine, which programs do not change.
    "/proc/sys/net",
    "/proc/sys/vm",
    "/proc/sys/user",
    "/proc/sys/kernel",
    "/proc/sys/fs",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/kernel/mm",
];
/// The folders of this list whose files are all steady, at any depth.
const WHOLE_FOLDERS: [&str; 5] = [
    "/proc/self/fd",
    "/proc/sys/net",
    "/proc/sys/vm",
    "/proc/sys/user",
    "/sys/kernel/mm/transparent_hugepage",
];
/// Settings that are steady, of folders that have other files as well.
const SETTINGS: [(&str, &[&str]); 2] = [
    (
        "/proc/sys/kernel/",
        &[
            "osrelease",
            "ostype",
            "version",
            "hostname",
            "domainname",
            "pid_max",
            "threads-max",
            "core_pattern",
            "core_uses_pid",
            "shmmax",
            "shmall",
            "shmmni",
            "sem",
            "msgmax",
            "msgmnb",
            "msgmni",
            "ngroups_max",
            "cap_last_cap",
            "randomize_va_space",
            "overflowuid",
            "overflowgid",
            "yama",
            "yama/ptrace_scope",
            "seccomp",
            "seccomp/actions_avail",
            "unprivileged_bpf_disabled",
            "perf_event_paranoid",
            "dmesg_restrict",
            "kptr_restrict",
            "numa_balancing",
            "io_uring_disabled",
            "unprivileged_userns_clone",
            "sched_rr_timeslice_ms",
        ],
    ),
    (
        "/proc/sys/fs/",
        &[
            "file-max",
            "nr_open",
            "pipe-max-size",
            "pipe-user-pages-hard",
            "pipe-user-pages-soft",
            "aio-max-nr",
            "overflowuid",
            "overflowgid",
            "suid_dumpable",
            "lease-break-time",
            "leases-enable",
            "protected_fifos",
            "protected_hardlinks",
            "protected_regular",
            "protected_symlinks",
            "inotify/max_user_instances",
            "inotify/max_user_watches",
            "inotify/max_queued_events",
            "epoll/max_user_watches",
            "mqueue/msg_max",
            "mqueue/msgsize_max",
            "mqueue/queues_max",
        ],
    ),
];
/// Files of steady folders that hold keys, which are random.
const KEYS: [&str; 2] = ["tcp_fastopen_key", "stable_secret"];

/// Reports whether the contents of a file may differ in the next run. The processes of the world have the
/// name `self` in the path.
pub(crate) fn is_unsteady(path: &str) -> bool {
    const PLAIN_DEVICES: [&str; 7] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm", "/dev/fd", "/dev/std"];
    let is_of_kernel = ["/proc", "/sys", "/dev"].iter().any(|root| is_in(path, root));
    let is_setting = SETTINGS
        .iter()
        .any(|(folder, names)| path.strip_prefix(folder).is_some_and(|name| names.contains(&name)));
    let is_steady = (STEADY.contains(&path.trim_end_matches('/'))
        || is_setting
        || is_thread_name(path)
        || WHOLE_FOLDERS.iter().any(|folder| is_in(path, folder)))
        && !KEYS.iter().any(|key| path.ends_with(key));
    is_of_kernel
        && path != "/dev"
        && !is_steady
        && !PLAIN_DEVICES.iter().any(|device| path.starts_with(device))
}

/// Reports whether this is the file with the name of a thread, or the folder of a thread.
fn is_thread_name(path: &str) -> bool {
    let thread = path.strip_prefix("/proc/self/task/").map(|rest| rest.trim_end_matches("/comm"));
    thread.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reports whether a path is a folder, or in it.
fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A file or, without a text, a folder; folders come before their contents.
pub(crate) struct SyntheticFile {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

/// Returns all files and folders.
pub(crate) fn machine_files() -> Vec<SyntheticFile> {
    let mut files = Vec::new();
    let all = format!("0-{}", PROCESSORS - 1);
    let mask = format!("{:x}", (1_u32 << PROCESSORS) - 1);
    add_folder(&mut files, "cpu");
    for name in ["online", "possible", "present"] {
        add(&mut files, &format!("cpu/{name}"), &all);
    }
    add(&mut files, "cpu/offline", "");
    for processor in 0..PROCESSORS {
        let folder = format!("cpu/cpu{processor}");
        add_folder(&mut files, &folder);
        let folder = format!("{folder}/topology");
        add_folder(&mut files, &folder);
        let (number, own_mask) = (processor.to_string(), format!("{:x}", 1_u32 << processor));
        add(&mut files, &format!("{folder}/core_id"), &number);
        for name in ["physical_package_id", "die_id", "cluster_id"] {
            add(&mut files, &format!("{folder}/{name}"), "0");
        }
        for name in ["thread_siblings", "core_cpus"] {
            add(&mut files, &format!("{folder}/{name}"), &own_mask);
            add(&mut files, &format!("{folder}/{name}_list"), &number);
        }
        for name in ["core_siblings", "package_cpus", "die_cpus"] {
            add(&mut files, &format!("{folder}/{name}"), &mask);
            add(&mut files, &format!("{folder}/{name}_list"), &all);
        }
    }
    add_folder(&mut files, "node");
    for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
        add(&mut files, &format!("node/{name}"), "0");
    }
    add_folder(&mut files, "node/node0");
    let (total, free) = (MEMORY / 1024, MEMORY / 2048);
    let memory = format!(
        "Node 0 MemTotal: {total:>14} kB\nNode 0 MemFree: {free:>15} kB\nNode 0 MemUsed: {free:>15} kB"
    );
    for (name, text) in [("cpumap", &*mask), ("cpulist", &*all), ("distance", "10"), ("meminfo", &*memory)] {
        add(&mut files, &format!("node/node0/{name}"), text);
    }
    files
}

fn add_folder(files: &mut Vec<SyntheticFile>, name: &str) {
    files.push(SyntheticFile { path: format!("{SYSTEM}/{name}"), text: None });
}

fn add(files: &mut Vec<SyntheticFile>, name: &str, line: &str) {
    files.push(SyntheticFile { path: format!("{SYSTEM}/{name}"), text: Some(format!("{line}\n")) });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{is_unsteady, *};

    #[test]
    fn what_the_kernel_says_of_the_machine_is_doubted() {
        let unsteady = [
            "/proc/self/stat",
            "/sys/class/thermal/temp",
            "/proc/sys/kernel/random/entropy_avail",
            "/proc/sys/fs/file-nr",
            "/proc/sys/net/ipv4/tcp_fastopen_key",
            "/proc/self/fdinfo/3",
            "/proc/self/task/7/stat",
            "/proc/1/environ",
            "/proc/vmstat",
            "/dev/pts/3",
        ];
        assert_eq!(unsteady.iter().find(|path| !is_unsteady(path)), None);
        let steady = [
            "/etc/hosts",
            "/dev/null",
            "/dev/shm/x",
            "/proc/self/exe",
            "/proc/self/fd/3",
            "/proc/self/task/7/comm",
            "/proc/sys/kernel/osrelease",
            "/proc/sys/net/core/somaxconn",
            "/proc/sys/fs/pipe-max-size",
            "/proc",
            "/processes/1",
        ];
        assert_eq!(steady.iter().find(|path| is_unsteady(path)), None);
    }

    #[test]
    fn folders_stand_before_what_is_in_them() {
        let mut folders = BTreeSet::from([SYSTEM.to_owned()]);
        for file in machine_files() {
            let (folder, _) = file.path.rsplit_once('/').unwrap();
            assert!(folders.contains(folder), "{}", file.path);
            if file.text.is_none() {
                folders.insert(file.path);
            }
        }
    }
}
