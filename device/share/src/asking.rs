//! Questions to the processes of a registry, and their answers.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use pumice_ground::outside;
use pumice_ground::outside::wait::wait_readable;

use super::member_index::MemberIndex;
use super::registry::Registry;
use super::relay::Asker;
use super::turns::{Turn, Turns};
use super::{ShareError, Sharer};

/// Whether a process is asked again after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was no answer to the last question.
    Nothing,
    /// There is another question.
    More,
    /// That was all.
    All,
}

/// What is asked of each process, and what becomes of its answers.
pub(super) trait Conversation {
    /// What is known of a process so far.
    type Known: Default;
    /// What a datagram says.
    type Answer;

    /// Whether a process is asked.
    fn is_asked(&self, sharer: &Sharer) -> bool;
    /// Asks a process; also again, if no answer comes.
    fn ask(&self, asker: &Asker, registry: &Registry, member: MemberIndex, known: &Self::Known);
    /// Reads what came: nothing if it is no answer.
    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, Self::Answer)>;
    /// Hears the answer of a process.
    fn hear(
        &self,
        registry: &Registry,
        sharer: &Sharer,
        known: &mut Self::Known,
        answer: Self::Answer,
    ) -> Heard;
    /// The longest answer.
    fn max_bytes(&self) -> usize;
}

/// The answer in a datagram, and whose it is; nothing if it is none.
pub(super) type Reading<'a, A> = &'a dyn Fn(&[u8]) -> Option<(MemberIndex, A)>;

/// One question to each process.
pub(super) struct Question<'a, A> {
    /// The processes that are asked.
    pub(super) is_asked: &'a dyn Fn(&Sharer) -> bool,
    /// Asks one; also again, if no answer comes.
    pub(super) ask: &'a dyn Fn(&Asker, &Registry, MemberIndex),
    /// Reads what came.
    pub(super) read: Reading<'a, A>,
    /// The longest answer.
    pub(super) max_bytes: usize,
}

impl<A> Conversation for Question<'_, A> {
    type Known = Option<A>;
    type Answer = A;

    fn is_asked(&self, sharer: &Sharer) -> bool {
        (self.is_asked)(sharer)
    }

    fn ask(&self, asker: &Asker, registry: &Registry, member: MemberIndex, _: &Option<A>) {
        (self.ask)(asker, registry, member);
    }

    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, A)> {
        (self.read)(bytes)
    }

    fn hear(&self, _: &Registry, _: &Sharer, known: &mut Option<A>, answer: A) -> Heard {
        *known = Some(answer);
        Heard::All
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes
    }
}

/// What the processes that share a UDP port of this network namespace have answered. They are asked together,
/// a few at a time. Each answer is waited for `patience`, in one of this user's folders after the other.
pub(super) fn answers<C: Conversation>(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    conversation: &C,
) -> Result<Vec<(Sharer, C::Known)>, ShareError> {
    let mut all = Vec::new();
    for registry in super::registries(port, folder)? {
        all.extend(answers_in(&registry, patience, conversation)?);
    }
    Ok(all)
}

fn answers_in<C: Conversation>(
    registry: &Registry,
    patience: Duration,
    conversation: &C,
) -> Result<Vec<(Sharer, C::Known)>, ShareError> {
    registry.lock_patiently()?;
    let sharers = super::sharers_in(registry)?.into_iter().filter(|sharer| conversation.is_asked(sharer));
    let mut all: Vec<(Sharer, C::Known)> = sharers.map(|sharer| (sharer, C::Known::default())).collect();
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
    let mut buffer = vec![0; conversation.max_bytes()];
    let begun = outside::now();
    let now_ns = || u64::try_from(outside::since(begun).as_nanos()).unwrap_or(u64::MAX);
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let mut turns = Turns::new(all.len(), 0, patience_ns);
    loop {
        let at_ns = now_ns();
        match turns.next(at_ns) {
            Turn::End => return Ok(all),
            Turn::Ask(index) => {
                if let Some((sharer, known)) = all.get(index) {
                    // A process that has ended, or does not keep up, is missing at the end.
                    conversation.ask(&asker, registry, sharer.member, known);
                }
            }
            Turn::Wait { until_ns } => {
                let left = Duration::from_nanos(until_ns.saturating_sub(at_ns));
                let _ = wait_readable(&[asker.as_raw_fd()], None, Some(left));
            }
        }
        while let Some(bytes) = asker.receive(&mut buffer) {
            let Some((member, answer)) = conversation.read(bytes) else { continue };
            let Some(index) = all.iter().position(|(sharer, _)| sharer.member == member) else { continue };
            let Some((sharer, known)) = all.get_mut(index) else { continue };
            match conversation.hear(registry, sharer, known, answer) {
                Heard::Nothing => {}
                heard => turns.answered(index, now_ns(), heard == Heard::More),
            }
        }
    }
}
