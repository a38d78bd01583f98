//! Part of the serving end in a round: take messages, answer them, or leave the work to the device.

use std::time::{Duration, Instant};

use pumice_transport::types::WorkCompletion;

use super::credit_every;
use crate::control::{Contents, Control, ReceiveTotals};
use crate::endpoint::{BufferSelection, Endpoint, Post};
use crate::error::{PerfError, Result};
use crate::pattern::Tag;
use crate::plan::{Plan, Service};

/// Number of empty polls between checks of the control connection.
const POLLS_PER_LOOK: u32 = 1024;
/// Time to sleep for a completion before checking the control connection.
const EVENT_WAIT: Duration = Duration::from_millis(20);
/// Time after the end of a round after which missing messages count as lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
const LOST_AFTER_RELIABLE: Duration = Duration::from_secs(120);

/// Returns the contents of the reply to a message.
pub(crate) fn reply_tag(tag: Tag) -> Tag {
    !tag
}

/// State of the serving end in a round, which lasts until the client stops it.
#[derive(Debug)]
pub(crate) struct RoundReceiver<'a> {
    plan: &'a Plan,
    contents: Contents,
    served: ReceiveTotals,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Per buffer, true if a message of this round is in it.
    touched: Vec<bool>,
    replies: u64,
}

impl<'a> RoundReceiver<'a> {
    pub(crate) fn new(plan: &'a Plan, contents: Contents) -> RoundReceiver<'a> {
        RoundReceiver {
            plan,
            contents,
            served: ReceiveTotals::default(),
            first: None,
            last: None,
            touched: vec![false; plan.buffer_count()],
            replies: 0,
        }
    }

    /// Serves until a message arrives on the control connection.
    pub(crate) fn run(&mut self, end: &mut Endpoint, control: &mut Control) -> Result<()> {
        if self.plan.passive {
            return compute(control);
        }
        let mut empty = 0_u32;
        loop {
            let count = self.take(end, self.plan.events && self.plan.ping_pong())?;
            if count > 0 {
                continue;
            }
            empty += 1;
            if (self.plan.events || empty.is_multiple_of(POLLS_PER_LOOK)) && control.spoken_to() {
                return Ok(());
            }
        }
    }

    /// Ends the round after the client has sent all messages: takes those under way, checks those that
    /// remained unchecked, and returns what was served.
    pub(crate) fn finish(mut self, end: &mut Endpoint, sent: u64) -> Result<ReceiveTotals> {
        let reliable = self.plan.service == Service::Rc;
        let patience = if reliable { LOST_AFTER_RELIABLE } else { LOST_AFTER };
        let expects = end.receives_messages();
        let start = Instant::now();
        while expects && self.served.messages < sent && start.elapsed() < patience {
            self.take(end, false)?;
        }
        if expects && reliable && self.served.messages != sent {
            let sentence = format!("{} of {sent} messages arrived", self.served.messages);
            return Err(PerfError::Lost(sentence));
        }
        end.settle(reliable)?;
        if let (Contents::Same { tag }, true) = (self.contents, self.plan.verify && expects) {
            for (buffer, _) in self.touched.iter().enumerate().filter(|(_, touched)| **touched) {
                end.check_receive(buffer, tag)?;
            }
        }
        if let (Some(first), Some(last)) = (self.first, self.last) {
            self.served.seconds = (last - first).as_secs_f64();
        }
        Ok(self.served)
    }

    fn take(&mut self, end: &mut Endpoint, sleep: bool) -> Result<usize> {
        let mut arrived = [WorkCompletion::default(); 32];
        let count = if sleep {
            end.wait_receives(&mut arrived, EVENT_WAIT)?
        } else {
            end.poll_receives(&mut arrived)?
        };
        for completion in arrived.iter().take(count) {
            self.take_one(end, completion)?;
        }
        Ok(count)
    }

    #[inline]
    fn take_one(&mut self, end: &mut Endpoint, completion: &WorkCompletion) -> Result<()> {
        let buffer = end.buffer_of(completion);
        if let Some(touched) = self.touched.get_mut(buffer) {
            *touched = true;
        }
        self.served.messages += 1;
        let mut tag = None;
        if let (Contents::Numbered { first }, true) = (self.contents, end.receives_messages()) {
            let expected = first + Endpoint::number_of(completion);
            end.check_receive(buffer, expected)?;
            self.served.checked += 1;
            tag = Some(expected);
        }
        if self.plan.ping_pong() {
            self.reply(end, tag)?;
        } else if self.plan.service != Service::Rc {
            self.note_time();
            let number = Endpoint::number_of(completion);
            if Endpoint::has_number(completion) && (number + 1).is_multiple_of(credit_every(self.plan)) {
                end.send_credit(number)?;
            }
        }
        end.post_receive_again(completion)
    }

    fn note_time(&mut self) {
        if self.served.messages % 16 == 1 || self.plan.size_bytes > 4096 {
            let now = Instant::now();
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
    }

    fn reply(&mut self, end: &mut Endpoint, tag: Option<Tag>) -> Result<()> {
        if let Some(tag) = tag {
            end.fill_send(0, reply_tag(tag))?;
        }
        let signal = self.replies % 16 == 15;
        self.replies += 1;
        end.post(&Post {
            qp: 0,
            first: 0,
            count: 1,
            buffers: BufferSelection::All,
            imm_every: 0,
            retires: signal.then_some(16),
        })?;
        if signal { end.discard_sends() } else { Ok(()) }
    }
}

/// Computes like an application that never calls a verb.
fn compute(control: &mut Control) -> Result<()> {
    let mut state = 1_u64;
    while !control.spoken_to() {
        for _ in 0..20_000 {
            state = std::hint::black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17));
        }
    }
    Ok(())
}
