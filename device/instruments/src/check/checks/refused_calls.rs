//! Calls that are refused because of what the program asks for.

use pumice_calls::{Act, Call, Object};

use crate::check::context::{Context, Found};
use crate::check::kind::CALL_REFUSED;
use crate::check::told::{Check, Effect};
use crate::waits::Vain;
use pumice_ground::call_stack::Stack;

/// Refusals that are kept until it is known whether the program only asked.
const MAX_ASKED: usize = 64;

/// A call was refused which only a mistake of the program makes fail.
///
/// Programs also ask in order to learn: they register memory to see whether that can be done, make objects
/// that may be too large, bind ports that may be taken. Who asks goes on with another answer: such a refusal
/// is a mistake if the program ends and never got that far. Of a queue that is full nothing is said.
#[derive(Debug, Default)]
pub(super) struct RefusedCalls {
    asked: Vec<Asked>,
    /// The last post that a full queue refused, until another one is taken: a program that ignores it waits
    /// for a completion that does not come.
    full: Option<Asked>,
}

/// A refusal that may be the answer to a question.
#[derive(Debug)]
struct Asked {
    call: Call,
    sentence: String,
    stack: Stack,
}

/// What a refusal is.
enum Refusal {
    Mistake,
    /// A mistake, or the answer to a question.
    Answer,
    Usual,
}

impl Check for RefusedCalls {
    fn enters(&mut self, _: &mut Context, call: Call, _: u64) {
        if !self.asked.is_empty() {
            self.asked.retain(|asked| !goes_on(asked.call, call));
        }
    }

    fn object_made(&mut self, _: &mut Context, _: &'static str, call: &'static str, _: &Stack) {
        if !self.asked.is_empty() {
            let made = Call::of(call).and_then(|call| call.row().act.made());
            self.asked.retain(|asked| asked.call.row().act.made().is_none_or(|wanted| made != Some(wanted)));
        }
    }

    fn forked(&mut self, _: &mut Context) {
        self.asked.clear();
    }

    fn call_refused(&mut self, context: &mut Context, call: Call, errno: i32, sentence: &str) {
        match refusal(call, errno) {
            Refusal::Mistake => {
                let stack = context.here();
                tell(context, call, sentence.to_owned(), stack);
            }
            Refusal::Answer if self.asked.len() < MAX_ASKED => {
                let (sentence, stack) = (sentence.to_owned(), context.here());
                self.asked.push(Asked { call, sentence, stack });
            }
            Refusal::Usual if call.posts() && errno == libc::ENOMEM => {
                let (sentence, stack) = (sentence.to_owned(), context.here());
                self.full = Some(Asked { call, sentence, stack });
            }
            Refusal::Answer | Refusal::Usual => {}
        }
    }

    fn send_posted(&mut self, _: &mut Context, _: u32, _: bool) {
        self.full = None;
    }

    fn waits_in_vain(&mut self, context: &mut Context, _: &Vain, _: &Stack) {
        if let Some(Asked { call, sentence, stack }) = self.full.take() {
            let sentence = format!("{sentence}. The program goes on as if it had been posted");
            tell(context, call, sentence, stack);
        }
    }

    fn settles(&mut self, context: &mut Context, is_over: bool, _: &mut Vec<Effect>) {
        if is_over {
            for Asked { call, sentence, stack } in self.asked.drain(..) {
                tell(context, call, sentence, stack);
            }
        }
    }
}

fn tell(context: &mut Context, call: Call, numbers: String, stack: Stack) {
    // Else another finding says more of this call.
    if !context.is_found_at(&stack) {
        let object = call.name().to_owned();
        context.found(&CALL_REFUSED, Found { object, numbers, stack, related: Vec::new() });
    }
}

/// Whether a program that was refused this call has found another way when it makes that one.
fn goes_on(refused: Call, call: Call) -> bool {
    let is_address = matches!(refused, Call::rdma_bind_addr | Call::rdma_resolve_addr);
    is_address
        && (call == refused
            || matches!(call, Call::rdma_listen | Call::rdma_resolve_route | Call::rdma_join_multicast))
}

/// What it is that this call ends with this errno.
fn refusal(call: Call, errno: i32) -> Refusal {
    let row = call.row();
    let is_mistake = match row.act {
        // A queue that is full is how programs know that they have to poll.
        Act::Post => matches!(errno, libc::EINVAL | libc::EFAULT | libc::EPERM),
        // It waits for what uses the object, which then stays.
        Act::GiveBack => errno == libc::EBUSY,
        Act::Make(Object::AddressHandle) => errno == libc::EINVAL,
        Act::Make(_) if matches!(errno, libc::EINVAL | libc::EFAULT | libc::EPERM) => return Refusal::Answer,
        // Programs call it in any case before they end.
        _ if call == Call::rdma_disconnect => false,
        _ if matches!(call, Call::rdma_bind_addr | Call::rdma_resolve_addr) && is_of_address(errno) => {
            return Refusal::Answer;
        }
        _ if call == Call::ibv_modify_qp => !matches!(errno, libc::EOPNOTSUPP | libc::EIO | libc::ETIMEDOUT),
        Act::Change | Act::Listen => errno == libc::EINVAL && row.on != Object::Process,
        _ => false,
    };
    if is_mistake { Refusal::Mistake } else { Refusal::Usual }
}

/// Whether this errno says that an address or a port cannot be had, and another one may.
const fn is_of_address(errno: i32) -> bool {
    matches!(
        errno,
        libc::EADDRINUSE
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::ENODEV
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
    )
}
