//! Orders that are given to other processes of the same user.

use std::path::Path;
use std::time::Duration;

use pumice_model::fates::live::FaultReply;
use pumice_model::recording::RecordReply;
use pumice_platform::outside;

use crate::members::error::SharingError;
use crate::queries::{SingleQuery, collect_replies};
use crate::registry::port_processes::PortProcess;
use crate::relay::command_queue::{MAX_BYTES, answer_of};

/// Answer of one process to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultCommandReply {
    /// Process that was asked.
    pub sharer: PortProcess,
    /// Answer of the process; `None` if it did not answer in time, because it is stopped, exits, or runs a
    /// version without orders.
    pub answer: Option<FaultReply>,
}

/// Gives an order to the processes that share a UDP port of this network namespace and that `is_selected`
/// chooses. `order` is a [`FaultCommand`](pumice_model::fates::live::FaultCommand), encoded. `folder` is that
/// of
/// [`SharedPortConfig`](crate::shared_port::SharedPortConfig). Takes as long as the slowest process, and at
/// most `patience` for each of this user's folders.
///
/// # Errors
/// Fails if the registry cannot be opened or read, or if no socket can be made.
pub fn order(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    is_selected: &dyn Fn(&PortProcess) -> bool,
) -> Result<Vec<FaultCommandReply>, SharingError> {
    let replies = send_command(port, folder, patience, order, (is_selected, &FaultReply::decode))?;
    Ok(replies.into_iter().map(|(sharer, answer)| FaultCommandReply { sharer, answer }).collect())
}

/// Answer of one process to an order to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Process that was asked.
    pub sharer: PortProcess,
    /// Answer of the process; `None` if it did not answer in time.
    pub answer: Option<RecordReply>,
}

/// Gives an order to record, as [`order`] does; `order` is a
/// [`RecordCommand`](pumice_model::recording::RecordCommand), encoded.
///
/// # Errors
/// Fails as [`order`] does.
pub fn record(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    is_selected: &dyn Fn(&PortProcess) -> bool,
) -> Result<Vec<Recording>, SharingError> {
    let replies = send_command(port, folder, patience, order, (is_selected, &RecordReply::decode))?;
    Ok(replies.into_iter().map(|(sharer, answer)| Recording { sharer, answer }).collect())
}

/// The processes that an order is given to, and the function that reads their answers.
type CommandTarget<'a, A> = (&'a dyn Fn(&PortProcess) -> bool, &'a dyn Fn(&[u8]) -> Option<A>);

/// Gives an order and collects the answers. The state of each process is its answer.
fn send_command<A>(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    (is_selected, read): CommandTarget<'_, A>,
) -> Result<Vec<(PortProcess, Option<A>)>, SharingError> {
    let now = outside::since_1970();
    let number = now.as_nanos() as u64;
    let question = SingleQuery {
        is_selected,
        send_query: &|querier, registry, member| {
            // The order is given again if this datagram is lost.
            let _ = querier.order(registry, member, number, order);
        },
        read: &|bytes| {
            let (member, of_order, answer) = answer_of(bytes)?;
            let answer = (of_order == number).then_some(answer)?;
            Some((member, read(answer)?))
        },
        max_bytes: MAX_BYTES,
    };
    collect_replies(port, folder, patience, &question)
}
