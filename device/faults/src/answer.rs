//! Answers that a plan sends in the peer's name: their names in plans, and which packets can have one.

use pumice_transport::event::PacketSide;
use pumice_transport::mad::RejectReason;
use pumice_transport::wire::{Syndrome, rnr_timer_ns};

use super::action::Fault;
use super::plan::PacketRule;
use super::select::PacketSelector;
use pumice_model::fates::fired::{NAKS, RNR, word_of};
use pumice_model::fates::{PacketClass, PacketKey, PacketService};

/// Classes of requests: the packets that a peer answers with a NAK.
const REQUESTS: [PacketClass; 5] =
    [PacketClass::Send, PacketClass::Write, PacketClass::Read, PacketClass::Atomic, PacketClass::Flush];
/// Services whose requests are answered.
const ANSWERED: [PacketService; 2] = [PacketService::Rc, PacketService::Xrc];
/// The name of a CNP in plans.
const CNP: &str = "cnp";
/// The code of the RNR timer that a rule uses if it names no time: 0.64 ms.
const USUAL_TIMER_CODE: u8 = 12;
/// The codes of RNR timers.
const TIMER_CODES: std::ops::Range<u8> = 0..32;

/// Returns the fault that sends the answer of this name. Only an RNR NAK has a timer.
///
/// # Errors
/// No answer has this name, or the answer has no timer.
pub(super) fn answer(word: &str, timer_code: Option<u8>) -> Result<Fault, String> {
    if word == RNR {
        let timer_code = timer_code.unwrap_or(USUAL_TIMER_CODE);
        return Ok(Fault::Refuse { syndrome: Syndrome::RnrNak { timer_code } });
    }
    if timer_code.is_some() {
        return Err(format!("{word} has no timer: remove it, or write with={RNR}"));
    }
    if word == CNP {
        return Ok(Fault::Notify);
    }
    let code = NAKS.iter().find(|(name, _)| *name == word).map(|(_, code)| *code);
    let code = code.ok_or_else(|| {
        let naks = NAKS.map(|(name, _)| name).join(", ");
        format!("{word} is no answer: write one of {RNR}, {naks}, {CNP}")
    })?;
    Ok(Fault::Refuse { syndrome: Syndrome::Nak(code) })
}

/// Returns the refusal of this name; `timer_code` is that of an RNR NAK.
///
/// # Errors
/// No refusal has this name.
pub(super) fn refusal(word: &str, timer_code: Option<u8>) -> Result<Syndrome, String> {
    match answer(word, timer_code)? {
        Fault::Refuse { syndrome } => Ok(syndrome),
        _ => Err(format!("{word} is no refusal: this is no line of a report")),
    }
}

/// The names of REJ reasons in plans, and the reasons.
const REASONS: [(&str, RejectReason); 8] = [
    ("consumer", RejectReason::CONSUMER),
    ("no-qp", RejectReason::NO_QP),
    ("no-resources", RejectReason::NO_RESOURCES),
    ("timeout", RejectReason::TIMEOUT),
    ("unsupported", RejectReason::UNSUPPORTED),
    ("invalid-service-id", RejectReason::INVALID_SERVICE_ID),
    ("stale-connection", RejectReason::STALE_CONNECTION),
    ("invalid-mtu", RejectReason::INVALID_MTU),
];

/// Returns the number of a REJ reason, which is written as a name or as a number.
///
/// # Errors
/// The text is neither a known name nor a number.
pub(super) fn reason(text: &str) -> Result<u16, String> {
    if let Some((_, reason)) = REASONS.iter().find(|(word, _)| *word == text) {
        return Ok(reason.0);
    }
    let known = |number: &u16| RejectReason(*number).name().is_some();
    text.parse().ok().filter(known).ok_or_else(|| {
        let words = REASONS.map(|(word, _)| word).join(", ");
        format!("{text} is no reason of a REJ: write one of {words}, or a number that has a meaning")
    })
}

/// Returns the code of the shortest RNR timer that lasts at least this long.
///
/// # Errors
/// No RNR timer lasts this long.
pub(super) fn timer_code(ns: u64) -> Result<u8, String> {
    let long_enough = TIMER_CODES.filter(|code| rnr_timer_ns(*code) >= ns);
    long_enough
        .min_by_key(|code| rnr_timer_ns(*code))
        .ok_or_else(|| "no RNR timer is so long: write at most 655.36ms".to_owned())
}

impl PacketRule {
    /// Reports whether the rule is about this packet, which a process that the rule is about sends to a peer
    /// from a UDP source port.
    pub fn matches(&self, key: &PacketKey, peer: std::net::IpAddr, source_port: u16) -> bool {
        self.can_match(key.service, key.side, key.class) && self.selector.matches(key, peer, source_port)
    }

    /// Reports whether the rule's fault can happen to packets of this kind.
    pub(super) fn can_match(&self, service: PacketService, side: PacketSide, class: PacketClass) -> bool {
        let is_request = side == PacketSide::Requester && REQUESTS.contains(&class);
        match self.fault {
            Fault::Refuse { .. } | Fault::Notify => is_request && ANSWERED.contains(&service),
            Fault::Reject { .. } => class == PacketClass::Req,
            Fault::Unreachable => matches!(class, PacketClass::Req | PacketClass::SidrReq),
            Fault::Happen(_) => is_request,
            _ => true,
        }
    }

    /// Checks that the packets that the rule names have an answer.
    pub(super) fn check_answer(&self) -> Result<(), String> {
        let selector = &self.selector;
        if let Fault::Refuse { syndrome } = self.fault {
            match word_of(syndrome) {
                None => return Err("a peer refuses by a NAK or an RNR NAK: give one of those".to_owned()),
                Some((_, Some(code))) if !TIMER_CODES.contains(&code) => {
                    return Err(format!("{code} is no code of an RNR timer: write at most 31"));
                }
                Some(_) => {}
            }
        }
        let requests = || REQUESTS.map(PacketClass::name).join(", ");
        if let Some(class) = selector.opcode.iter().find(|class| !REQUESTS.contains(class)) {
            return Err(format!("{} is no request, so it has no answer: write {}", class.name(), requests()));
        }
        if let Some(service) = selector.service.iter().find(|service| !ANSWERED.contains(service)) {
            return Err(format!("{} has no NAKs and heeds no CNPs: write rc or xrc", service.name()));
        }
        match selector.side {
            None | Some(PacketSide::Requester) => Ok(()),
            Some(_) => Err("only the requester is answered: write side=requester".to_owned()),
        }
    }
}

impl PacketRule {
    /// Checks that the rule names only packets in `requests`: only these requests of the connection manager
    /// can be rejected or left without an answer.
    pub(super) fn check_rejection(&self, requests: &[PacketClass]) -> Result<(), String> {
        let PacketSelector { opcode, service, side, .. } = &self.selector;
        if let Some(class) = opcode.iter().find(|class| !requests.contains(class)) {
            let word = self.fault.kind();
            let names: Vec<&str> = requests.iter().map(|request| request.name()).collect();
            return Err(format!(
                "{word} is for {}, not for {}: write opcode=req",
                names.join(" and "),
                class.name()
            ));
        }
        if let Some(service) = service.iter().find(|service| **service != PacketService::Cm) {
            let name = service.name();
            return Err(format!("requests for connections are of service cm, not {name}: write service=cm"));
        }
        match side {
            None | Some(PacketSide::Requester) => Ok(()),
            Some(_) => Err("who asks for a connection is the requester: write side=requester".to_owned()),
        }
    }

    /// Checks that a rule with an incident names only requests, at which alone incidents happen.
    pub(super) fn check_incident(&self) -> Result<(), String> {
        let selector = &self.selector;
        if let Some(class) = selector.opcode.iter().find(|class| !REQUESTS.contains(class)) {
            let requests = REQUESTS.map(PacketClass::name).join(", ");
            return Err(format!("events happen at requests, and {} is none: write {requests}", class.name()));
        }
        if selector.service.contains(&PacketService::Cm) {
            return Err("events happen at requests of queue pairs: remove cm".to_owned());
        }
        match selector.side {
            None | Some(PacketSide::Requester) => Ok(()),
            Some(_) => Err("events happen at requests: write side=requester".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_answers_are_inverses() {
        for word in ["rnr", "sequence", "access", "operation", "invalid-request"] {
            let Ok(Fault::Refuse { syndrome }) = answer(word, None) else { panic!("{word}") };
            let (back, timer_code) = word_of(syndrome).unwrap();
            assert_eq!((back, refusal(back, timer_code)), (word, Ok(syndrome)));
        }
        assert_eq!(answer("cnp", None), Ok(Fault::Notify));
        assert!(answer("nak", None).unwrap_err().contains("write one of rnr, sequence, access,"));
        assert!(answer("access", Some(3)).unwrap_err().contains("has no timer"));
    }

    #[test]
    fn a_timer_is_the_shortest_that_is_long_enough() {
        for (ns, code) in [(0, 1), (10_000, 1), (10_001, 2), (640_000, 12), (655_360_000, 0)] {
            assert_eq!(timer_code(ns), Ok(code), "{ns}");
        }
        assert!(timer_code(655_360_001).is_err());
    }
}
