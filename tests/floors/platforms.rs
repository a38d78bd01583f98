//! What ties pumice to Linux and to a processor, as a list: everything else is portable Rust.
//!
//! docs/platforms.md says what the list means for other systems.

use std::path::Path;

use super::assert_no;
use super::source::{code_lines, first_test_line};
use super::tree::{files, read, tracked_files};

/// Names that only Linux has, in code.
const LINUX_NAMES: &[&str] = &[
    "EventfdFlags",
    "eventfd(",
    "epoll",
    "memfd",
    "SealFlags",
    "NETLINK",
    "netlink::",
    "AddressFamily::NETLINK",
    "UDP_SEGMENT",
    "UDP_GRO",
    "CBPF",
    "SCM_CREDENTIALS",
    "SYS_",
    "ppoll",
    "process_vm_",
    "OFD_",
    "pipe_with",
    "MADV_",
    "fstatfs",
    "futex",
    "pidfd",
    "LinkNameSpaceType",
    "rustix::thread",
    "os::linux",
    "dl_iterate_phdr",
    "SOCK_CLOEXEC",
];

/// Folders that only Linux has, in strings.
const LINUX_FOLDERS: &[&str] = &["\"/proc", "\"/sys", "\"/dev/shm"];

/// The files of transport, device, verbs and the command line that have such names: the work of another
/// system. Libraries that take the place of Linux libraries (verbs/capi, the preloads) are not asked.
const LINUX_EDGES: &[&str] = &[
    "device/src/process_statuses.rs",
    "src/hang/hosts.rs",
    "device/model/src/addresses/address_handle.rs",
    "device/memory/src/access.rs",
    "device/memory/src/advice.rs",
    "device/memory/src/device_memory.rs",
    "device/memory/src/mapping.rs",
    "device/memory/src/file_mapping.rs",
    "device/memory/src/mapping.rs",
    "device/memory/src/on_demand.rs",
    "device/memory/src/residence.rs",
    "device/platform/src/packet_socket/mod.rs",
    "device/platform/src/udp/message.rs",
    "device/platform/src/udp/mod.rs",
    "device/fabric/src/system/datagram.rs",
    "device/fabric/src/files/lock.rs",
    "device/fabric/src/shared_port/memory_folder.rs",
    "device/fabric/src/files/runtime_folders.rs",
    "device/fabric/src/members/process.rs",
    "device/fabric/src/system/real.rs",
    "device/platform/src/udp/unread.rs",
    "device/fabric/src/system/ring_pages.rs",
    "device/analysis/src/sysfs/mod.rs",
    "device/analysis/src/sysfs/netlink.rs",
    "device/platform/src/outside/process.rs",
    "device/platform/src/outside/data_watch/pair.rs",
    "device/platform/src/outside/data_watch/mod.rs",
    "device/platform/src/outside/event_fd.rs",
    "device/platform/src/outside/event_fd.rs",
    "device/platform/src/outside/fault_guard/record.rs",
    "device/platform/src/outside/interface.rs",
    "device/platform/src/outside/fork_generation.rs",
    "device/platform/src/outside/neighbour.rs",
    "device/platform/src/outside/process.rs",
    "device/platform/src/outside/system_call.rs",
    "device/platform/src/outside/system_call.rs",
    "device/recording/src/recorder/subscriber.rs",
    "src/doctor/loopback.rs",
    "src/doctor/mod.rs",
    "src/doctor/device.rs",
    "src/explain/errno.rs",
    "src/observe/words.rs",
    "src/outcome.rs",
    "src/run/child_wait.rs",
    "src/run/unused_trees.rs",
    "src/run/preload.rs",
    "src/same_host.rs",
    "src/stat/listen/mod.rs",
    "src/stat/listen/peer.rs",
    "src/sweep/child.rs",
    "src/sweep/child.rs",
    "verbs/perf/src/machine.rs",
    "verbs/perf/src/machine.rs",
    "verbs/perf/src/memory.rs",
];

/// What must run on every system with Rust's standard library: the protocol, the simulated network, and the
/// commands that need no device.
const PORTABLE: &[&str] = &[
    "transport/src",
    "device/engine/src/engine",
    "device/engine/src/driver",
    "device/model/src/event",
    "device/faults/src",
    "device/platform/src",
    "device/fabric/src/gsi",
    "device/engine/src/objects",
    "device/fabric/src/simulated",
    "device/engine/src/world.rs",
    "verbs/src",
    "src/capture",
];

/// What stands in the folder of a portable crate and is not portable.
const NOT_PORTABLE: &[&str] =
    &["device/platform/src/outside", "device/platform/src/packet_socket", "device/platform/src/udp"];

/// No edges, though they name Linux: calls of C programs, the simulated kernel of tests, tests.
const NO_EDGES: &[&str] =
    &["device/calls", "device/fabric/src/simulation", "device/tests", "device/examples"];

/// Files that may name a processor: each has an arm for every one that pumice is built for.
const PROCESSOR_EDGES: &[&str] = &[
    "verbs/capi/build.rs",
    "verbs/sysfs/src/bundled.rs",
    "verbs/capi/src/platform/thread_destructors.rs",
    "verbs/capi/tests/abi.rs",
    "tests/cli_doctor.rs",
    "device/platform/src/outside/fault_guard/call.rs",
    // Calls that pass the C library are watched on x86-64 alone.
    "verbs/capi/src/mappings/own_calls/stub.rs",
    "verbs/capi/src/mappings/calls.rs",
    // The supervisor of worlds as a whole is for x86-64.
    "verbs/world/src/supervised/clock_code.rs",
];

/// Calls of the kernel that it has on x86-64 alone: other processors have a newer one in the place of each.
const CALLS_OF_X86_64: &[&str] = &[
    "access",
    "alarm",
    "chmod",
    "chown",
    "creat",
    "dup2",
    "epoll_create",
    "epoll_wait",
    "eventfd",
    "fork",
    "getdents",
    "inotify_init",
    "link",
    "lstat",
    "mkdir",
    "mknod",
    "open",
    "pause",
    "pipe",
    "poll",
    "readlink",
    "rename",
    "rmdir",
    "select",
    "signalfd",
    "stat",
    "symlink",
    "time",
    "unlink",
    "utime",
    "vfork",
];

/// Scripts that are about one processor.
const PROCESSOR_SCRIPTS: &[&str] =
    &["scripts/tsan", "scripts/rxe-lab", "scripts/arm-lab", "scripts/package", "scripts/package.d"];

/// What of a line ties it to Linux.
fn linux(code: &str, line: &str) -> Option<&'static str> {
    let is_comment = line.trim_start().starts_with("//");
    let name = LINUX_NAMES.iter().find(|name| code.contains(**name));
    name.or_else(|| LINUX_FOLDERS.iter().find(|folder| !is_comment && line.contains(**folder))).copied()
}

/// Files with names of Linux, and the first of each.
fn edges() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for source in ["transport/src", "device", "verbs/src", "verbs/perf/src", "src"]
        .map(|folder| files(folder, "rs"))
        .concat()
        .into_iter()
        .filter(|file| !NO_EDGES.iter().any(|folder| file.starts_with(folder)))
    {
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        let first = code_lines(&text)
            .into_iter()
            .zip(text.lines())
            .filter(|((number, _), _)| *number < tests_from)
            .find_map(|((number, code), line)| linux(&code, line).map(|name| format!("{number}: {name}")));
        found.extend(first.map(|first| (source.to_string_lossy().into_owned(), first)));
    }
    found
}

#[test]
fn what_only_linux_has_is_named_in_listed_files_only() {
    let found = edges();
    let mut faults: Vec<String> = found
        .iter()
        .filter(|(file, _)| !LINUX_EDGES.contains(&file.as_str()))
        .map(|(file, first)| format!("{file}:{first} is Linux's alone: use an edge, or list the file"))
        .collect();
    let stale = LINUX_EDGES.iter().filter(|edge| !found.iter().any(|(file, _)| file == *edge));
    faults.extend(
        stale.map(|edge| format!("{edge} is listed and names nothing of Linux: take it off the list")),
    );
    assert_no(faults);
}

#[test]
fn the_protocol_and_its_simulation_name_nothing_of_linux() {
    let is_in =
        |file: &str, folders: &[&str]| folders.iter().any(|folder| Path::new(file).starts_with(folder));
    let is_portable = |file: &&&str| is_in(file, PORTABLE) && !is_in(file, NOT_PORTABLE);
    let faults = LINUX_EDGES.iter().filter(is_portable).map(|file| format!("{file} must be portable"));
    assert_no(faults.collect());
    for portable in PORTABLE {
        let is_there = portable.ends_with(".rs") || !files(portable, "rs").is_empty();
        assert!(is_there, "{portable} is not where this test looks for it");
    }
}

#[test]
fn transport_calls_no_operating_system() {
    let manifest = read("transport/Cargo.toml");
    let mut faults = Vec::new();
    for package in ["libc", "nix", "rustix", "memmap2", "socket2"] {
        if manifest.lines().any(|line| line.starts_with(package)) {
            faults.push(format!("transport depends on {package}"));
        }
    }
    for source in files("transport/src", "rs") {
        for (number, code) in code_lines(&read(&source)) {
            if code.contains("target_os") || code.contains("target_arch") || code.contains("std::os") {
                faults.push(format!("{}:{number}: {code}", source.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn assembly_has_an_arm_for_every_processor() {
    let mut faults = Vec::new();
    for folder in ["transport", "device", "verbs", "src"] {
        for source in files(folder, "rs") {
            let text = read(&source);
            let path = source.to_string_lossy().into_owned();
            if !text.contains("asm!(") {
                continue;
            }
            if !PROCESSOR_EDGES.contains(&path.as_str()) {
                faults.push(format!("{path} has assembly, and is not listed"));
            }
            for processor in ["x86_64", "aarch64", "riscv64"] {
                if !text.contains(processor) {
                    faults.push(format!("{path} has no assembly for {processor}"));
                }
            }
        }
    }
    assert_no(faults);
}

#[test]
fn system_calls_are_those_of_every_processor() {
    let mut faults = Vec::new();
    for folder in ["device", "verbs", "src"] {
        for source in files(folder, "rs") {
            let lines = code_lines(&read(&source));
            for (index, (number, code)) in lines.iter().enumerate() {
                let above = index.checked_sub(1).and_then(|above| lines.get(above));
                if above.is_some_and(|(_, above)| above.contains("cfg(target_arch")) {
                    continue;
                }
                // The name of each call ends where no word goes on.
                for after in code.split("SYS_").skip(1) {
                    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
                    let name = after.split(|character| !is_word(character)).next().unwrap_or_default();
                    if CALLS_OF_X86_64.contains(&name) {
                        faults.push(format!("{}:{number} SYS_{name} is on x86-64 alone", source.display()));
                    }
                }
            }
        }
    }
    assert_no(faults);
}

#[test]
fn scripts_are_for_every_processor() {
    let is_about_one = |file: &Path| {
        PROCESSOR_SCRIPTS.iter().any(|script| file.starts_with(script) || file == Path::new(script))
    };
    let mut faults = Vec::new();
    let scripts = tracked_files().into_iter().filter(|file| file.starts_with("scripts"));
    for script in scripts.filter(|file| !is_about_one(file) && !file.starts_with("scripts/rxe-lab.d")) {
        let Ok(text) = std::fs::read_to_string(super::tree::root().join(&script)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            if ["x86_64-linux", "x86-64.so", "amd64"].iter().any(|name| line.contains(name)) {
                faults.push(format!("{}:{number} names one processor: {}", script.display(), line.trim()));
            }
        }
    }
    assert_no(faults);
}
