//! The kinds of packets that exist, and whether a rule can ever match one: the possible values of a field
//! depend on the service, on the side and on what the packet does.
//!
//! | Packets | `qp` | `message` | `packet` | `transmission` |
//! |---|---|---|---|---|
//! | requests of rc and xrc | any | any | not below `message` | any |
//! | requests of uc | any | any | not below `message` | 1 |
//! | datagrams (ud) | any | any | the same as `message` | 1 |
//! | read-response, atomic-response, nak, rnr-nak | any | any | any | any |
//! | ack, cnp | any | any | any | 1 |
//! | connection management (cm) | 0 | 0 | 0 | any |

use pumice_transport::event::PacketSide;

use super::action::Fault;
use super::plan::{FaultPlan, PacketRule, Rule, What};
use super::select::{PacketSelector, RuleConditions, Span, check_ordinals};
use pumice_model::fates::incident::Incident;
use pumice_model::fates::{PacketClass, PacketService, side_name};

/// A kind of packets: class, service and side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PacketKind {
    class: PacketClass,
    service: PacketService,
    side: PacketSide,
}

/// An upper bound of a packet's length: the longest payload and all headers that it can have, in bytes.
const LONGEST_BYTES: u32 = 4096 + 128;

impl PacketKind {
    /// Returns all kinds of packets that a selector allows, by service, side and opcode.
    fn of(selector: &PacketSelector) -> Vec<PacketKind> {
        let is_selected = |class: &&PacketClass| match selector.opcode.as_slice() {
            [] => !class.depends_on_time(),
            some => some.contains(class),
        };
        let is_wanted = |packets: &PacketKind| {
            (selector.service.is_empty() || selector.service.contains(&packets.service))
                && selector.side.is_none_or(|side| side == packets.side)
        };
        let classes = PacketClass::ALL.iter().filter(is_selected).copied();
        let all = classes.flat_map(|class| {
            services_of(class).iter().flat_map(move |service| {
                let sides = sides_of_service(class, *service).iter();
                sides.map(move |side| PacketKind { class, service: *service, side: *side })
            })
        });
        all.filter(is_wanted).collect()
    }

    const fn is_cm(self) -> bool {
        matches!(self.service, PacketService::Cm)
    }

    /// Reports whether packets of this kind are sent only once.
    const fn is_sent_once(self) -> bool {
        self.service.is_unreliable() || matches!(self.class, PacketClass::Ack | PacketClass::Cnp)
    }

    /// Reports whether a packet of this kind can have the ordinals of this field.
    fn has(self, selector: &PacketSelector, field: &str) -> bool {
        let is_zero = |span: Option<Span>| span.is_none_or(|span| span.has(0));
        let (message, packet) = (selector.message, selector.packet);
        match field {
            "qp" => !self.is_cm() || selector.qp.is_none_or(|qp| qp.has(0)),
            "message" => !self.is_cm() || is_zero(message),
            "packet" => match (message, packet) {
                _ if self.is_cm() => is_zero(packet),
                (Some(message), Some(packet)) if self.side == PacketSide::Requester => {
                    let is_below = packet.last < message.first;
                    let is_beyond = self.service.is_datagram() && packet.first > message.last;
                    !is_below && !is_beyond
                }
                _ => true,
            },
            "transmission" => !self.is_sent_once() || selector.transmission.is_none_or(|span| span.has(1)),
            _ => {
                selector.peer.is_empty() || selector.peer.iter().any(|peer| !peer.is_multicast()) || {
                    self.service == PacketService::Ud
                }
            }
        }
    }

    /// Returns the length of the longest packet of this kind, from the BTH to the ICRC, in bytes.
    const fn most_bytes(self) -> u32 {
        use PacketClass as C;
        match self.class {
            C::Send | C::Write | C::ReadResponse => LONGEST_BYTES,
            C::Ack | C::Nak | C::RnrNak => 20,
            C::AtomicResponse => 28,
            C::Cnp => 32,
            // The request has the extended transport header of XRC.
            C::Read => 36,
            C::Flush => 40,
            C::Atomic => 48,
            C::Req | C::Mra | C::Rej | C::Rep | C::Rtu | C::Dreq | C::Drep | C::SidrReq | C::SidrRep => 280,
        }
    }

    /// Reports whether a packet of this kind can have a payload.
    const fn has_payload(self) -> bool {
        use PacketClass as C;
        !matches!(self.class, C::Read | C::Flush | C::AtomicResponse | C::Ack | C::Nak | C::RnrNak | C::Cnp)
    }

    /// Reports whether a fault can change a packet of this kind.
    fn takes(self, fault: &Fault) -> bool {
        match fault {
            Fault::Corrupt { sealed: true, .. } => self.has_payload(),
            Fault::Truncate { bytes: Some(bytes) } => u32::from(*bytes) < self.most_bytes(),
            _ => true,
        }
    }
}

impl PacketRule {
    /// Checks that a packet can exist to which the rule applies.
    ///
    /// # Errors
    /// No such packet can exist; the sentence says what to write.
    pub(super) fn check_reach(&self, when: &RuleConditions) -> Result<(), String> {
        let PacketRule { selector, fault } = self;
        check_tag(selector.tag.as_deref())?;
        if selector.peer.iter().any(std::net::IpAddr::is_unspecified) {
            return Err("no packet is for the unspecified address: write the receiver's as peer".to_owned());
        }
        if let Fault::Happen(
            Incident::CablePull { for_ns: Some(0), .. } | Incident::Link { for_ns: Some(0), .. },
        )
        | Fault::Happen(Incident::Freeze { for_ns: 0 }) = fault
        {
            return Err("what lasts for 0 ns changes nothing: write a time above 0".to_owned());
        }
        let all = PacketKind::of(selector);
        let mut left: Vec<PacketKind> = all.into_iter().filter(|one| self.meets(one)).collect();
        if left.is_empty() {
            return Err(self.no_packets());
        }
        for (field, why) in [
            ("qp", "messages of connection management are of qp 0: remove qp"),
            ("message", "each message of connection management is message 0: remove message"),
            (
                "packet",
                "connection management has packet 0 only, a datagram's packet is its message, and other \
                 packets are not below their message: remove packet, or message",
            ),
            ("transmission", "these packets are sent once: transmission 1 is the only one"),
            ("peer", "only datagrams (service ud) are for a group: write another peer"),
        ] {
            left.retain(|one| one.has(selector, field));
            if left.is_empty() {
                return Err(why.to_owned());
            }
        }
        left.retain(|one| one.takes(fault));
        match fault {
            Fault::Corrupt { sealed: true, .. } if left.is_empty() => {
                Err("these packets have no payload: silent corruption needs one".to_owned())
            }
            Fault::Truncate { bytes: Some(bytes) } if left.is_empty() => {
                Err(format!("no such packet has more than {bytes} bytes: write fewer"))
            }
            _ => self.check_count(&left, when),
        }
    }

    /// Checks, for packets that are sent only once, that a span has as many packets as the rule needs.
    fn check_count(&self, left: &[PacketKind], when: &RuleConditions) -> Result<(), String> {
        let of_uc = left.iter().all(|one| one.service == PacketService::Uc);
        match self.selector.packet.filter(|_| of_uc) {
            Some(span) => when.check_count(span, "packet"),
            None => Ok(()),
        }
    }

    fn meets(&self, packets: &PacketKind) -> bool {
        self.can_match(packets.service, packets.side, packets.class)
    }

    fn no_packets(&self) -> String {
        let PacketSelector { service, side, opcode, .. } = &self.selector;
        let mut said = Vec::new();
        if !service.is_empty() {
            said.push(format!("service {}", names(service)));
        }
        if let Some(side) = side {
            said.push(format!("side {}", side_name(*side)));
        }
        if !opcode.is_empty() {
            let opcodes: Vec<&str> = opcode.iter().map(|class| class.name()).collect();
            said.push(format!("opcode {}", opcodes.join(", ")));
        }
        let timed = PacketClass::ALL.iter().filter(|class| class.depends_on_time());
        let timed: Vec<&str> = timed.map(|class| class.name()).collect();
        format!(
            "{} has no packet of {}; packets whose number depends on time ({}) are met only if opcode names \
             them: write others",
            self.fault.kind(),
            said.join(" and "),
            timed.join(", ")
        )
    }
}

impl FaultPlan {
    /// Returns a sentence about each rule that a program with these devices, given by name and number of
    /// ports, never meets.
    #[must_use]
    pub fn without_effect_on(&self, devices: &[(&str, u8)]) -> Vec<String> {
        let told = |rule: &Rule| -> Option<String> {
            let mut own = devices.iter().filter(|(name, _)| rule.is_of(name)).peekable();
            let why = if let (Some(device), None) = (&rule.device, own.peek()) {
                let names: Vec<&str> = devices.iter().map(|(name, _)| *name).collect();
                format!("it is about device {device}, and the program has {}", names.join(", "))
            } else {
                let What::Packet(packets) = &rule.what else { return None };
                let Fault::Happen(incident) = packets.fault else { return None };
                let port = incident.port().filter(|port| !own.any(|(_, ports)| port <= ports))?;
                format!("no device of it has a port {port}")
            };
            Some(format!("rule \"{}\" never applies here: {why}", rule.name))
        };
        self.rules().iter().filter_map(told).collect()
    }
}

impl PacketSelector {
    /// Checks that the packets that the selector asks for can exist.
    pub(super) fn check(&self) -> Result<(), String> {
        let selector = self;
        check_ordinals("qp", selector.qp)?;
        check_ordinals("connection", selector.connection)?;
        let spans = [
            ("message", selector.message),
            ("packet", selector.packet),
            ("transmission", selector.transmission),
            ("source-port", selector.source_port),
        ];
        if let Some(plane) = selector.plane
            && !(1..=31).contains(&plane.planes) | (plane.plane >= plane.planes)
        {
            return Err(format!(
                "plane = {}/{} does not exist: planes count from 0, and there are 1 to 31",
                plane.plane, plane.planes
            ));
        }
        for (name, span) in spans {
            if let Some(Span { first, last }) = span
                && last < first
            {
                return Err(format!(
                    "{name} = {first}..{last} has no number: write the smaller number first"
                ));
            }
        }
        if selector.transmission.is_some_and(|span| span.last == 0) {
            return Err("transmission 0 does not exist: transmissions are counted from 1".to_owned());
        }
        for class in &selector.opcode {
            let services = services_of(*class);
            if !selector.service.is_empty()
                && !selector.service.iter().any(|service| services.contains(service))
            {
                return Err(format!(
                    "{} is no packet of service {}: it is one of {}",
                    class.name(),
                    names(&selector.service),
                    names(services)
                ));
            }
            let mut named = selector.service.iter().flat_map(|service| sides_of_service(*class, *service));
            if let Some(side) = selector.side
                && !sides_of(*class).contains(&side)
                && !named.any(|one| *one == side)
            {
                let sides: Vec<&str> = sides_of(*class).iter().map(|side| side_name(*side)).collect();
                return Err(format!(
                    "{} is sent by the {}: write that as side",
                    class.name(),
                    sides.join(" or the ")
                ));
            }
        }
        let repeats = selector.transmission.is_some_and(|span| span.first > 1);
        if repeats
            && !selector.service.is_empty()
            && selector.service.iter().all(|service| service.is_unreliable())
        {
            return Err(
                "packets of uc, ud, srd and dc are sent once: transmission 2 does not exist".to_owned()
            );
        }
        Ok(())
    }
}

/// Checks that a process can have this tag, or one that begins so.
fn check_tag(tag: Option<&str>) -> Result<(), String> {
    let Some(tag) = tag else { return Ok(()) };
    let plain = tag.strip_suffix('*').unwrap_or(tag);
    if plain.contains('*') {
        return Err(format!("tag {tag}: * stands for anything at the end only, and no tag has a *"));
    }
    if plain.contains(char::is_control) {
        return Err("tag: no tag has a control character".to_owned());
    }
    Ok(())
}

impl Rule {
    /// Reports whether no process exists that both rules are about.
    pub(super) fn is_of_other_processes(&self, other: &Rule) -> bool {
        disjoint(self.tag(), other.tag())
    }
}

/// Reports whether no tag matches both patterns, where `*` at the end stands for anything.
fn disjoint(one: Option<&str>, other: Option<&str>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    // A pattern with a star elsewhere may match anything.
    let parts = |tag: &'_ str| -> Option<(String, bool)> {
        let (plain, is_open) = tag.strip_suffix('*').map_or((tag, false), |plain| (plain, true));
        (!plain.contains('*')).then(|| (plain.to_owned(), is_open))
    };
    let (Some((one, one_is_open)), Some((other, other_is_open))) = (parts(one), parts(other)) else {
        return false;
    };
    let goes_on = |short: &str, is_open: bool, long: &str| is_open && long.starts_with(short);
    one != other && !goes_on(&one, one_is_open, &other) && !goes_on(&other, other_is_open, &one)
}

fn names(services: &[PacketService]) -> String {
    services.iter().map(|service| service.name()).collect::<Vec<_>>().join(", ")
}

/// Returns the services that have packets of a class.
const fn services_of(class: PacketClass) -> &'static [PacketService] {
    use PacketClass as C;
    use PacketService::{Cm, Dc, Rc, Srd, Uc, Ud, Xrc};
    match class {
        // All packets of SRD and DC have the opcode of a SEND.
        C::Send => &[Rc, Uc, Ud, Xrc, Srd, Dc],
        C::Write | C::Cnp => &[Rc, Uc, Xrc],
        C::Read | C::Atomic | C::Flush | C::ReadResponse | C::AtomicResponse => &[Rc, Xrc],
        C::Ack | C::Nak | C::RnrNak => &[Rc, Xrc],
        C::Req | C::Mra | C::Rej | C::Rep | C::Rtu | C::Dreq | C::Drep | C::SidrReq | C::SidrRep => &[Cm],
    }
}

/// Returns the sides that send packets of a class.
const fn sides_of(class: PacketClass) -> &'static [PacketSide] {
    use PacketClass as C;
    use PacketSide::{Notification, Requester, Responder};
    match class {
        C::Send | C::Write | C::Read | C::Atomic | C::Flush => &[Requester],
        C::ReadResponse | C::AtomicResponse | C::Ack | C::Nak | C::RnrNak => &[Responder],
        C::Cnp => &[Notification],
        C::Req | C::Rtu | C::SidrReq => &[Requester],
        C::Rep | C::SidrRep => &[Responder],
        C::Mra | C::Rej | C::Dreq | C::Drep => &[Requester, Responder],
    }
}

/// Returns the sides that send packets of a class and a service: for SRD and DC the responder, too.
const fn sides_of_service(class: PacketClass, service: PacketService) -> &'static [PacketSide] {
    match service {
        PacketService::Srd | PacketService::Dc => &[PacketSide::Requester, PacketSide::Responder],
        _ => sides_of(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(lines: &str) -> Option<String> {
        let plan = lines.lines().try_fold(FaultPlan::new(), |plan, line| plan.with_line(line));
        match plan {
            Ok(plan) => plan.check().err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn rules_about_devices_that_are_not_there_are_told() {
        let plan =
            ["drop name=a device=mlx5_0", "drop name=b device=mlx5_7", "event name=c kind=port-down port=2"];
        let plan = plan.iter().try_fold(FaultPlan::new(), |plan, line| plan.with_line(line)).unwrap();
        let told = plan.without_effect_on(&[("mlx5_0", 1), ("mlx5_1", 1)]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("rule \"b\" never applies here: it is about device mlx5_7"), "{told:?}");
        assert!(
            told[1].starts_with("rule \"c\" never applies here: no device of it has a port 2"),
            "{told:?}"
        );
        assert_eq!(plan.without_effect_on(&[("mlx5_0", 1), ("mlx5_7", 2)]), Vec::<String>::new());
    }

    #[test]
    fn a_rule_that_meets_nothing_is_refused() {
        for (line, why) in [
            ("drop service=cm qp=1", "are of qp 0"),
            ("reject qp=3", "are of qp 0"),
            ("drop opcode=req message=1", "is message 0"),
            ("drop service=cm packet=2", "packet 0 only"),
            ("drop service=ud message=3 packet=4", "a datagram's packet is its message"),
            ("drop service=rc side=requester message=5.. packet=0..4", "not below their message"),
            ("drop opcode=ack transmission=2", "are sent once"),
            ("note opcode=cnp transmission=2..3", "are sent once"),
            ("drop service=uc transmission=2", "transmission 2 does not exist"),
            ("drop side=notification", "are met only if opcode names them"),
            ("drop service=ud side=responder", "no packet of service ud and side responder"),
            ("drop service=uc side=responder", "no packet of service uc and side responder"),
            ("event kind=port-down service=cm", "remove cm"),
            ("drop peer=0.0.0.0", "no packet is for the unspecified address"),
            ("drop peer=::", "no packet is for the unspecified address"),
            ("drop service=rc peer=239.1.2.3", "only datagrams"),
            ("corrupt sealed=true opcode=read", "have no payload"),
            ("corrupt sealed=true opcode=nak,rnr-nak,cnp", "have no payload"),
            ("truncate bytes=20 opcode=ack", "no such packet has more than 20 bytes"),
            ("truncate bytes=280 opcode=req", "no such packet has more than 280 bytes"),
            ("truncate bytes=5000", "no such packet has more than 5000 bytes"),
            ("drop service=uc packet=7 nth=2", "nth begins with 2"),
            ("drop tag=ser*er", "at the end only"),
            ("delay time=0ms", "a delay of 0 is none"),
            ("delay time=0ms..0ms", "a delay of 0 is none"),
            ("delay mean=0ms deviation=0ms", "a delay of 0 is none"),
            ("delay least=0ms", "a delay of 0 is none"),
            ("reorder within=0ms", "waits for 0 ns"),
            ("partition time=0ms", "cuts nothing off"),
            ("event kind=freeze time=0ms", "changes nothing"),
            ("event kind=cable-pull time=0ms", "changes nothing"),
            ("event kind=link delay=1ms time=0ms", "changes nothing"),
            ("slow call=ibv_reg_mr time=0ms", "0 ns"),
            ("complete status=retry-exceeded opcode=bind", "no bind request"),
            ("complete status=remote-access opcode=invalidate", "no invalidate request"),
            ("complete status=flushed qp=0 message=100 nth=2", "nth begins with 2"),
            ("late time=1ms message=3..5 nth=4", "nth begins with 4"),
        ] {
            let said = problem(line).unwrap_or_else(|| panic!("{line} is taken"));
            assert!(said.contains(why), "{line}: {said}");
        }
    }

    #[test]
    fn a_rule_that_can_meet_something_is_taken() {
        for line in [
            "drop service=cm qp=0 message=0 packet=0 transmission=3",
            "drop qp=1",
            "drop service=ud message=3..5 packet=5..9",
            "drop message=5.. packet=5",
            "drop opcode=nak transmission=2",
            "drop opcode=ack,send transmission=2",
            "drop side=notification opcode=cnp",
            "drop peer=239.1.2.3",
            "corrupt sealed=true opcode=read,write",
            "truncate bytes=19 opcode=ack",
            "truncate bytes=0",
            "drop service=uc packet=7..9 nth=3",
            "drop service=rc packet=7 nth=2",
            "drop tag=server*",
            "complete status=window-bind opcode=bind",
            "complete status=retry-exceeded opcode=bind,send",
            "complete status=flushed message=3..5 nth=3",
            "event kind=port-down time=0ms",
            "delay time=0ms..1ms",
        ] {
            assert_eq!(problem(line), None, "{line}");
        }
    }

    #[test]
    fn rules_that_wait_for_rules_of_other_processes_are_refused() {
        let plan = |one: &str, other: &str| {
            problem(&format!("drop name=a tag={one} chance=1%\ndrop name=b tag={other} after=\"rule a\""))
        };
        for (one, other) in [("server", "client"), ("ser*", "client"), ("server", "serve"), ("a*", "b*")] {
            assert!(plan(one, other).is_some_and(|said| said.contains("another tag")), "{one} {other}");
        }
        for (one, other) in [("server", "server"), ("ser*", "server"), ("s*", "server*"), ("*", "x")] {
            assert_eq!(plan(one, other), None, "{one} {other}");
        }
    }
}
