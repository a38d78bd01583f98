//! The running processes of this user that a command's options select.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_device::inspect::InspectedObjects;
use pumice_device::platform::quantity::time_ns;
use pumice_device::record_orders::{MAX_RECORDING_MS, RecordCommand, RecordReply};
use pumice_device::sharing::{InspectReply, PortProcess, Recording, inspect, record};
use pumice_transport::path::ROCE_PORT;

use super::{plain, program};

/// Time for which answers of processes are awaited. A live process answers within a millisecond or two.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The processes that a command is about; all of this user, if none is named.
#[derive(Debug, Args)]
pub(crate) struct ProcessSelection {
    /// Select only the process with this number
    #[arg(long, conflicts_with = "tag")]
    pub(crate) pid: Option<u32>,
    /// Select only the processes with this tag; "*" at its end stands for anything
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// Duration of the shortest recording.
const MIN_RECORDING_TIME: Duration = Duration::from_millis(10);

/// Parses the time for which programs are recorded, as in 5s.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub(crate) fn live_time(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(time_ns(text)?);
    let is_right = (MIN_RECORDING_TIME..=Duration::from_millis(MAX_RECORDING_MS)).contains(&time);
    if is_right { Ok(time) } else { Err(format!("\"{text}\" is not a time from 10ms to 86400s")) }
}

/// The answer of a process to an order to record, or why it does not record.
pub(crate) type RecordResult = Result<RecordReply, String>;

/// A device of a process that was selected.
#[derive(Debug, Clone)]
pub(crate) struct SelectedDevice {
    pub(crate) sharer: PortProcess,
    /// Name of the program, with control characters replaced for the terminal.
    pub(crate) program: String,
    pub(crate) tag: String,
    pub(crate) device: String,
    /// The process did not answer.
    pub(crate) is_silent: bool,
}

impl ProcessSelection {
    /// Returns the processes, one entry for each device.
    ///
    /// # Errors
    /// A sentence: they cannot be asked, or there are none.
    pub(crate) fn find(&self) -> Result<Vec<SelectedDevice>, String> {
        let all = inspect(self.port, self.registry.as_deref(), TIMEOUT)
            .map_err(|error| format!("the processes cannot be asked: {error}"))?;
        let selected: Vec<SelectedDevice> =
            all.into_iter().filter(|one| self.selects(one)).map(selected).collect();
        if !selected.is_empty() {
            return Ok(selected);
        }
        let which = match (self.pid, &self.tag) {
            (Some(pid), _) => format!("no process {pid} of this user shares"),
            (_, Some(tag)) => format!("no process of this user with the tag {tag} shares"),
            _ => "no process of this user shares".to_owned(),
        };
        let port = self.port;
        Err(format!("{which} UDP port {port}: start the program first (pumice stat shows those that run)"))
    }

    /// Sends an order to record to the selected processes at once, and returns what each answered, or why it
    /// does not record.
    ///
    /// # Errors
    /// A sentence: they cannot be asked.
    pub(crate) fn send_order(
        &self,
        order: &RecordCommand,
        selected: &[SelectedDevice],
    ) -> Result<Vec<RecordResult>, String> {
        let is_selected =
            |sharer: &PortProcess| selected.iter().any(|one| one.sharer == *sharer && !one.is_silent);
        let mut answers = self.order(order, &is_selected)?;
        let of = |one: &SelectedDevice| {
            let index = answers.iter().position(|other| other.sharer == one.sharer);
            let answer = index.and_then(|index| answers.swap_remove(index).answer);
            let answer =
                answer.ok_or("it does not answer: it is stopped, or just begins or ends; try again")?;
            answer.refused.as_ref().map_or(Ok(()), |why| Err(plain(why)))?;
            Ok(answer)
        };
        Ok(selected.iter().map(of).collect())
    }

    /// Ends a recording to this file before its time.
    ///
    /// # Errors
    /// A sentence: the process cannot be asked.
    pub(crate) fn end(&self, file: &str, of: PortProcess) -> Result<(), String> {
        self.order(&RecordCommand::End { file: file.to_owned() }, &|sharer| *sharer == of).map(drop)
    }

    fn order(
        &self,
        order: &RecordCommand,
        is_selected: &dyn Fn(&PortProcess) -> bool,
    ) -> Result<Vec<Recording>, String> {
        record(self.port, self.registry.as_deref(), TIMEOUT, &order.encode()?, is_selected)
            .map_err(|error| format!("the processes cannot be asked: {error}"))
    }

    fn selects(&self, one: &InspectReply) -> bool {
        let tag = one.objects.as_ref().map(|objects| objects.tag.as_str());
        let has_tag = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => tag.is_some_and(|tag| tag.starts_with(start)),
            None => tag == Some(wanted),
        };
        self.pid.is_none_or(|pid| one.sharer.pid == pid) && self.tag.as_ref().is_none_or(has_tag)
    }
}

fn selected(one: InspectReply) -> SelectedDevice {
    let InspectReply { sharer, objects } = one;
    let is_silent = objects.is_none();
    let InspectedObjects { tag, device, .. } = objects.unwrap_or_default();
    let name = program(sharer.pid).unwrap_or_else(|| "?".to_owned());
    SelectedDevice { sharer, program: name, tag: plain(&tag), device: plain(&device), is_silent }
}
