//! `pumice run`: checks the settings, puts them into the environment, and executes the program.

mod bundled_libibverbs;
mod child_wait;
mod embedded_objects;
mod invoked_programs;
mod library;
mod options;
mod preload;
mod program;
pub(crate) mod record;
mod unused_trees;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_device::check::Suppressions;
use pumice_device::outside::interface::{Interface, interfaces};
use pumice_device::port::Topology;
use pumice_device::profile::DeviceDescription;
use pumice_device::settings::{self, CheckSettings, SettingError, Settings};
use rustix::io::Errno;

pub(crate) use invoked_programs::own_program;
pub(crate) use library::make_links_of_build;
pub(crate) use options::RunOptions;

use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use program::Program;
use pumice_device::faults::FaultPlan;
use record::ProcessIdentity;

/// The variable that gives the library the number of the process that starts the program or becomes it.
const STARTED_BY: &str = "PUMICE_STARTED_BY";

/// Runs the command. Without a record it returns only if the program could not be started. With a record it
/// waits for the program, to note its exit code.
pub(crate) fn run(options: &RunOptions) -> CommandResult {
    if options.record.is_some() {
        return match run_as_child(options)? {
            0 => Ok(Outcome::Good),
            exit_code => Err(CommandError::ProgramEnded { exit_code }),
        };
    }
    let mut prepared = prepare(options)?;
    Err(prepared.program.not_run(&prepared.command.exec()))
}

/// Runs the program as a child process, and waits until it ends; returns its exit code, as shells do.
pub(crate) fn run_as_child(options: &RunOptions) -> Result<u8, CommandError> {
    run_as_child_with(options, &[])
}

/// Does the same as [`run_as_child`] with further variables.
pub(crate) fn run_as_child_with(options: &RunOptions, more: &[(&str, &Path)]) -> Result<u8, CommandError> {
    let PreparedCommand { mut command, program, identity } = prepare(options)?;
    command.envs(more.iter().copied());
    let Some(folder) = &options.record else { return child_wait::wait_for(command, &program, |_| Ok(())) };
    let mut process = 0;
    let exit_code = child_wait::wait_for(command, &program, |id| {
        process = id;
        record::note(folder, &identity, id).map_err(CommandError::Failed)
    })?;
    record::note_exit(folder, process, exit_code).map_err(CommandError::Failed)?;
    Ok(exit_code)
}

/// Returns the identity of the program that these options start.
///
/// # Errors
/// A setting is wrong.
pub(crate) fn identity(options: &RunOptions) -> Result<ProcessIdentity, CommandError> {
    let set = options.variables().map_err(CommandError::Failed)?;
    let settings = parse(options, &set)?;
    let refuse = |error: SettingError| refused(&error, options);
    let profile = settings.load_profile().map_err(refuse)?;
    let described = settings.device_descriptions(&profile, &known_interfaces()?).map_err(refuse)?;
    Ok(identity_of(&settings, options, &described))
}

fn identity_of(
    settings: &Settings,
    options: &RunOptions,
    described: &[DeviceDescription],
) -> ProcessIdentity {
    let devices = described.iter().map(|device| device.name.clone()).collect();
    ProcessIdentity { tag: settings.tag_of(options.program.iter().cloned()), devices }
}

/// A checked command, ready to start.
struct PreparedCommand {
    command: Command,
    program: Program,
    identity: ProcessIdentity,
}

/// Returns the settings of the program: those of the options, and those of the environment.
fn parse(options: &RunOptions, set: &[(&'static str, OsString)]) -> Result<Settings, CommandError> {
    let given = |name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
    Settings::parse(|name| given(name).or_else(|| std::env::var_os(name)), settings::standard_error_is_free())
        .map_err(|error| refused(&error, options))
}

fn known_interfaces() -> Result<Vec<Interface>, CommandError> {
    interfaces()
        .map_err(|error| CommandError::Failed(format!("the network interfaces cannot be listed: {error}")))
}

/// Checks everything, and prepares the command.
fn prepare(options: &RunOptions) -> Result<PreparedCommand, CommandError> {
    let set = options.variables().map_err(CommandError::Failed)?;
    let settings = parse(options, &set)?;
    if let Some(folder) = &options.record {
        record::begin(folder).map_err(CommandError::Failed)?;
    }
    let described = check(&settings, options)?;
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(CommandError::Usage("name a program to run: pumice run -- program arguments".to_owned()));
    };
    let program = Program::find(name, arguments)?;
    for warning in program.warnings().into_iter().chain(misspelt_variables()) {
        complain(&warning);
    }
    let library = library::find().map_err(CommandError::Failed)?;
    let folder = library::links(&library).map_err(CommandError::Failed)?;
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments).envs(set).env(STARTED_BY, std::process::id().to_string());
    if !program.is_of_musl() {
        command.env("LD_LIBRARY_PATH", library::search_path(&folder, std::env::var_os("LD_LIBRARY_PATH")));
    }
    if !options.no_preload && program.takes_preloads() {
        preload::prepare(options, &settings, &library.path, &mut command).map_err(CommandError::Failed)?;
    }
    let identity = identity_of(&settings, options, &described);
    Ok(PreparedCommand { command, program, identity })
}

/// Returns variables that the device does not know, and that are similar to one that it knows.
fn misspelt_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut misspellings: Vec<String> = names
        .filter_map(|name| {
            let meant = settings::misspelt(&name)?;
            Some(format!("{name} is no variable of pumice, and has no effect; did you mean {meant}?"))
        })
        .collect();
    misspellings.sort();
    misspellings
}

/// The files with which `pumice run` starts programs.
pub(crate) struct LoadedObjects {
    /// Path of libpumice.so.
    pub(crate) object: PathBuf,
    /// Folder in which it has all its names.
    pub(crate) folder: PathBuf,
    /// Sentences about preloads that are missing.
    pub(crate) missing: Vec<String>,
}

/// Finds these files as `pumice run` does.
///
/// # Errors
/// The sentence with which `pumice run` would fail.
pub(crate) fn loaded_objects() -> Result<LoadedObjects, String> {
    let library = library::find()?;
    let folder = library::links(&library)?;
    let missing = preload::missing(&library.path);
    Ok(LoadedObjects { object: library.path, folder, missing })
}

/// Checks what can be known before the program opens a device, and returns the devices.
fn check(settings: &Settings, options: &RunOptions) -> Result<Vec<DeviceDescription>, CommandError> {
    let refuse = |error: SettingError| refused(&error, options);
    let found = known_interfaces()?;
    let profile = settings.load_profile().map_err(refuse)?;
    let plan = FaultPlan::of_settings(settings).map_err(|error| unusable_plan(&error, options))?;
    let topology = Topology::of(settings).map_err(refuse)?;
    let described = settings.device_descriptions(&profile, &found).map_err(refuse)?;
    let ports = |device: &DeviceDescription| if device.second_port.is_some() { 2 } else { 1 };
    let devices: Vec<_> = described.iter().map(|device| (device.name.as_str(), ports(device))).collect();
    for sentence in plan.without_effect_on(&devices) {
        complain(&sentence);
    }
    for device in &described {
        if let (Some(topology), Some(file)) = (&topology, &settings.topology) {
            let gids = device.gid_entries(&found).map_err(refuse)?;
            let addresses: Vec<_> = gids.iter().map(|entry| entry.ip).collect();
            topology.check_device(&device.name, &addresses).map_err(|problem| {
                refuse(SettingError::new(settings::TOPOLOGY, file.to_string_lossy(), problem))
            })?;
        }
        if device.gid_entries(&found).map_err(refuse)?.is_empty() {
            let sentence =
                "no interface that is up has an address: bring one up, `ip link set lo up` is enough";
            return Err(CommandError::Failed(sentence.to_owned()));
        }
    }
    let none = CheckSettings::default();
    let checked = settings.check.as_ref().unwrap_or(&none);
    Suppressions::of(checked).map_err(refuse)?;
    let written = [
        (settings::CAPTURE, &settings.capture),
        (settings::TRACE, &settings.trace),
        (settings::CHECK_REPORT, &checked.report),
        (settings::FAULT_REPORT, &settings.fault_report),
    ];
    for (variable, file) in written {
        if let Some(file) = file
            && let Err((errno, problem)) = writable(file)
        {
            let error = SettingError::new(variable, file.to_string_lossy(), problem);
            return Err(refuse(error.with_errno(errno.raw_os_error())));
        }
    }
    Ok(described)
}

/// Checks whether a file can be created, or overwritten if it exists. The errno is never EINVAL: any path has
/// a valid form, and obstacles are facts of this host.
fn writable(file: &Path) -> Result<(), (Errno, String)> {
    use rustix::fs::{Access, access};
    if file.is_dir() {
        return Err((Errno::ISDIR, "it is a folder: name a file in it".to_owned()));
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        return Err((Errno::NOENT, format!("there is no folder {}: make it first", folder.display())));
    }
    let refused = |path: &Path, error: Errno| {
        let reason = std::io::Error::from(error);
        (error, format!("{} may not be written: {reason}", path.display()))
    };
    if file.exists() {
        return access(file, Access::WRITE_OK).map_err(|error| refused(file, error));
    }
    // access(2) says yes for root where the file system itself says no, so a file is created for a moment.
    let trial = folder.join(format!(".pumice-capture-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&trial);
    if let Err(error) = made {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        return Err(refused(&folder, errno));
    }
    // The capture is created in a moment; if the trial file cannot be removed, only its name stays.
    let _ = std::fs::remove_file(&trial);
    Ok(())
}

/// Returns the error for a plan that cannot be used: a usage error, also if the file cannot be read.
fn unusable_plan(error: &SettingError, options: &RunOptions) -> CommandError {
    CommandError::Usage(refused(error, options).to_string())
}

/// Returns the error for a wrong setting, which names the option if the value comes from one.
fn refused(error: &SettingError, options: &RunOptions) -> CommandError {
    match options.option_of(error.variable) {
        Some(option) => {
            let sentence = format!("{option} {}: {}", error.value, error.problem);
            if error.errno == Errno::INVAL.raw_os_error() {
                CommandError::Usage(sentence)
            } else {
                CommandError::Failed(sentence)
            }
        }
        None => CommandError::Failed(error.to_string()),
    }
}
