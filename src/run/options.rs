//! The options of `pumice run`, and the variables that they set.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pumice_device::findings::Level;
use pumice_device::profile::{BUILT_IN, BuiltIn};
use pumice_device::settings::{self, Marks, record};

use crate::trace::require::RequireOptions;

/// The options of the checks of `pumice run --check` and `pumice check`, and of their reports.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Report what the program does wrong with verbs, as "pumice check" does; --check=perf also reports slow
    /// ways; --check=poison also fills posted receives, so that reading too early shows
    #[arg(long, value_name = "perf|poison", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = ["1", "perf", "poison", "perf,poison"],
          hide_possible_values = true)]
    pub(crate) check: Option<String>,
    /// Write the findings to this file, too; %p in its name stands for the process number
    #[arg(long, value_name = "FILE")]
    pub(crate) check_report: Option<PathBuf>,
    /// Format of that file: text, json, sarif, junit, markdown or github [default: by its extension]
    #[arg(long, value_name = "FORMAT", requires = "check_report")]
    pub(crate) check_format: Option<String>,
    /// Exit with this code if the program ends with 0 and has findings, errors or warnings
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) check_exit: Option<u8>,
    /// Findings that --check-exit is about: error, warning (and errors), note (and warnings), or injected,
    /// which are failures that a fault plan made; alone it exits with 1 [default: warning]
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,
    /// Do not report findings that this file names; see docs/checks
    #[arg(long, value_name = "FILE")]
    pub(crate) suppress: Option<PathBuf>,
}

/// Findings with which a run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Errors: what does not work.
    Error,
    /// Warnings and errors: what may also fail elsewhere.
    Warning,
    /// Notes, warnings and errors: all that is worth knowing.
    Note,
    /// Failures that a fault plan made.
    Injected,
}

impl FailOn {
    /// Returns the word of the command line.
    const fn word(self) -> &'static str {
        match self {
            FailOn::Error => "error",
            FailOn::Warning => "warning",
            FailOn::Note => "note",
            FailOn::Injected => "injected",
        }
    }

    fn fails(self, marks: Marks) -> bool {
        let least = match self {
            FailOn::Error => Level::Error,
            FailOn::Warning => Level::Warning,
            FailOn::Note => Level::Note,
            FailOn::Injected => return marks.has_injected,
        };
        marks.worst.is_some_and(|worst| worst >= least)
    }
}

impl CheckOptions {
    /// Returns the exit code of a run that ended well and has findings; `None` for the program's own.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        self.check_exit.or((!self.fail_on.is_empty()).then_some(1))
    }

    /// Reports whether these findings make a run fail.
    pub(crate) fn fails(&self, marks: Marks) -> bool {
        let usual = [FailOn::Warning];
        let on = if self.fail_on.is_empty() { &usual[..] } else { &self.fail_on };
        on.iter().any(|one| one.fails(marks))
    }

    /// Returns these options as arguments, for a command that runs another one.
    pub(crate) fn exit_options(&self) -> Vec<String> {
        let code = self.check_exit.iter().flat_map(|code| ["--check-exit".to_owned(), code.to_string()]);
        let on = self.fail_on.iter().flat_map(|on| ["--fail-on".to_owned(), on.word().to_owned()]);
        code.chain(on).collect()
    }

    /// Reports whether the program is checked.
    pub(super) fn is_on(&self) -> bool {
        let others = [&self.check_report, &self.suppress].iter().any(|file| file.is_some());
        self.check.is_some() || self.exit_code().is_some() || others
    }

    fn variables(&self) -> Result<Vec<(&'static str, OsString)>, String> {
        let mut set = Vec::new();
        if self.is_on() {
            set.push((settings::CHECK, self.check.as_deref().unwrap_or("1").into()));
        }
        for (name, file) in
            [(settings::CHECK_REPORT, &self.check_report), (settings::CHECK_SUPPRESS, &self.suppress)]
        {
            if let Some(file) = file {
                set.push((name, absolute(file)?));
            }
        }
        set.extend(self.check_format.iter().map(|format| (settings::CHECK_FORMAT, format.into())));
        Ok(set)
    }
}

/// The options of the link of each device.
#[derive(Debug, Default, Args)]
pub(crate) struct LinkOptions {
    /// Rate of each device's link, each way, as in 10Gbit; see docs/links.md [default: no bound]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Delay of each device's link, each way, as in 5us; a message passes two links [default: none]
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Random addition to the delay of each packet, up to this
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// Queue in front of each link, as in 256KiB: arriving packets that do not fit are lost
    #[arg(long, value_name = "SIZE")]
    queue: Option<String>,
    /// Mark packets that join a longer queue than this, as in 64KiB, or 20KiB..200KiB@10%
    #[arg(long, value_name = "SIZE")]
    ecn: Option<String>,
}

impl LinkOptions {
    fn words(&self) -> [(&'static str, &'static str, &Option<String>); 5] {
        [
            ("--rate", "rate", &self.rate),
            ("--delay", "delay", &self.delay),
            ("--jitter", "jitter", &self.jitter),
            ("--queue", "queue", &self.queue),
            ("--ecn", "ecn", &self.ecn),
        ]
    }

    /// Returns the value of the variable.
    fn value(&self) -> Option<OsString> {
        let set_words =
            self.words().map(|(_, word, value)| value.as_ref().map(|value| format!("{word}={value}")));
        let set_words: Vec<String> = set_words.into_iter().flatten().collect();
        (!set_words.is_empty()).then(|| set_words.join(",").into())
    }

    /// Returns the first option that is given.
    fn option(&self) -> Option<&'static str> {
        self.words().iter().find(|(_, _, value)| value.is_some()).map(|(option, ..)| *option)
    }
}

/// Options of `pumice run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Give the device this address only; any of 127.0.0.0/8 will do; with --devices one for each, with
    /// commas between them [default: all addresses of this host]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<String>,
    /// Name of the device; of several that of the first, whose number the others continue [default: pumice0].
    /// The name of a personality, such as efa, gives a device that looks like that adapter; "pumice devices
    /// --personalities" lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Give the program so many devices, with an address each: one of each network interface where there are
    /// as many, else 127.0.0.1, 127.0.0.2, …
    #[arg(long, value_name = "N")]
    pub(crate) devices: Option<String>,
    /// Lose this share of all packets on the way out: 1%, 0.01 or 1e-2
    #[arg(long, value_name = "P")]
    pub(crate) loss: Option<String>,
    /// Seed of losses and fault plans: the same seed loses the same packets [default: that of the plan, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
    /// Shuffle by this seed what the specification leaves open: order of completions, of payload, wake-ups
    #[arg(long, value_name = "SEED")]
    pub(crate) shuffle: Option<String>,
    /// Apply this fault plan: a TOML file, a ready plan (see "pumice fault plans"), or a report of faults,
    /// which causes the same faults again
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// Apply this rule as well, as in 'drop chance=2% opcode=send'; see "pumice fault kinds"
    #[arg(long, value_name = "RULE")]
    pub(crate) fault: Vec<String>,
    /// Write what the rules did to this file, which is a plan itself; %p stands for the process number
    #[arg(long, value_name = "FILE")]
    pub(crate) fault_report: Option<PathBuf>,
    /// Name of the program in fault plans [default: its name, and a number that depends on its arguments]
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Write every packet to this pcapng file; %p in its name stands for the process number
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Record in this file what happens to messages, for "pumice trace"; %p stands for the process number
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Bytes that the trace has at most, as in 64MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", requires = "trace")]
    pub(crate) trace_limit: Option<String>,
    /// Transport of packets to this user's other processes on this host: auto (shared memory where both
    /// programs may use it, which tcpdump does not see), or udp [default: auto]
    #[arg(long, value_name = "WIRE")]
    pub(crate) wire: Option<String>,
    /// How long messages are copied to this user's other processes on this host: auto (the faster way, which
    /// is measured), cached (through the cache) or streaming (past it) [default: auto]
    #[arg(long, value_name = "WAY")]
    pub(crate) copy: Option<String>,
    /// Order in which messages of SRD leave, of a device that looks like EFA: seed, in-order or reverse
    /// [default: seed, by which they overtake each other]
    #[arg(long, value_name = "ORDER")]
    pub(crate) srd_order: Option<String>,
    /// Let MRC carry what RC queue pairs WRITE, over many paths, to peers that do the same; a queue pair that
    /// posts anything else goes on as RC
    #[arg(long)]
    pub(crate) mrc: bool,
    /// Planes between which the paths of MRC are divided, 1 to 31 [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) planes: Option<String>,
    /// UDP port that packets of MRC are sent to: 4791, or 4971 for peers that listen there alone
    /// [default: 4791]
    #[arg(long, value_name = "PORT")]
    pub(crate) mrc_port: Option<String>,
    /// Index of the first address in the GID table, where it is not 0: recipes for ConnectX adapters say 3
    #[arg(long, value_name = "N")]
    pub(crate) gid_index: Option<String>,
    /// Refuse regions (ENOMEM) with which registered memory would be more than may be locked, as an adapter's
    /// driver does: this size, as in 64KiB, or what `ulimit -l` shows
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true,
          default_missing_value = "ulimit")]
    pub(crate) memlock: Option<String>,
    /// Say what the program waits for in vain after this time, as in 5s, and why; 0 turns it off [default:
    /// 2s; in a world 0, and the time is the world's]
    #[arg(long, value_name = "TIME")]
    pub(crate) hang_after: Option<String>,
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// Put the device behind the switches of this TOML file, which it shares with all programs that name the
    /// same ones; see docs/topology.md
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: Option<PathBuf>,
    /// Let the hosts with these addresses answer no ARP or neighbour discovery, with commas between them; or
    /// all hosts: connecting to them fails with ETIMEDOUT
    #[arg(long, value_name = "ADDRESSES")]
    pub(crate) no_neighbour: Option<String>,
    #[arg(long, value_name = "PROFILE", help = profile_help())]
    pub(crate) profile: Option<PathBuf>,
    /// Explain on standard error: off, error, warn, info or debug [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Fail where pumice cannot show the program a /sys/class/infiniband and /dev/infiniband with the device;
    /// without this option the program runs, and sees them where that is possible
    #[arg(long, conflicts_with = "no_preload")]
    pub(crate) sysfs: bool,
    /// Load nothing before the program: it sees the system's /sys/class/infiniband, and packages that bring a
    /// libibverbs of their own do not find the device
    #[arg(long, conflicts_with = "rsocket")]
    pub(crate) no_preload: bool,
    /// Record in this folder what happens to packets, for "pumice replay"; several programs may share it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["fault_report", "capture"])]
    pub(crate) record: Option<PathBuf>,
    /// Make rsockets of the program's TCP sockets: connections go over RDMA, to peers that do the same
    #[arg(long)]
    pub(crate) rsocket: bool,
    #[command(flatten)]
    pub(crate) check: CheckOptions,
    #[command(flatten)]
    pub(crate) require: RequireOptions,
    /// The program and its arguments
    // Without allow_hyphen_values an unknown option in front of the program is refused, not taken for the
    // program.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

impl RunOptions {
    /// Returns the environment variables that the options set.
    ///
    /// # Errors
    /// A path is relative, and the current folder has been removed.
    pub(crate) fn variables(&self) -> Result<Vec<(&'static str, OsString)>, String> {
        let text = |name, value: &Option<String>| value.as_ref().map(|value| (name, OsString::from(value)));
        let mut set: Vec<(&'static str, OsString)> = [
            text(settings::ADDR, &self.addr),
            text(settings::DEVICE, &self.device),
            text(settings::DEVICES, &self.devices),
            text(settings::LOSS, &self.loss),
            text(settings::SEED, &self.seed),
            text(settings::SHUFFLE, &self.shuffle),
            text(settings::TAG, &self.tag),
            text(settings::LOG, &self.log),
            text(settings::WIRE, &self.wire),
            text(settings::COPY, &self.copy),
            text(settings::SRD_ORDER, &self.srd_order),
            text(settings::PLANES, &self.planes),
            text(settings::MRC_PORT, &self.mrc_port),
            text(settings::GID_INDEX, &self.gid_index),
            text(settings::MEMLOCK, &self.memlock),
            text(settings::HANG_AFTER, &self.hang_after),
            text(settings::TRACE_LIMIT, &self.trace_limit),
            text(settings::NO_NEIGHBOUR, &self.no_neighbour),
        ]
        .into_iter()
        .flatten()
        .collect();
        set.extend(self.mrc.then(|| (settings::MRC, OsString::from("1"))));
        set.extend(self.link.value().map(|value| (settings::LINK, value)));
        if let Some(file) = &self.topology {
            set.push((settings::TOPOLOGY, absolute(file)?));
        }
        // Relative paths in the environment are left as the user wrote them.
        if let Some(file) = &self.capture {
            set.push((settings::CAPTURE, absolute(file)?));
        }
        if let Some(file) = &self.trace {
            set.push((settings::TRACE, absolute(file)?));
        }
        if let Some(plan) = &self.faults {
            let value = if is_ready(plan) { plan.clone().into_os_string() } else { absolute(plan)? };
            set.push((settings::FAULTS, value));
        }
        if !self.fault.is_empty() {
            set.push((settings::FAULT, self.fault.join("\n").into()));
        }
        if let Some(file) = &self.fault_report {
            set.push((settings::FAULT_REPORT, absolute(file)?));
        }
        if let Some(folder) = &self.record {
            set.push((settings::FAULT_REPORT, absolute(&folder.join(own_files(record::FAULTS)))?));
            set.push((settings::CAPTURE, absolute(&folder.join(own_files(record::PACKETS)))?));
            set.push((settings::RECORD, absolute(folder)?));
        }
        if let Some(profile) = &self.profile {
            let value = if is_name(profile) { profile.clone().into_os_string() } else { absolute(profile)? };
            set.push((settings::PROFILE, value));
        }
        set.extend(self.check.variables()?);
        Ok(set)
    }

    /// Returns the option that sets a variable, if it was given.
    pub(crate) fn option_of(&self, variable: &str) -> Option<&'static str> {
        let (option, given) = match variable {
            settings::ADDR => ("--addr", self.addr.is_some()),
            settings::DEVICE => ("--device", self.device.is_some()),
            settings::DEVICES => ("--devices", self.devices.is_some()),
            settings::LOSS => ("--loss", self.loss.is_some()),
            settings::SEED => ("--seed", self.seed.is_some()),
            settings::SHUFFLE => ("--shuffle", self.shuffle.is_some()),
            settings::TAG => ("--tag", self.tag.is_some()),
            settings::FAULTS => ("--faults", self.faults.is_some()),
            settings::FAULT => ("--fault", !self.fault.is_empty()),
            settings::FAULT_REPORT => ("--fault-report", self.fault_report.is_some()),
            settings::CAPTURE => ("--capture", self.capture.is_some()),
            settings::RECORD => ("--record", self.record.is_some()),
            settings::TRACE => ("--trace", self.trace.is_some()),
            settings::TRACE_LIMIT => ("--trace-limit", self.trace_limit.is_some()),
            settings::PROFILE => ("--profile", self.profile.is_some()),
            settings::CHECK_REPORT => ("--check-report", self.check.check_report.is_some()),
            settings::CHECK_FORMAT => ("--check-format", self.check.check_format.is_some()),
            settings::CHECK_SUPPRESS => ("--suppress", self.check.suppress.is_some()),
            settings::WIRE => ("--wire", self.wire.is_some()),
            settings::COPY => ("--copy", self.copy.is_some()),
            settings::SRD_ORDER => ("--srd-order", self.srd_order.is_some()),
            settings::MRC => ("--mrc", self.mrc),
            settings::PLANES => ("--planes", self.planes.is_some()),
            settings::MRC_PORT => ("--mrc-port", self.mrc_port.is_some()),
            settings::GID_INDEX => ("--gid-index", self.gid_index.is_some()),
            settings::MEMLOCK => ("--memlock", self.memlock.is_some()),
            settings::HANG_AFTER => ("--hang-after", self.hang_after.is_some()),
            settings::TOPOLOGY => ("--topology", self.topology.is_some()),
            settings::NO_NEIGHBOUR => ("--no-neighbour", self.no_neighbour.is_some()),
            settings::LINK => return self.link.option(),
            settings::LOG => ("--log", self.log.is_some()),
            _ => return None,
        };
        given.then_some(option)
    }
}

/// Returns the help text of `--profile`.
fn profile_help() -> String {
    let name = |profile: &BuiltIn| match profile.device_count() {
        0 | 1 => profile.name.to_owned(),
        count => format!("{} ({count} devices)", profile.name),
    };
    let names: Vec<String> = BUILT_IN.iter().map(name).collect();
    format!("Look like another device: {}, or a TOML file", names.join(", "))
}

/// Reports whether a profile is named rather than given as a file.
fn is_name(profile: &Path) -> bool {
    let built_in = profile.to_str().and_then(BuiltIn::of).is_some();
    built_in || (profile.components().count() == 1 && !profile.exists())
}

/// Reports whether a fault plan is a ready one rather than a file.
fn is_ready(plan: &Path) -> bool {
    !plan.exists() && plan.components().count() == 1
}

/// Returns the pattern of the files of processes; `%p` stands for the process id of each.
fn own_files(extension: &str) -> String {
    format!("%p.{extension}")
}

/// Returns a path that stays valid after the program has changed its folder.
fn absolute(path: &Path) -> Result<OsString, String> {
    std::path::absolute(path)
        .map(PathBuf::into_os_string)
        .map_err(|error| format!("the current folder cannot be told: {error}"))
}
