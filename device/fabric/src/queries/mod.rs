//! Questions to the processes of a registry, and their answers: who is asked, how often, and how answers are
//! read.

pub(crate) mod commands;
pub(crate) mod inspecting;
pub(crate) mod query_schedule;

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use pumice_platform::outside;
use pumice_platform::outside::system_call::wait_readable;

use super::registry::Registry;
use super::relay::Querier;
use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::queries::query_schedule::{QuerySchedule, QueryStep};
use crate::registry::port_processes::PortProcess;

/// Result of reading one datagram: whether the process has to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyProgress {
    /// The datagram did not answer the last question.
    Nothing,
    /// The process answered, and another question follows.
    More,
    /// The process answered the last of its questions.
    All,
}

/// A series of questions to each process, and the handling of its answers.
pub(crate) trait QueryProtocol {
    /// State of one process's answers so far.
    type PartialReply: Default;
    /// Content of an answer, decoded from a datagram.
    type Answer;

    /// Reports whether a process is asked at all.
    fn is_selected(&self, sharer: &PortProcess) -> bool;
    /// Sends the next question to a process. Called again with the same state if no answer comes.
    fn send_query(
        &self,
        querier: &Querier,
        registry: &Registry,
        member: MemberIndex,
        partial: &Self::PartialReply,
    );
    /// Decodes a datagram; `None` if it is not an answer.
    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, Self::Answer)>;
    /// Adds the answer of a process to what is known of it.
    fn add_reply(
        &self,
        registry: &Registry,
        sharer: &PortProcess,
        partial: &mut Self::PartialReply,
        answer: Self::Answer,
    ) -> ReplyProgress;
    /// Returns the length of the longest answer, in bytes.
    fn max_bytes(&self) -> usize;
}

/// Function that decodes a datagram into an answer and the member that sent it; `None` if it is not an
/// answer.
pub(crate) type ReplyDecoder<'a, A> = &'a dyn Fn(&[u8]) -> Option<(MemberIndex, A)>;

/// A conversation of one question per process.
pub(crate) struct SingleQuery<'a, A> {
    /// Selects the processes that are asked.
    pub(crate) is_selected: &'a dyn Fn(&PortProcess) -> bool,
    /// Sends the question to one process. Called again if no answer comes.
    pub(crate) send_query: &'a dyn Fn(&Querier, &Registry, MemberIndex),
    /// Decodes a datagram.
    pub(crate) read: ReplyDecoder<'a, A>,
    /// Length of the longest answer, in bytes.
    pub(crate) max_bytes: usize,
}

impl<A> QueryProtocol for SingleQuery<'_, A> {
    type PartialReply = Option<A>;
    type Answer = A;

    fn is_selected(&self, sharer: &PortProcess) -> bool {
        (self.is_selected)(sharer)
    }

    fn send_query(&self, querier: &Querier, registry: &Registry, member: MemberIndex, _: &Option<A>) {
        (self.send_query)(querier, registry, member);
    }

    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, A)> {
        (self.read)(bytes)
    }

    fn add_reply(&self, _: &Registry, _: &PortProcess, partial: &mut Option<A>, answer: A) -> ReplyProgress {
        *partial = Some(answer);
        ReplyProgress::All
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes
    }
}

/// Asks the processes that share a UDP port of this network namespace, and returns their answers. A few
/// processes are asked at a time. An answer is awaited for `patience`, in each of this user's folders in
/// turn.
pub(crate) fn collect_replies<C: QueryProtocol>(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    protocol: &C,
) -> Result<Vec<(PortProcess, C::PartialReply)>, SharingError> {
    let mut all = Vec::new();
    for registry in crate::registry::port_processes::registries(port, folder)? {
        all.extend(collect_replies_in(&registry, patience, protocol)?);
    }
    Ok(all)
}

fn collect_replies_in<C: QueryProtocol>(
    registry: &Registry,
    patience: Duration,
    protocol: &C,
) -> Result<Vec<(PortProcess, C::PartialReply)>, SharingError> {
    registry.lock_patiently()?;
    let port_processes = crate::registry::port_processes::port_processes_in(registry)?
        .into_iter()
        .filter(|sharer| protocol.is_selected(sharer));
    let mut all: Vec<(PortProcess, C::PartialReply)> =
        port_processes.map(|sharer| (sharer, C::PartialReply::default())).collect();
    if all.is_empty() {
        registry.unlock();
        return Ok(all);
    }
    let querier = Querier::bind(registry.sockets()).map_err(|source| SharingError::Os {
        step: "open a socket for answers in",
        path: registry.path().parent().map(Path::to_owned),
        source,
    })?;
    registry.unlock();
    let mut buffer = vec![0; protocol.max_bytes()];
    let begun = outside::now();
    let now_ns = || u64::try_from(outside::since(begun).as_nanos()).unwrap_or(u64::MAX);
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let mut query_schedule = QuerySchedule::new(all.len(), 0, patience_ns);
    loop {
        let at_ns = now_ns();
        match query_schedule.next(at_ns) {
            QueryStep::End => return Ok(all),
            QueryStep::Ask(index) => {
                if let Some((sharer, partial)) = all.get(index) {
                    // A process that has ended, or does not keep up, is missing at the end.
                    protocol.send_query(&querier, registry, sharer.member, partial);
                }
            }
            QueryStep::Wait { until_ns } => {
                let left = Duration::from_nanos(until_ns.saturating_sub(at_ns));
                let _ = wait_readable(&[querier.as_raw_fd()], None, Some(left));
            }
        }
        while let Some(bytes) = querier.receive(&mut buffer) {
            let Some((member, answer)) = protocol.read(bytes) else { continue };
            let Some(index) = all.iter().position(|(sharer, _)| sharer.member == member) else { continue };
            let Some((sharer, partial)) = all.get_mut(index) else { continue };
            match protocol.add_reply(registry, sharer, partial, answer) {
                ReplyProgress::Nothing => {}
                progress => query_schedule.answered(index, now_ns(), progress == ReplyProgress::More),
            }
        }
    }
}
