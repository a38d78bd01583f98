use pumice_platform::ordinal::OrdinalSpan;

use super::*;
use crate::FaultPlan;
use crate::{Fault, What};
use pumice_model::fates::PacketClass;

#[test]
fn every_example_is_a_rule_of_its_kind_and_files_say_the_same() {
    for kind in KINDS {
        let line = FaultPlan::seeded(7).with_line(kind.example).unwrap();
        assert_eq!(line.rules()[0].name, kind.name);
        let mut words = kind.example.split(' ');
        let mut text = format!("seed = 7\n[[rule]]\ndo = \"{}\"\n", words.next().unwrap());
        for word in words {
            let (field, value) = word.split_once('=').unwrap();
            text += &format!("{field} = \"{value}\"\n");
        }
        assert_eq!(FaultPlan::parse(&text, 1), Ok(line), "{text}");
    }
}

#[test]
fn numbers_and_lists_of_toml_are_understood() {
    let text = "[[rule]]\nname = \"a\"\ndo = \"drop\"\nqp = 3\nopcode = [\"ack\", \"nak\"]\nchance = 0.5\n";
    let plan = FaultPlan::parse(text, 9).unwrap();
    let What::Packet(rule) = &plan.rules()[0].what else { panic!() };
    assert_eq!((plan.seed(), rule.fault, rule.selector.qp), (9, Fault::Drop, Some(OrdinalSpan::one(3))));
    assert_eq!(rule.selector.opcode, [PacketClass::Ack, PacketClass::Nak]);
    assert_eq!(plan.rules()[0].when.chance_ppm, Some(500_000));
}

#[test]
fn rules_without_names_get_different_ones() {
    let plan = ["drop qp=0", "drop qp=1", "mark", "drop qp=2"];
    let plan = plan.iter().try_fold(FaultPlan::new(), |plan, line| plan.with_line(line)).unwrap();
    let names: Vec<&str> = plan.rules().iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["drop", "drop-2", "mark", "drop-3"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let wrong = |text: &str| FaultPlan::parse(text, 1).unwrap_err().to_string();
    let second = "[[rule]]\ndo = \"drop\"\n\n[[rule]]\nname = \"x\"\n";
    for (text, part) in [
        ("seeds = 1\n", "line 1: unknown field `seeds`"),
        ("[[rule]\n", "line 1: "),
        (
            &format!("{second}do = \"dropp\"\n"),
            "line 4: rule \"x\": dropp is no kind of fault: write one of drop,",
        ),
        (
            &format!("{second}do = \"drop\"\ncopies = 2\n"),
            "copies is a field of duplicate, not of drop: remove it",
        ),
        (&format!("{second}do = \"drop\"\nqpn = 2\n"), "qpn is no field of drop: it has name, chance,"),
        (&format!("{second}do = \"drop\"\nqp = \"a\"\n"), "qp: a is no number and no range: write it as 3,"),
        (&format!("{second}do = \"drop\"\nqp = \"3..1\"\n"), "qp = 3..1 has no number"),
        (&format!("{second}do = \"drop\"\nnth = 1\nevery = 2\n"), "nth and every exclude each other"),
        (&format!("{second}do = \"drop\"\nchance = \"200%\"\n"), "chance: 200%: it is more than 100 %"),
        (
            &format!("{second}do = \"drop\"\nopcode = \"ack\"\nside = \"requester\"\n"),
            "ack is sent by the responder",
        ),
        (
            &format!("{second}do = \"drop\"\nopcode = \"ack\"\nservice = \"ud\"\n"),
            "ack is no packet of service ud",
        ),
        (
            &format!("{second}do = \"drop\"\nservice = \"ud\"\ntransmission = 2\n"),
            "uc, ud, srd and dc are sent once",
        ),
        (&format!("{second}do = \"drop\"\nplane = \"8/8\"\n"), "plane = 8/8 does not exist"),
        (&format!("{second}do = \"drop\"\nplane = 3\n"), "3 is no plane: write the plane and how many"),
        (&format!("{second}do = \"drop\"\nsource-port = \"9..1\"\n"), "source-port = 9..1 has no number"),
        (&format!("{second}do = \"delay\"\n"), "a delay has one of: time=1ms,"),
        (
            &format!("{second}do = \"drop\"\n[[rule]]\nname = \"x\"\ndo = \"mark\"\n"),
            "two rules have this name",
        ),
        (&format!("{second}do = \"fail\"\n"), "it does not say which call"),
        (&format!("{second}do = \"slow\"\ncall = \"ibv_*\"\n"), "write time=5ms"),
        (&format!("{second}do = \"fail\"\ncall = \"reg_mr\"\n"), "is ibv_reg_mr meant?"),
        (
            &format!("{second}do = \"fail\"\ncall = \"ibv_reg_mr\"\nerrno = \"ENOPE\"\n"),
            "\"ENOPE\" is no errno of Linux: write a name like ENOMEM",
        ),
        (
            &format!("{second}do = \"fail\"\ncall = \"ibv_reg_mr\"\nopcode = \"ack\"\n"),
            "opcode is no field of fail",
        ),
        (
            &format!("{second}do = \"fail\"\ncall = \"*\"\nburst-begin = 0.1\nburst-end = 0.5\n"),
            "bad stretches are of packets",
        ),
        (&format!("{second}do = \"complete\"\n"), "write status=retry-exceeded"),
        (&format!("{second}do = \"complete\"\nstatus = \"lost\"\n"), "lost is none of local-length,"),
        (&format!("{second}do = \"complete\"\nstatus = \"success\"\n"), "success is what happens without"),
        (
            &format!("{second}do = \"complete\"\nstatus = \"retry-exceeded\"\nopcode = \"recv\"\n"),
            "no receive request ends with retry-exceeded",
        ),
        (
            &format!("{second}do = \"late\"\ntime = \"1ms\"\nopcode = \"recv\"\nside = \"send\"\n"),
            "recv is done by the receive queue: write side=receive",
        ),
        (&format!("{second}do = \"late\"\n"), "it does not say how late: write time=5ms"),
        (
            &format!("{second}do = \"late\"\ntime = \"1ms\"\nburst-begin = 0.1\nburst-end = 0.5\n"),
            "bad stretches are of packets",
        ),
        (
            &format!("{second}do = \"drop\"\nafter = \"noon\"\n"),
            "noon is nothing that can be waited for: write",
        ),
        (
            &format!("{second}do = \"drop\"\nafter = \"rule y\"\n"),
            "line 4: rule \"x\": it waits for rule \"y\", which the plan lacks: write the name of a rule",
        ),
        (&format!("{second}do = \"drop\"\nafter = \"rule x\"\n"), "it waits for itself"),
        (
            &format!(
                "{second}do = \"drop\"\nafter = \"rule z\"\n[[rule]]\nname = \"z\"\ndo = \"mark\"\n\
                 after = \"rule x\"\n"
            ),
            "line 4: rule \"x\": rules that wait for it in turn",
        ),
        ("{\"rule\": 5}\n", "line 1: it is no line of a report"),
    ] {
        assert!(wrong(text).contains(part), "{text}\n→ {}\nwithout {part}", wrong(text));
    }
    let line = |text| FaultPlan::new().with_line(text).unwrap_err().to_string();
    assert_eq!(line("drop now"), "now has no value: write field=value, as in qp=0");
    assert_eq!(line("drop qp=0 qp=1"), "qp stands there twice: write it once");
    assert_eq!(line("drop tag=\"a"), "a double quote has no end: write another one behind the value");
}

#[test]
fn what_is_wrong_with_answers_and_events_is_said() {
    for (line, part) in [
        ("answer", "it does not say which answer: write with=rnr"),
        ("answer with=nak", "with: nak is no answer: write one of rnr,"),
        ("answer with=access timer=1ms", "access has no timer: remove it, or write with=rnr"),
        ("answer with=rnr timer=1s", "timer: no RNR timer is so long: write at most 655.36ms"),
        ("answer with=rnr opcode=ack", "ack is no request, so it has no answer: write send, write,"),
        ("answer with=cnp service=ud", "ud has no NAKs and heeds no CNPs: write rc or xrc"),
        ("answer with=cnp side=responder", "only the requester is answered: write side=requester"),
        ("reject reason=tired", "reason: tired is no reason of a REJ: write one of consumer,"),
        (
            "reject private-data=0x123",
            "private-data: 0x123 is not bytes in hexadecimal: write two digits for each",
        ),
        ("reject opcode=rep", "reject is for req, not for rep: write opcode=req"),
        ("unreachable opcode=rtu", "unreachable is for req and sidr-req, not for rtu: write opcode=req"),
        ("reject service=rc", "requests for connections are of service cm, not rc: write service=cm"),
        ("event", "it does not say which event: write kind=port-down"),
        ("event kind=boom", "boom is nothing that happens: write one of"),
        ("event kind=qp-fatal cq=1", "qp-fatal has no cq: remove it"),
        ("event kind=gid-move to=0", "an address cannot move from place 0 to 0"),
        ("event kind=freeze", "it does not say for how long: write time=2s"),
        ("event kind=lid-change opcode=ack", "events happen at requests, and ack is none"),
        ("event kind=lid-change service=cm", "events happen at requests of queue pairs: remove cm"),
    ] {
        let said = FaultPlan::new().with_line(line).unwrap_err().to_string();
        assert!(said.contains(part), "{line}: {said}");
    }
}
