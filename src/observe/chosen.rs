//! Running processes of this user that a command is about, as its options choose them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_device::ground::quantity::time_ns;
use pumice_device::inspect::Collected;
use pumice_device::record_orders::{MAX_RECORDING_MS, RecordAnswer, RecordOrder};
use pumice_device::share::{Inspected, Recording, Sharer, inspect, record};
use pumice_transport::path::ROCE_PORT;

use super::{plain, program};

/// How long processes are waited for. One that lives answers within a millisecond or two.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which processes; all of this user, if none is named.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// Only the process with this number
    #[arg(long, conflicts_with = "tag")]
    pub(crate) pid: Option<u32>,
    /// Only the processes with this tag; "*" at its end stands for anything
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Where the registry of processes is, if not in the usual folder
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// The shortest recording.
const LEAST: Duration = Duration::from_millis(10);

/// A time for which programs are recorded, as in 5s.
///
/// # Errors
/// A sentence.
pub(crate) fn live_time(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(time_ns(text)?);
    let is_right = (LEAST..=Duration::from_millis(MAX_RECORDING_MS)).contains(&time);
    if is_right { Ok(time) } else { Err(format!("\"{text}\" is not a time from 10ms to 86400s")) }
}

/// What a process answered to an order to record, or why it does not.
pub(crate) type Given = Result<RecordAnswer, String>;

/// A device of a process that was chosen.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) sharer: Sharer,
    /// Made harmless for a terminal.
    pub(crate) program: String,
    pub(crate) tag: String,
    pub(crate) device: String,
    /// It did not answer.
    pub(crate) is_silent: bool,
}

impl Running {
    /// The processes, one for each device.
    ///
    /// # Errors
    /// A sentence: they cannot be asked, or there are none.
    pub(crate) fn find(&self) -> Result<Vec<Chosen>, String> {
        let all = inspect(self.port, self.registry.as_deref(), PATIENCE)
            .map_err(|error| format!("the processes cannot be asked: {error}"))?;
        let chosen: Vec<Chosen> = all.into_iter().filter(|one| self.is_meant(one)).map(chosen).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let which = match (self.pid, &self.tag) {
            (Some(pid), _) => format!("no process {pid} of this user shares"),
            (_, Some(tag)) => format!("no process of this user with the tag {tag} shares"),
            _ => "no process of this user shares".to_owned(),
        };
        let port = self.port;
        Err(format!("{which} UDP port {port}: start the program first (pumice stat shows those that run)"))
    }

    /// Gives an order to record to those that were chosen, at once: what each answered, or why it does not
    /// record.
    ///
    /// # Errors
    /// A sentence: they cannot be asked.
    pub(crate) fn give(&self, order: &RecordOrder, chosen: &[Chosen]) -> Result<Vec<Given>, String> {
        let is_asked = |sharer: &Sharer| chosen.iter().any(|one| one.sharer == *sharer && !one.is_silent);
        let mut answers = self.order(order, &is_asked)?;
        let of = |one: &Chosen| {
            let index = answers.iter().position(|other| other.sharer == one.sharer);
            let answer = index.and_then(|index| answers.swap_remove(index).answer);
            let answer =
                answer.ok_or("it does not answer: it is stopped, or just begins or ends; try again")?;
            answer.refused.as_ref().map_or(Ok(()), |why| Err(plain(why)))?;
            Ok(answer)
        };
        Ok(chosen.iter().map(of).collect())
    }

    /// Has a recording to this file end before its time.
    ///
    /// # Errors
    /// A sentence: the process cannot be asked.
    pub(crate) fn end(&self, file: &str, of: Sharer) -> Result<(), String> {
        self.order(&RecordOrder::End { file: file.to_owned() }, &|sharer| *sharer == of).map(drop)
    }

    fn order(
        &self,
        order: &RecordOrder,
        is_asked: &dyn Fn(&Sharer) -> bool,
    ) -> Result<Vec<Recording>, String> {
        record(self.port, self.registry.as_deref(), PATIENCE, &order.encode()?, is_asked)
            .map_err(|error| format!("the processes cannot be asked: {error}"))
    }

    fn is_meant(&self, one: &Inspected) -> bool {
        let tag = one.objects.as_ref().map(|objects| objects.tag.as_str());
        let has_tag = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => tag.is_some_and(|tag| tag.starts_with(start)),
            None => tag == Some(wanted),
        };
        self.pid.is_none_or(|pid| one.sharer.pid == pid) && self.tag.as_ref().is_none_or(has_tag)
    }
}

fn chosen(one: Inspected) -> Chosen {
    let Inspected { sharer, objects } = one;
    let is_silent = objects.is_none();
    let Collected { tag, device, .. } = objects.unwrap_or_default();
    let name = program(sharer.pid).unwrap_or_else(|| "?".to_owned());
    Chosen { sharer, program: name, tag: plain(&tag), device: plain(&device), is_silent }
}
