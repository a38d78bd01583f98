//! `pumice run`: checks the settings, puts them into the environment, and becomes the program.

mod library;
mod options;
mod program;
mod rsocket;
mod sysfs;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_device::interface::interfaces;
use pumice_device::settings::{self, SettingError, Settings};

pub(crate) use options::RunOptions;

use crate::outcome::{CommandError, CommandResult};
use program::Program;

/// Runs the command. Returns only when the program could not be started.
pub(crate) fn run(options: &RunOptions) -> CommandResult {
    let set = options.variables().map_err(CommandError::Failed)?;
    let given = |name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
    let settings = Settings::parse(
        |name| given(name).or_else(|| std::env::var_os(name)),
        std::io::stderr().is_terminal(),
    )
    .map_err(|error| refused(&error, options))?;
    check(&settings, options)?;
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(CommandError::Usage("name a program to run: pumice run -- program arguments".to_owned()));
    };
    let program = Program::find(name)?;
    for warning in program.warnings() {
        let _ = writeln!(std::io::stderr(), "pumice: {warning}");
    }
    let object = library::find().map_err(CommandError::Failed)?;
    let folder = library::links(&object).map_err(CommandError::Failed)?;
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments).envs(set);
    command.env("LD_LIBRARY_PATH", library::search_path(&folder, std::env::var_os("LD_LIBRARY_PATH")));
    if options.sysfs {
        sysfs::prepare(&settings, &object, &mut command).map_err(CommandError::Failed)?;
    }
    if options.rsocket {
        rsocket::prepare(&object, &mut command).map_err(CommandError::Failed)?;
    }
    Err(program.not_run(&command.exec()))
}

/// What can be known before the program opens the device.
fn check(settings: &Settings, options: &RunOptions) -> Result<(), CommandError> {
    let refuse = |error: SettingError| refused(&error, options);
    let found = interfaces()
        .map_err(|error| CommandError::Failed(format!("the network interfaces cannot be listed: {error}")))?;
    settings.load_profile().map_err(refuse)?;
    if settings.gid_entries(&found).map_err(refuse)?.is_empty() {
        let sentence = "no interface that is up has an address: bring one up, `ip link set lo up` is enough";
        return Err(CommandError::Failed(sentence.to_owned()));
    }
    if let Some(file) = &settings.capture
        && let Err(problem) = writable(file)
    {
        return Err(refuse(SettingError::new(settings::CAPTURE, file.to_string_lossy(), problem)));
    }
    Ok(())
}

/// Whether a file can be made, or overwritten if it is there.
fn writable(file: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    if file.is_dir() {
        return Err("it is a folder: name a file in it".to_owned());
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        return Err(format!("there is no folder {}: make it first", folder.display()));
    }
    let target = if file.exists() { file } else { &folder };
    access(target, Access::WRITE_OK)
        .map_err(|error| format!("{} may not be written: {error}", target.display()))
}

/// The sentence for a wrong setting: it names the option, if that is where the value is from.
fn refused(error: &SettingError, options: &RunOptions) -> CommandError {
    match options.option_of(error.variable) {
        Some(option) => {
            let sentence = format!("{option} {}: {}", error.value, error.problem);
            if error.errno == rustix::io::Errno::INVAL.raw_os_error() {
                CommandError::Usage(sentence)
            } else {
                CommandError::Failed(sentence)
            }
        }
        None => CommandError::Failed(error.to_string()),
    }
}

/// A path that means the same after the program has changed its folder.
fn absolute(path: &Path) -> Result<OsString, String> {
    std::path::absolute(path)
        .map(PathBuf::into_os_string)
        .map_err(|error| format!("the current folder cannot be told: {error}"))
}
