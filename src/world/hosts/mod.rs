//! The hosts of `pumice world --hosts`: the world's first process makes them and enters the first one, and a
//! stand-in for ssh enters the others.

mod ssh;
mod table;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use pumice_device::outside::world::{WORLD_VARIABLE, enters_host};
use pumice_device::port::Topology;
use pumice_device::settings;
use pumice_world::WorldOptions;
use pumice_world::options::own_name;

use crate::check;
use crate::outcome::{CommandError, CommandResult};
use crate::run::RunOptions;
use ssh::RemoteCommand;
use table::{HostFiles, HostTable};

/// Largest number of hosts of a world.
pub(super) const MAX_HOSTS: u16 = 1024;
/// Exit code of ssh when it cannot run the command.
const NO_CONNECTION: u8 = 255;

/// Options of the command by which processes of a world enter hosts. Users do not give it.
#[derive(Debug, Args)]
pub(crate) struct HostCommandOptions {
    /// Folder of the hosts' files
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// Make the hosts of this table, and run a program on the first one, with the options of "pumice run"
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// The arguments of "pumice run" with --table, those of ssh without
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    words: Vec<OsString>,
}

/// The arguments of `pumice run`, which a host's first process is given.
#[derive(Debug, Parser)]
struct RunArguments {
    #[command(flatten)]
    run: RunOptions,
}

/// Lets the program of a world begin on the first of so many hosts, each of which has folders of its own.
///
/// # Errors
/// The options contradict each other, or the topology has too few hosts.
pub(super) fn begin_on_first(
    count: u16,
    run: &RunOptions,
    private_folders: &[PathBuf],
    world: &mut WorldOptions,
) -> Result<(), CommandError> {
    if run.addr.is_some() {
        let sentence =
            "--hosts gives each host its address: leave out --addr, or name addresses in --topology";
        return Err(CommandError::Usage(sentence.to_owned()));
    }
    let devices = match run.devices.as_deref().map(str::parse::<usize>) {
        None => 1,
        Some(Ok(devices)) if devices > 0 => devices,
        Some(_) => return Err(CommandError::Usage("--devices: give a whole number from 1".to_owned())),
    };
    let named = match &run.topology {
        Some(file) => addresses_of(file)?,
        None => Vec::new(),
    };
    let table = HostTable::new(usize::from(count), devices, &named, private_folders.to_vec())
        .map_err(CommandError::Usage)?;
    let (Some(own), Some(runtime)) = (world.arguments.first().cloned(), world.private_folders.first()) else {
        return Ok(());
    };
    let files = HostFiles::new(runtime);
    let mut words: Vec<OsString> = vec![own, "world".into(), "host".into(), "--folder".into()];
    words.push(files.folder().as_os_str().to_owned());
    words.extend(["--table".into(), table.text().into(), "--".into()]);
    // "pumice" and "run" are not arguments.
    words.extend(world.arguments.drain(..).skip(2));
    world.arguments = words;
    let before =
        |name: &str| world.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let set = files.variables(before("PATH").map(OsString::as_os_str));
    world.environment.retain(|(name, _)| !set.iter().any(|(known, _)| name == known));
    world.environment.extend(set.into_iter().map(|(name, value)| (name.into(), value)));
    world.environment.retain(|(name, _)| name != settings::ADDR && !HostFiles::is_of_job(name));
    Ok(())
}

/// Returns the addresses of a topology's hosts, in their order.
fn addresses_of(file: &Path) -> Result<Vec<IpAddr>, CommandError> {
    let wrong = |sentence: String| CommandError::Usage(format!("--topology {}: {sentence}", file.display()));
    let topology = Topology::load(file).map_err(|(sentence, _)| wrong(sentence))?;
    if topology.named.is_empty() {
        return Err(wrong("it names no addresses of hosts: write hosts as a list of addresses".to_owned()));
    }
    Ok(topology.named.iter().map(|host| host.address).collect())
}

/// Runs the command.
pub(super) fn run(options: &HostCommandOptions) -> CommandResult {
    if std::env::var_os(WORLD_VARIABLE).is_none() {
        let sentence = "only programs in a world have hosts: pumice world --hosts 2 -- PROGRAM";
        return Err(CommandError::Usage(sentence.to_owned()));
    }
    let files = HostFiles::at(&options.folder);
    let failed = |error: std::io::Error| CommandError::Failed(format!("hosts cannot be made: {error}"));
    let Some(text) = &options.table else { return connect(&files, &options.words) };
    let mut table = HostTable::parse(text).map_err(CommandError::Usage)?;
    let words = &options.words;
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    table.run_options = words.iter().take(end).map(|word| word.to_string_lossy().into_owned()).collect();
    files.write(&table).map_err(failed)?;
    enter(&files, &table, 0, options.words.clone())
}

/// Runs the command of ssh on the host that it names.
fn connect(files: &HostFiles, words: &[OsString]) -> CommandResult {
    let refused = |sentence: String| CommandError::Program { sentence, exit_code: NO_CONNECTION };
    let command = RemoteCommand::parse(words).map_err(refused)?;
    let table = files.table().map_err(|error| refused(format!("the hosts cannot be read: {error}")))?;
    let here = own_name().map_err(|error| refused(format!("this host has no name: {error}")))?;
    let Some(host) = table.find(&command.host, &here) else {
        return Err(refused(format!(
            "Could not resolve hostname {}: Name or service not known",
            command.host
        )));
    };
    let program = ["--".into(), "/bin/sh".into()].into_iter().chain(command.arguments());
    let words = table.run_options.iter().map(OsString::from).chain(program).collect();
    enter(files, &table, host, words)
}

/// Enters a host, and executes a program there as `pumice run` does.
fn enter(files: &HostFiles, table: &HostTable, host: usize, words: Vec<OsString>) -> CommandResult {
    let name: OsString = "run".into();
    let arguments = RunArguments::try_parse_from(std::iter::once(name).chain(words))
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    let entered = files.host(table, host).and_then(|host| host.enter());
    entered.map_err(|error| {
        CommandError::Failed(format!("{} cannot be entered: {error}", HostTable::name(host)))
    })?;
    enters_host(u32::try_from(host + 1).unwrap_or(u32::MAX));
    let RunArguments { mut run } = arguments;
    run.addr = Some(table.addresses(host));
    check::run(run)
}
