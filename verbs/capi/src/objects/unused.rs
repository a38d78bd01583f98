//! The warning at the end of a program that `pumice run` has started and that has used no device. The warning
//! names the setting that prevents the use, if one is found.
//!
//! A messaging library uses TCP or shared memory instead if a variable excludes verbs, so a test of RDMA may
//! pass without RDMA. The warning is printed only if the case is certain.

use std::ffi::{OsString, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pumice_device::outside::{environment, files, process, world};
use pumice_device::settings::LogLevel;

use super::device::devices;
use crate::entry::value;
use crate::log::{logs, print_always};
use crate::platform::current_pid;

/// The variable in which `pumice run` gives its process number. That process starts the program or becomes
/// it.
const STARTED_BY: &str = "PUMICE_STARTED_BY";
/// Command-line words with which a program prints its help or version, and ends.
const ABOUT_ITSELF: [&str; 6] = ["-h", "--help", "-V", "-v", "--version", "-?"];
/// Names, or beginnings of names, of UCX's transports that use verbs, as in its variable UCX_TLS.
const UCX_VERBS: [&str; 6] = ["all", "ib", "rc", "ud", "dc", "srd"];
/// Names of libfabric's providers that use verbs.
const FABRIC_VERBS: [&str; 3] = ["verbs", "psm3", "efa"];

static HAS_LISTED: AtomicBool = AtomicBool::new(false);
static HAS_OPENED: AtomicBool = AtomicBool::new(false);
static IS_CONNECTED: AtomicBool = AtomicBool::new(false);
/// Number of the process that warns at its end; 0 for none. A child that it forks does not warn.
static WATCHED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Records that the program asks for the list of devices.
pub(crate) fn is_listed() {
    HAS_LISTED.store(true, Ordering::Relaxed);
}

/// Records that the program opens a device.
pub(crate) fn is_opened() {
    HAS_OPENED.store(true, Ordering::Relaxed);
}

/// Records that a queue pair can receive from now on. Making one is not enough: libraries also make queue
/// pairs only to see what the device supports.
pub(crate) fn is_connected() {
    IS_CONNECTED.store(true, Ordering::Relaxed);
}

/// The facts about a program at its end.
struct EndedProgram<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// The name of the program and its arguments.
    words: &'a [String],
    /// The names of the files that are mapped into the process, one a line.
    maps: &'a str,
    devices: &'a [&'a str],
    has_listed: bool,
    has_opened: bool,
    is_well: bool,
}

impl EndedProgram<'_> {
    fn has_loaded(&self, library: &str) -> bool {
        self.maps.contains(&format!("/{library}.so"))
    }

    fn known(&self) -> String {
        self.devices.join(", ")
    }

    /// Returns the warning, if there is one to print.
    fn sentence(&self) -> Option<String> {
        let setting = self.of_ucx().or_else(|| self.of_libfabric()).or_else(|| self.of_argument());
        if let Some(setting) = setting {
            return Some(format!("the program has connected no queue pair: {setting}"));
        }
        let is_about_itself = self.words.iter().any(|word| ABOUT_ITSELF.contains(&word.as_str()));
        let is_it = self.is_well && !self.has_listed && !self.has_opened && !is_about_itself;
        is_it.then(|| {
            "the program has loaded libibverbs and never asked for a device: nothing was done with RDMA"
                .to_owned()
        })
    }

    fn of_ucx(&self) -> Option<String> {
        if !self.has_loaded("libucp") && !self.has_loaded("libuct") {
            return None;
        }
        if let Some(given) = (self.variable)("UCX_TLS") {
            let (is_without, names) = list_of(&given);
            let is_of_verbs = |name: &&str| {
                UCX_VERBS.iter().any(|verbs| {
                    name.strip_prefix(verbs)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', ':']))
                })
            };
            let leaves_out = match is_without {
                true => names.contains(&"ib") || (names.contains(&"rc") && names.contains(&"ud")),
                false => !names.iter().any(is_of_verbs),
            };
            if leaves_out {
                return Some(format!(
                    "UCX_TLS={given} leaves out all transports of UCX that use RDMA; add rc or ud to it, or \
                     unset it"
                ));
            }
        }
        let given = (self.variable)("UCX_NET_DEVICES")?;
        let (is_without, names) = list_of(&given);
        let is_ours = |name: &&str| {
            *name == "all" || self.devices.iter().any(|own| Some(*own) == name.split(':').next())
        };
        (!is_without && !names.iter().any(is_ours)).then(|| {
            format!(
                "UCX_NET_DEVICES={given} names none of the devices of this run ({}); name one, as in {}:1, \
                 or unset it",
                self.known(),
                self.devices.first().copied().unwrap_or_default()
            )
        })
    }

    fn of_libfabric(&self) -> Option<String> {
        let given = (self.variable)("FI_PROVIDER").filter(|_| self.has_loaded("libfabric"))?;
        let (is_without, names) = list_of(&given);
        let is_of_verbs = |name: &&str| name.split(';').any(|layer| FABRIC_VERBS.contains(&layer.trim()));
        let has_verbs = names.iter().any(is_of_verbs);
        (has_verbs == is_without).then(|| {
            format!(
                "FI_PROVIDER={given} leaves out libfabric's provider of RDMA; name verbs in it, as in \
                 \"verbs;ofi_rxm\", or unset it"
            )
        })
    }

    /// Checks the argument of perftest's and rdma-core's programs that names a device, and returns the
    /// problem.
    fn of_argument(&self) -> Option<String> {
        let (program, words) = self.words.split_first()?;
        let name = Path::new(program).file_name()?.to_str()?;
        // Such as ib_send_bw and ibv_rc_pingpong.
        let rest = name.strip_prefix("ib").map(|rest| rest.strip_prefix('v').unwrap_or(rest));
        let is_of_these = rest.is_some_and(|rest| rest.starts_with('_')) || name == "raw_ethernet_bw";
        if !is_of_these || self.has_opened || !self.has_listed {
            return None;
        }
        let given = words.iter().enumerate().find_map(|(index, word)| match word.as_str() {
            "-d" | "--ib-dev" => words.get(index + 1).map(String::as_str),
            word => word
                .strip_prefix("--ib-dev=")
                .or_else(|| word.strip_prefix("-d").filter(|_| !word.starts_with("--"))),
        })?;
        (!given.is_empty() && !self.devices.contains(&given))
            .then(|| format!("its argument -d names the device {given}, and this run has {}", self.known()))
    }
}

/// Parses a list with commas. Returns whether it begins with `^`, so that its words are excluded, and the
/// words.
fn list_of(given: &str) -> (bool, Vec<&str>) {
    let names = given.strip_prefix('^');
    (
        names.is_some(),
        names.unwrap_or(given).split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
    )
}

/// Reports whether this is the process that `pumice run` has started. Only that process warns.
fn is_started_by_run() -> bool {
    if world::is_in_world() {
        // In a simulated world, neither the parent process nor the addresses of libraries are reproducible.
        return false;
    }
    let starter = environment::variable(STARTED_BY);
    let starter = starter.and_then(|starter| starter.into_string().ok()?.parse::<u32>().ok());
    starter.is_some_and(|starter| starter == current_pid() || starter == process::parent())
}

/// Reports whether children of this process have ended. They may have used the device.
fn has_had_children() -> bool {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is valid when it is all zero.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss != 0
}

/// Runs when the loader has loaded this library.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = watch;

extern "C" fn watch() {
    value((), || {
        if is_started_by_run() {
            WATCHED.store(current_pid(), Ordering::Relaxed);
            // SAFETY: the object is never unmapped (it is linked with -z nodelete).
            unsafe { on_exit(at_exit, std::ptr::null_mut()) };
        }
    });
}

/// Runs when the process calls `exit`, as the last function: it was registered first.
extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    if !IS_CONNECTED.load(Ordering::Relaxed) {
        value((), || warn_if_unused(status & 0xff == 0));
    }
}

fn warn_if_unused(is_well: bool) {
    if WATCHED.load(Ordering::Relaxed) != current_pid() || has_had_children() || !logs(LogLevel::Warn) {
        return;
    }
    let Ok(devices) = devices() else { return };
    let names: Vec<&str> = devices.iter().map(|device| device.name()).collect();
    let words: Vec<String> = environment::arguments().into_iter().map(lossy).collect();
    let maps = files::fact_text("/proc/self/maps").unwrap_or_default();
    let ended = EndedProgram {
        variable: &|name| environment::variable(name).map(lossy),
        words: &words,
        maps: &maps,
        devices: &names,
        has_listed: HAS_LISTED.load(Ordering::Relaxed),
        has_opened: HAS_OPENED.load(Ordering::Relaxed),
        is_well,
    };
    if let Some(sentence) = ended.sentence() {
        print_always(&sentence);
    }
}

fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warning for a program with these words and variables that has loaded this library.
    fn warning(
        words: &[&str],
        variables: &[(&str, &str)],
        library: &str,
        has_opened: bool,
    ) -> Option<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let ended = EndedProgram {
            variable: &variable,
            words: &words,
            maps: &format!("7f00-7f01 r-xp 0 00:01 7 /usr/lib/{library}.so.0\n"),
            devices: &["pumice0", "pumice1"],
            has_listed: true,
            has_opened,
            is_well: true,
        };
        ended.sentence()
    }

    #[test]
    fn settings_that_leave_rdma_out_are_named() {
        let wrong = [
            ("libucp", "UCX_TLS", "tcp,self,sm"),
            ("libuct", "UCX_TLS", "^ib"),
            ("libucp", "UCX_TLS", "^rc,ud"),
            ("libucp", "UCX_NET_DEVICES", "mlx5_0:1"),
            ("libucp", "UCX_NET_DEVICES", "eth0"),
            ("libfabric", "FI_PROVIDER", "tcp"),
            ("libfabric", "FI_PROVIDER", "tcp;ofi_rxm,shm"),
            ("libfabric", "FI_PROVIDER", "^verbs"),
        ];
        for (library, name, value) in wrong {
            let warning_text = warning(&["a"], &[(name, value)], library, true).unwrap_or_default();
            assert!(warning_text.contains(&format!("{name}={value} ")), "{warning_text}");
            assert_eq!(warning(&["a"], &[(name, value)], "libother", true), None, "it is of another library");
        }
        let right = [
            ("libucp", "UCX_TLS", "all"),
            ("libucp", "UCX_TLS", "rc_v,self"),
            ("libucp", "UCX_TLS", "tcp,ud:aux"),
            ("libucp", "UCX_TLS", "^tcp"),
            ("libucp", "UCX_NET_DEVICES", "mlx5_0:1,pumice1:1"),
            ("libucp", "UCX_NET_DEVICES", "all"),
            ("libfabric", "FI_PROVIDER", "verbs;ofi_rxm"),
            ("libfabric", "FI_PROVIDER", "tcp, verbs"),
            ("libfabric", "FI_PROVIDER", "^tcp"),
        ];
        for (library, name, value) in right {
            assert_eq!(warning(&["a"], &[(name, value)], library, true), None, "{name}={value}");
        }
    }

    #[test]
    fn a_device_that_an_argument_names_and_that_is_not_there_is_named() {
        let of = |words: &[&str], has_opened| warning(words, &[], "libibverbs", has_opened);
        for words in [["/usr/bin/ib_send_bw", "-d", "mlx5_0"], ["ibv_devinfo", "-l", "-dmlx5_0"]] {
            assert!(
                of(&words, false)
                    .is_some_and(|warning| warning.contains("mlx5_0, and this run has pumice0, pumice1"))
            );
        }
        assert!(of(&["ib_write_lat", "--ib-dev=mlx5_0"], false).is_some());
        assert_eq!(of(&["ib_send_bw", "-d", "pumice1"], false), None);
        assert_eq!(of(&["ib_send_bw", "-d", "mlx5_0"], true), None, "it has opened another");
        assert_eq!(of(&["rping", "-d", "x"], false), None, "it means something else there");
    }

    #[test]
    fn a_program_that_opened_no_device_is_warned_unless_it_prints_its_help() {
        let ended = |words: &[&str], has_listed| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let (variable, devices) = (&|_: &str| None, &["pumice0"][..]);
            let (has_opened, is_well) = (false, true);
            let ended =
                EndedProgram { variable, words: &words, maps: "", devices, has_listed, has_opened, is_well };
            ended.sentence().is_some()
        };
        assert!(ended(&["mpi_program", "1"], false));
        assert!(!ended(&["ib_send_bw", "--version"], false) && !ended(&["ibv_devices"], true));
    }
}
