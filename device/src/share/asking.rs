//! Questions to the processes of a registry, and their answers.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use pumice_transport::wire::ProcessIndex;

use super::registry::Registry;
use super::relay::Asker;
use super::{ShareError, Sharer};
use crate::port::wait_readable;

/// Between asking and asking again: an answer is lost when more come at once than the kernel holds.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The answer in a datagram, and whose it is; nothing if it is none.
pub(super) type Reading<'a, A> = &'a dyn Fn(&[u8]) -> Option<(ProcessIndex, A)>;

/// A question to processes.
pub(super) struct Question<'a, A> {
    /// The processes that are asked.
    pub(super) is_asked: &'a dyn Fn(&Sharer) -> bool,
    /// Asks one; also again, if no answer comes.
    pub(super) ask: &'a dyn Fn(&Asker, &Registry, ProcessIndex),
    /// Reads what came.
    pub(super) read: Reading<'a, A>,
    /// The longest answer.
    pub(super) max_bytes: usize,
}

/// The answers of the processes that share a UDP port of this network namespace; none of one that does not
/// answer in time. Takes as long as the slowest, and at most `patience` for each of this user's folders.
pub(super) fn answers<A>(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    question: &Question<'_, A>,
) -> Result<Vec<(Sharer, Option<A>)>, ShareError> {
    let mut all = Vec::new();
    for registry in super::registries(port, folder)? {
        all.extend(answers_in(&registry, patience, question)?);
    }
    Ok(all)
}

fn answers_in<A>(
    registry: &Registry,
    patience: Duration,
    question: &Question<'_, A>,
) -> Result<Vec<(Sharer, Option<A>)>, ShareError> {
    registry.lock_patiently()?;
    let sharers = super::sharers_in(registry)?.into_iter().filter(question.is_asked);
    let mut all: Vec<(Sharer, Option<A>)> = sharers.map(|sharer| (sharer, None)).collect();
    if all.is_empty() {
        registry.unlock();
        return Ok(all);
    }
    let asker = Asker::bind(registry.sockets()).map_err(|source| ShareError::Os {
        step: "open a socket for answers in",
        path: registry.path().parent().map(Path::to_owned),
        source,
    })?;
    registry.unlock();
    let mut buffer = vec![0; question.max_bytes];
    let end = Instant::now() + patience;
    while all.iter().any(|(_, answer)| answer.is_none()) && Instant::now() < end {
        for (sharer, _) in all.iter().filter(|(_, answer)| answer.is_none()) {
            // A process that has ended, or does not keep up, is missing at the end.
            (question.ask)(&asker, registry, sharer.process);
        }
        let again = (Instant::now() + ASK_AGAIN).min(end);
        while all.iter().any(|(_, answer)| answer.is_none()) {
            let left = again.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let _ = wait_readable(&[asker.as_raw_fd()], None, Some(left));
            while let Some(bytes) = asker.receive(&mut buffer) {
                let Some((process, read)) = (question.read)(bytes) else { continue };
                if let Some((_, answer)) = all.iter_mut().find(|(sharer, _)| sharer.process == process) {
                    *answer = Some(read);
                }
            }
        }
    }
    Ok(all)
}
