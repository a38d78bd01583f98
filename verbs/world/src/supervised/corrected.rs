//! Corrects files of the kernel that contain values that differ from run to run: programs read a corrected
//! copy.

use super::machine::{MEMORY, PROCESSORS};
use super::random::SeededRandom;
use super::supervisor::Supervisor;
use super::threads::ThreadId;
use super::tracee::Tracee;

/// Ticks per second in files about processes.
const TICKS: u64 = 100;
/// State of a process that is stopped by its tracer. Here the tracer is the supervisor, which stops all
/// processes but one: this is no fact of the world, and a program would conclude that a debugger has stopped
/// the others.
const TRACED: &str = "t";
/// State that a program reads instead.
const SLEEPS: &str = "S";
/// Fields of a process's `stat`, counted from behind its name, that are 0 in every world: times, page faults,
/// priority and niceness, which are the user's, memory, and where arguments and variables lie, which depends
/// on the length of all of them.
const ZEROED: [usize; 23] =
    [7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 21, 25, 26, 32, 33, 36, 39, 40, 41, 45, 46, 47, 48];
/// The priority of a process that was not started under nice, and its field.
const PLAIN_PRIORITY: &str = "20";
const PRIORITY: usize = 15;
/// Fields of a socket that depend on the kernel's timers, with their values when none runs: the running timer
/// and its end, time-outs, and measurements of the other side.
const TIMER_FIELDS: [(usize, &str); 7] =
    [(5, "00:00000000"), (6, "00000000"), (12, "0"), (13, "0"), (14, "0"), (15, "0"), (16, "0")];
/// Features of every x86-64 processor, and an invariant time stamp counter.
const FLAGS: &str = "fpu tsc msr cx8 cmov mmx fxsr sse sse2 syscall nx lm constant_tsc nonstop_tsc";
/// Column at which the names of files begin in `maps`.
const NAME_COLUMN: usize = 73;
/// Name of the random numbers for the identifier of the machine's start.
const OF_BOOT: u64 = 0x626f_6f74;
/// First field of `stat` that says something about process 1 which differs from run to run.
const TERMINAL: usize = 4;
/// Field of the start time, counted from behind the name.
const START: usize = 19;

impl Supervisor {
    /// Returns the contents that a program reads instead of a file of this name; `None` for the file itself.
    pub(crate) fn corrected(&mut self, id: ThreadId, path: &str) -> Option<String> {
        if path == "/proc/meminfo" {
            return std::fs::read_to_string(path).ok().map(|text| memory(&text));
        }
        if let Some(text) = mounts_text(path) {
            return Some(text.to_owned());
        }
        if let Some(name) = path.strip_prefix("/proc/sys/kernel/random/") {
            return self.random_name(id, name);
        }
        let correct: fn(&mut Supervisor, &str) -> String =
            match path.strip_prefix("/proc/")?.split('/').collect::<Vec<_>>()[..] {
                // The memory of process 1, which is none of the world's, is not that of any other run.
                ["1", "maps"] => return None,
                [_, "stat"] | [_, "task", _, "stat"] => |_, text| stat(text),
                ["cpuinfo"] => |_, _| processors(),
                ["stat"] => |_, _| processor_times(),
                ["uptime"] => |supervisor, _| up_time(supervisor.time.clock.now_ns()),
                ["loadavg"] => |_, _| IDLE_LOAD.to_owned(),
                // As in the status: how much memory is resident depends on the machine.
                [_, "statm"] | [_, "task", _, "statm"] => |_, _| "0 0 0 0 0 0 0\n".to_owned(),
                [_, "status"] | [_, "task", _, "status"] => |_, text| status(text),
                [_, "maps"] => |_, text| maps(text),
                ["thread-self" | "self", "net", "udp" | "udp6" | "tcp" | "tcp6"]
                | ["net", "udp" | "udp6" | "tcp" | "tcp6"] => {
                    |supervisor, text| sockets(text, |inode| supervisor.number_nameless("socket", inode))
                }
                _ => return None,
            };
        let thread = self.threads.get(id)?;
        let leader = self.threads.processes.get(&thread.process)?.leader;
        // The path is translated to the process's own PID namespace.
        let own = format!("/proc/{}", Tracee(leader).number_inside()?);
        let seen = path.replacen("/proc/self", &own, 1).replacen("/proc/thread-self", &own, 1);
        let seen = if seen.starts_with("/proc/net") { seen.replacen("/proc", &own, 1) } else { seen };
        std::fs::read_to_string(format!("/proc/{leader}/root{seen}")).ok().map(|text| correct(self, &text))
    }
}

impl Supervisor {
    /// Returns a name that the kernel has drawn, which comes from the seed: a new one, or that of the time
    /// for which the machine is up.
    fn random_name(&mut self, id: ThreadId, kind: &str) -> Option<String> {
        let mut bytes = [0; 16];
        match kind {
            "uuid" => self.threads.get_mut(id)?.random.fill(&mut bytes),
            "boot_id" => SeededRandom::new(self.options.seed, OF_BOOT).fill(&mut bytes),
            _ => return None,
        }
        Some(random_uuid(bytes))
    }
}

/// Contents of `/proc/loadavg`: one thread runs, and none waits for a processor.
const IDLE_LOAD: &str = "0.00 0.00 0.00 1/1 1\n";
/// Ticks for which a machine has been up when a world begins.
const UP: u64 = 1_000 * TICKS;

/// Returns the contents of `/proc/uptime`: the time since the start, and that for which processors were idle.
fn up_time(now_ns: u64) -> String {
    let ticks = UP + now_ns / (1_000_000_000 / TICKS);
    let seconds = |ticks: u64| format!("{}.{:02}", ticks / TICKS, ticks % TICKS);
    format!("{} {}\n", seconds(ticks), seconds(UP * u64::from(PROCESSORS)))
}

/// Returns the contents of `/proc/stat`: processors that were idle until the world began.
fn processor_times() -> String {
    /// When the machine was started, in s since 1970.
    const STARTED_S: u64 = 1_790_077_400;
    let mut text = format!("cpu  0 0 0 {} 0 0 0 0 0 0\n", UP * u64::from(PROCESSORS));
    for number in 0..PROCESSORS {
        text.push_str(&format!("cpu{number} 0 0 0 {UP} 0 0 0 0 0 0\n"));
    }
    text.push_str(&format!(
        "intr 0\nctxt 0\nbtime {STARTED_S}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n"
    ));
    text
}

/// Formats a universally unique identifier of version 4.
fn random_uuid(bytes: [u8; 16]) -> String {
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let digits = format!("{number:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("");
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    format!("{}\n", parts.join("-"))
}

/// Returns the contents of files about the mounts and the control groups, the same in every world; `None` for
/// other files.
fn mounts_text(path: &str) -> Option<&'static str> {
    Some(match path {
        "/proc/mounts" | "/proc/self/mounts" | "/etc/mtab" => {
            "root / world rw 0 0\nproc /proc proc rw 0 0\nsysfs /sys sysfs rw 0 0\n\
             tmpfs /dev/shm tmpfs rw 0 0\n"
        }
        "/proc/self/mountinfo" => {
            "1 1 0:1 / / rw - world root rw\n2 1 0:2 / /proc rw - proc proc rw\n\
             3 1 0:3 / /sys rw - sysfs sysfs rw\n4 1 0:4 / /dev/shm rw - tmpfs tmpfs rw\n"
        }
        "/proc/self/cpuset" => "/\n",
        "/proc/self/cgroup" => "0::/\n",
        _ => return None,
    })
}

/// Corrects `stat`: the start time of a process follows from its id, and it has used no resources.
fn stat(text: &str) -> String {
    let Some((name, rest)) = text.rsplit_once(") ") else { return String::new() };
    let number: u64 = name.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let fields = rest.split_whitespace().enumerate().map(|(index, field)| match index {
        START => (number * TICKS).to_string(),
        0 if field == TRACED => SLEEPS.to_owned(),
        PRIORITY if number != 1 => PLAIN_PRIORITY.to_owned(),
        index if ZEROED.contains(&index) || number == 1 && index >= TERMINAL => "0".to_owned(),
        _ => field.to_owned(),
    });
    format!("{name}) {}\n", fields.collect::<Vec<_>>().join(" "))
}

/// Returns the processors of every world: x86-64 without extensions, so that recordings are the same on all
/// machines.
fn processors() -> String {
    let processor = |number: u32| {
        let facts: [(&str, String); 17] = [
            ("processor", number.to_string()),
            ("vendor_id", "AuthenticAMD".to_owned()),
            ("cpu family", "15".to_owned()),
            ("model", "1".to_owned()),
            ("model name", "Processor of a world".to_owned()),
            ("stepping", "0".to_owned()),
            ("cpu MHz", "1000.000".to_owned()),
            ("physical id", "0".to_owned()),
            ("siblings", PROCESSORS.to_string()),
            ("core id", number.to_string()),
            ("cpu cores", PROCESSORS.to_string()),
            ("apicid", number.to_string()),
            ("fpu", "yes".to_owned()),
            ("cpuid level", "1".to_owned()),
            ("flags", FLAGS.to_owned()),
            ("clflush size", "64".to_owned()),
            ("cache_alignment", "64".to_owned()),
        ];
        let lines = facts.map(|(name, value)| format!("{name}\t: {value}\n"));
        lines.concat() + "\n"
    };
    (0..PROCESSORS).map(processor).collect()
}

/// Fields of `status` that every kernel has, besides those of memory.
const OF_EVERY_KERNEL: [&str; 22] = [
    "Name",
    "Umask",
    "State",
    "Tgid",
    "Pid",
    "PPid",
    "TracerPid",
    "Uid",
    "Gid",
    "NStgid",
    "NSpid",
    "NSpgid",
    "NSsid",
    "Threads",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "NoNewPrivs",
    "Seccomp",
    "CapEff",
];

/// Corrects `status`: the process has used no resources.
fn status(text: &str) -> String {
    let correct = |line: &str| match line.split_once(':') {
        Some((name, value)) if name.starts_with("Vm") || name.starts_with("Rss") || name.contains("ctxt") => {
            let unit = if value.ends_with("kB") { " kB" } else { "" };
            format!("{name}:\t0{unit}\n")
        }
        Some(("State", value)) if value.trim_start().starts_with(TRACED) => {
            format!("State:\t{SLEEPS} (sleeping)\n")
        }
        Some(("Cpus_allowed", _)) => format!("Cpus_allowed:\t{:x}\n", (1_u64 << PROCESSORS) - 1),
        Some(("Cpus_allowed_list", _)) => format!("Cpus_allowed_list:\t0-{}\n", PROCESSORS - 1),
        Some(("FDSize", _)) => "FDSize:\t256\n".to_owned(),
        Some(("Mems_allowed", _)) => "Mems_allowed:\t1\n".to_owned(),
        Some(("Mems_allowed_list", _)) => "Mems_allowed_list:\t0\n".to_owned(),
        Some((name, _)) if OF_EVERY_KERNEL.contains(&name) => format!("{line}\n"),
        _ => String::new(),
    };
    text.lines().map(correct).collect()
}

/// Returns the memory of the machine, half of which is free; other values are 0.
fn memory(text: &str) -> String {
    let correct = |line: &str| {
        let Some((name, value)) = line.split_once(':') else { return format!("{line}\n") };
        let kb = match name.rsplit(' ').next() {
            Some("MemTotal") => MEMORY / 1024,
            Some("MemFree" | "MemAvailable" | "MemUsed") => MEMORY / 2048,
            Some("Hugepagesize") => 2048,
            _ => 0,
        };
        let unit = if value.ends_with("kB") { " kB" } else { "" };
        format!("{name}:{kb:>16}{unit}\n")
    };
    text.lines().map(correct).collect()
}

/// Corrects `maps`. Pages of the kernel are removed, because kernels differ in them, and so is the name of
/// the heap, whose place differs. All files are on one device, with inodes derived from their names.
fn maps(text: &str) -> String {
    let mut corrected = String::new();
    for line in text.lines() {
        let fields = line.splitn(6, ' ').collect::<Vec<_>>();
        let [range, rights, offset, _, _, rest @ ..] = fields.as_slice() else { continue };
        let name = rest.first().map_or("", |name| name.trim());
        if name.starts_with("[v") {
            continue;
        }
        let name = if name == "[heap]" { "" } else { name };
        let inode = name.bytes().fold(0_u32, |all, byte| all.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let (device, inode) = if name.starts_with('/') { ("00:01", inode | 1) } else { ("00:00", 0) };
        let facts = format!("{range} {rights} {offset} {device} {inode}");
        let line = format!("{facts:<NAME_COLUMN$}{name}");
        corrected.push_str(line.trim_end());
        corrected.push('\n');
    }
    corrected
}

/// Corrects the list of network sockets: they are sorted by address, and have no numbers of the kernel.
fn sockets(text: &str, mut number_of: impl FnMut(u64) -> u64) -> String {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or("").to_owned();
    let mut all: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    all.sort_by(|one, other| one.get(1..5).cmp(&other.get(1..5)));
    let mut corrected = head + "\n";
    for (number, mut fields) in all.into_iter().enumerate() {
        let inode = fields.get(9).and_then(|inode| inode.parse().ok()).unwrap_or(0);
        let (slot, inode) = (format!("{number}:"), if inode == 0 { 0 } else { number_of(inode) }.to_string());
        let named = [(0, slot.as_str()), (9, inode.as_str()), (11, "0000000000000000")];
        for (index, value) in named.into_iter().chain(TIMER_FIELDS) {
            if let Some(field) = fields.get_mut(index) {
                *field = value;
            }
        }
        corrected.push_str("  ");
        corrected.push_str(&fields.join(" "));
        corrected.push('\n');
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_of_a_process_has_no_times() {
        let text = "7 (a (b) c) S 1 7 7 0 -1 4194304 161 0 5 0 3 4 0 0 20 0 1 0 8915 2940928 230 1 2 3\n";
        assert_eq!(stat(text), "7 (a (b) c) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 700 0 0 1 2 3\n");
        assert_eq!(stat("1 (pumice) S 0 0 0 34817 -1 4194304 9\n"), "1 (pumice) S 0 0 0 0 0 0 0\n");
        assert_eq!(stat("nothing"), "");
        let fields: Vec<String> = (3..=52).map(|field| (1000 + field).to_string()).collect();
        let corrected = stat(&format!("7 (a) {}", fields.join(" ")));
        assert!((1048..=1051).all(|field| !corrected.contains(&field.to_string())), "{corrected}");
        assert!(corrected.contains(" 1047 0 0 0 0 1052"), "{corrected}");
        assert_eq!(stat("7 (a) t 1 7\n"), "7 (a) S 1 7\n");
        assert_eq!(stat("7 (a) T 1 7\n"), "7 (a) T 1 7\n", "a signal has stopped it");
        assert_eq!(status("State:\tt (tracing stop)\n"), "State:\tS (sleeping)\n");
    }

    #[test]
    fn a_random_name_has_the_form_of_the_kernel() {
        assert_eq!(random_uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff\n");
        assert_eq!(random_uuid([0; 16]), "00000000-0000-4000-8000-000000000000\n");
    }

    #[test]
    fn maps_name_files_and_no_inodes() {
        let line = "7ffff7dd5000-7ffff7dfb000 r--p 00001000 fe:00 12345                      /lib/x.so";
        let corrected = maps(line);
        assert!(corrected.starts_with("7ffff7dd5000-7ffff7dfb000 r--p 00001000 00:01 "), "{corrected}");
        assert!(!corrected.contains("12345") && corrected.ends_with("/lib/x.so\n"), "{corrected}");
        let of_kernel =
            "7ffff7fbd000-7ffff7fbf000 r--p 00000000 00:00 0                          [vvar_vclock]\n";
        assert_eq!(maps(of_kernel), "");
        let heap = "5555555bb000-5555555dc000 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(maps(heap), "5555555bb000-5555555dc000 rw-p 00000000 00:00 0\n");
    }

    #[test]
    fn the_memory_of_the_machine_is_that_of_every_world() {
        let text = "MemTotal:       123 kB\nNode 0 MemFree:  9 kB\nHugePages_Total:  1\n";
        let expected = "MemTotal:        16777216 kB\nNode 0 MemFree:         8388608 kB\n\
                    HugePages_Total:               0\n";
        assert_eq!(memory(text), expected);
    }

    #[test]
    fn sockets_have_no_inodes() {
        let text = "  sl  local_address rem_address st\n\
                    \x20 9: 02 00 07 00:00 01:2 03 0 0 991 2 ffff88 4\n\
                    \x20 3: 01 00 07 00:00 01:2 03 0 0 990 2 ffff99 4\n";
        let corrected = sockets(text, |inode| inode - 900);
        assert!(
            corrected.contains("  0: 01 00 07 00:00 00:00000000 00000000 0 0 90 2 0000000000000000 0\n"),
            "{corrected}"
        );
    }
}
