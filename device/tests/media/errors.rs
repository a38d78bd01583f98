//! Every error that a requester can see from a responder, over UDP and through rings: the same completions,
//! states, events and counts, entry by entry.

use pumice_device::memory::WindowType;
use pumice_transport::types::*;

use crate::fleet::Scene;
use crate::kit::Connection;
use crate::kit::memory::IOVA;
use crate::node::{Local, told};
use crate::remote::{Link, PATIENT, RING, Remote, destination, local, request};

const QKEY: u32 = 0x1111_1111;
/// For what fails by retries: each takes a millisecond.
const BRIEF: Connection = Connection { timeout: 8, retry_cnt: 2, ..PATIENT };

/// A requester, a responder, and what came of each case.
struct Table {
    a: Local,
    b: Remote,
    medium: Medium,
    _scene: Scene,
    entries: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Udp,
    Rings,
}

impl Table {
    fn of(medium: Medium) -> Table {
        let scene = Scene::new();
        let udp_only = medium == Medium::Udp;
        let a = local(&scene, udp_only, 4096);
        let b = Remote::start(&scene, udp_only);
        let mut table = Table { a, b, medium, _scene: scene, entries: Vec::new() };
        if medium == Medium::Rings {
            table.a.meet(&mut table.b);
        }
        let groups =
            [keys, permissions, lengths, receives, gone, midway, local_errors, datagrams, partitions, shared];
        groups.iter().for_each(|group| group(&mut table));
        table
    }

    fn pair_with(&mut self, qp_type: QpType, numbers: [Connection; 2], options: &str) -> Link {
        let link = self.a.connect_to(&mut self.b, "", qp_type, numbers, options);
        self.check_medium(link);
        // Only what the case itself counts is compared.
        self.a.counted();
        self.b.ask("counted");
        link
    }

    fn pair(&mut self, qp_type: QpType, numbers: Connection) -> Link {
        self.pair_with(qp_type, [numbers; 2], "")
    }

    /// Both ends go by the medium that is judged.
    fn check_medium(&mut self, link: Link) {
        if self.a.node.hca.query_qp(link.here).unwrap().dest_qp_num == 0 {
            return; // datagrams have no peer
        }
        for medium in self.a.media(&mut self.b, link) {
            assert_eq!(medium == RING, self.medium == Medium::Rings, "{medium}");
        }
    }

    fn post(&self, link: Link, request: &SendRequest<'_>) {
        self.a.node.hca.post_send(link.here, request).unwrap();
    }

    /// 8 bytes to the region of this key.
    fn post_to(&self, link: Link, opcode: SendOpcode, rkey: u32) {
        self.post(link, &request(opcode, &[self.a.node.sge(0, 8)], rkey));
    }

    fn post_receive(&mut self, link: Link, options: &str) {
        self.b.ask(&format!("receive qp={} id=5 {options}", link.there.value()));
    }

    /// What came of a case: so many completions are awaited at each end; the first of the requester is
    /// `status`. A link whose responder has no such queue pair any more has no state there.
    fn judge(&mut self, name: &str, link: Link, status: WcStatus, counts: [usize; 2]) {
        let completions = self.a.poll(counts[0]);
        assert_eq!(completions.first().map(|wc| wc.status), Some(status), "{name}: {completions:?}");
        let there = self.b.ask(&format!("poll count={}", counts[1]));
        self.enter(name, link, &told(&completions), &there);
    }

    fn enter(&mut self, name: &str, link: Link, here: &str, there: &str) {
        let states = [
            self.a.node.state(link.here).name().to_owned(),
            self.b.ask(&format!("state qp={}", link.there.value())),
        ];
        let events = [self.a.events(), self.b.ask("events")];
        let counted = [self.a.counted(), self.b.ask("counted")];
        self.entries.push(format!(
            "{name}: a [{here}] b [{there}], states {states:?}, events {events:?}, counted {counted:?}"
        ));
        // Nothing of this case may come into the next one.
        self.a.node.hca.destroy_qp(link.here).unwrap();
        self.b.ask(&format!("destroy qp={}", link.there.value()));
        self.a.poll(0);
        self.b.ask("poll count=0");
        self.a.events();
        self.b.ask("events");
    }
}

/// Keys that open nothing, and addresses beyond what they open.
fn keys(table: &mut Table) {
    let (rkey, end) = (table.b.rkey, IOVA + table.a.node.memory.len() as u64);
    let opcodes = [
        SendOpcode::RdmaWrite,
        SendOpcode::RdmaWriteWithImm,
        SendOpcode::RdmaRead,
        SendOpcode::FetchAdd,
        SendOpcode::CompareSwap,
    ];
    let targets = [
        ("no such R_Key", RemoteTarget { address: IOVA, rkey: 0xdead_0000 }),
        ("an R_Key of another generation", RemoteTarget { address: IOVA, rkey: rkey ^ 1 }),
        ("behind the end", RemoteTarget { address: end, rkey }),
        ("across the end", RemoteTarget { address: end - 4, rkey }),
        ("before the beginning", RemoteTarget { address: IOVA - 8, rkey }),
        ("around the end of all addresses", RemoteTarget { address: u64::MAX - 3, rkey }),
    ];
    for opcode in opcodes {
        for (name, remote) in targets {
            let is_atomic = matches!(opcode, SendOpcode::FetchAdd | SendOpcode::CompareSwap);
            if is_atomic && remote.address % 8 != 0 {
                continue; // unaligned, too: the call refuses that
            }
            let link = table.pair(QpType::Rc, PATIENT);
            table.post_receive(link, "length=8");
            let sges = [table.a.node.sge(0, 8)];
            table.post(link, &SendRequest { remote, ..request(opcode, &sges, rkey) });
            table.judge(&format!("{} {name}", opcode.name()), link, WcStatus::RemAccessErr, [1, 1]);
        }
    }
}

/// Regions and queue pairs that do not allow an access.
fn permissions(table: &mut Table) {
    let cases = [
        (SendOpcode::RdmaWrite, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
        (SendOpcode::RdmaWriteWithImm, Access::LOCAL_WRITE),
        (SendOpcode::RdmaRead, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        (SendOpcode::FetchAdd, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
        (SendOpcode::CompareSwap, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
    ];
    for (opcode, access) in cases {
        let rkey = table.b.number(&format!("register access={}", access.bits()));
        let link = table.pair(QpType::Rc, PATIENT);
        table.post_receive(link, "length=8");
        table.post_to(link, opcode, rkey);
        table.judge(&format!("{} not allowed", opcode.name()), link, WcStatus::RemAccessErr, [1, 1]);
        table.b.ask("deregister");
    }
    for opcode in [SendOpcode::RdmaRead, SendOpcode::FetchAdd] {
        let numbers = [PATIENT, Connection { rd_atomic: 0, ..PATIENT }];
        let link = table.pair_with(QpType::Rc, numbers, "");
        let rkey = table.b.rkey;
        table.post_to(link, opcode, rkey);
        let name = format!("{} that the responder has no resources for", opcode.name());
        table.judge(&name, link, WcStatus::RemInvReqErr, [1, 0]);
    }
}

/// Messages that do not fit their receives.
fn lengths(table: &mut Table) {
    let rkey = table.b.rkey;
    for length in [9, 1024, 1025, 10_000] {
        let link = table.pair(QpType::Rc, PATIENT);
        table.post_receive(link, "length=8");
        table.post(link, &request(SendOpcode::Send, &[table.a.node.sge(0, length)], rkey));
        let here = table.a.poll(1);
        assert_eq!(here[0].status, WcStatus::RemInvReqErr);
        let there = table.b.ask("poll count=1");
        // How many packets of the message were under way behind the first, time decides.
        table.a.counted();
        table.b.ask("counted");
        table.enter(&format!("SEND of {length} into 8"), link, &told(&here), &there);
    }
    let link = table.pair(QpType::Uc, PATIENT);
    table.post_receive(link, "length=8");
    table.post(link, &request(SendOpcode::Send, &[table.a.node.sge(0, 9)], rkey));
    table.judge("SEND on UC of 9 into 8", link, WcStatus::Success, [1, 1]);
}

/// Receives that are not there, or that cannot be used.
fn receives(table: &mut Table) {
    let rkey = table.b.rkey;
    for rnr_retry in 0..=6 {
        for opcode in [SendOpcode::Send, SendOpcode::RdmaWriteWithImm] {
            let link = table.pair(QpType::Rc, Connection { rnr_retry, ..PATIENT });
            table.post_to(link, opcode, rkey);
            let name = format!("{} without a receive, rnr_retry {rnr_retry}", opcode.name());
            table.judge(&name, link, WcStatus::RnrRetryExcErr, [1, 0]);
        }
    }
    let link = table.pair(QpType::Rc, PATIENT);
    table.post_receive(link, "length=8 lkey=3735879680");
    table.post_to(link, SendOpcode::Send, rkey);
    table.judge("a receive with a wrong L_Key", link, WcStatus::RemOpErr, [1, 1]);

    let link = table.pair(QpType::Rc, BRIEF);
    table.post_receive(link, "length=8");
    let sges = [table.a.node.sge(0, 8)];
    let invalidate =
        SendRequest { invalidate_rkey: rkey, ..request(SendOpcode::SendWithInvalidate, &sges, rkey) };
    table.post(link, &invalidate);
    table.judge("a key to invalidate that is none", link, WcStatus::RetryExcErr, [1, 1]);

    let link = table.pair_with(QpType::Rc, [Connection { rnr_retry: 3, ..PATIENT }; 2], "srq=1");
    table.post_to(link, SendOpcode::Send, rkey);
    table.judge("an empty SRQ", link, WcStatus::RnrRetryExcErr, [1, 0]);

    // The limit is reached by the first of two, and each is told in its place.
    let link = table.pair_with(QpType::Rc, [PATIENT; 2], "srq=1");
    table.b.ask("receive srq=1 id=7 count=2 length=8");
    table.b.ask("limit limit=2");
    table.post_to(link, SendOpcode::Send, rkey);
    table.post_to(link, SendOpcode::Send, rkey);
    table.judge("the limit of an SRQ", link, WcStatus::Success, [2, 2]);
}

/// Responders that do not answer.
fn gone(table: &mut Table) {
    let rkey = table.b.rkey;
    for (name, state) in [("RESET", QpState::Reset), ("INIT", QpState::Init), ("ERR", QpState::Err)] {
        for opcode in [SendOpcode::Send, SendOpcode::RdmaRead] {
            let link = table.pair(QpType::Rc, BRIEF);
            if state == QpState::Init {
                let there = link.there.value();
                table.b.ask(&format!("move qp={there} state={}", QpState::Reset as u32));
                table.b.ask(&format!("init qp={there}"));
            } else {
                table.b.ask(&format!("move qp={} state={}", link.there.value(), state as u32));
            }
            table.post_to(link, opcode, rkey);
            let name = format!("{} to a queue pair that went to {name}", opcode.name());
            table.judge(&name, link, WcStatus::RetryExcErr, [1, 0]);
        }
    }
    let link = table.pair(QpType::Rc, BRIEF);
    let other = table.pair(QpType::Rc, PATIENT);
    table.b.ask(&format!("destroy qp={}", link.there.value()));
    table.post_to(link, SendOpcode::Send, rkey);
    let failed = table.a.poll(1);
    assert_eq!(failed[0].status, WcStatus::RetryExcErr);
    let here = format!("{} {}", told(&failed), table.a.node.state(link.here).name());
    table.a.node.hca.destroy_qp(link.here).unwrap();
    table.enter("a queue pair that was destroyed", other, &here, "");
}

/// Things that end between the requests of a list.
fn midway(table: &mut Table) {
    // The second WRITE waits behind a SEND for as long as the responder has no receive.
    let rkey = table.b.number(&format!("register access={}", crate::kit::ALL_ACCESS.bits()));
    let link = table.pair(QpType::Rc, PATIENT);
    for (wr_id, opcode) in
        [SendOpcode::RdmaWrite, SendOpcode::Send, SendOpcode::RdmaWrite].into_iter().enumerate()
    {
        let sges = [table.a.node.sge(0, 8)];
        table.post(link, &SendRequest { wr_id: wr_id as u64, ..request(opcode, &sges, rkey) });
    }
    let first = told(&table.a.poll(1));
    table.b.ask("deregister");
    table.post_receive(link, "length=8");
    let rest = told(&table.a.poll(2));
    let there = table.b.ask("poll count=1");
    // How often it was told to wait, time decides.
    table.a.counted();
    table.b.ask("counted");
    table.enter("a region that is deregistered midway", link, &format!("{first}; {rest}"), &there);

    // The order in which what cannot be done any more is given back. A SEND without a receive keeps the
    // others waiting until all have been posted.
    let link = table.pair(QpType::Rc, PATIENT);
    for wr_id in 20..23 {
        let sge = table.a.node.sge(0, 8);
        table.a.node.hca.post_recv(link.here, &RecvRequest { wr_id, sges: &[sge] }).unwrap();
    }
    let (good, bad) = (table.b.rkey, table.b.rkey ^ 1);
    table.post_to(link, SendOpcode::Send, good);
    for (wr_id, rkey) in [(10, good), (11, bad), (12, good), (13, bad)] {
        let sges = [table.a.node.sge(0, 8)];
        table.post(link, &SendRequest { wr_id, ..request(SendOpcode::RdmaWrite, &sges, rkey) });
    }
    table.b.ask(&format!("receive qp={} id=30 count=3 length=8", link.there.value()));
    let here = told(&table.a.poll(8));
    let there = table.b.ask("poll count=3");
    // How many requests were under way behind the bad one, time decides.
    table.a.counted();
    table.b.ask("counted");
    table.enter("the order of flushed requests", link, &here, &there);
}

/// What the requester finds out itself.
fn local_errors(table: &mut Table) {
    let node = &table.a.node;
    let (good, rkey) = (node.sge(0, 8), table.b.rkey);
    let end = node.memory.address() + node.memory.len() as u64;
    let foreign_pd = node.hca.alloc_pd().unwrap();
    let foreign = node.memory.register(&node.hca, foreign_pd, Access::LOCAL_WRITE);
    let read_only = node.memory.register(&node.hca, node.pd, Access::empty());
    let cases = [
        ("no such L_Key", SendOpcode::Send, Sge { lkey: 0xdead_0000, ..good }),
        ("beyond the region", SendOpcode::Send, Sge { address: end - 4, ..good }),
        ("a key of another domain", SendOpcode::RdmaWrite, Sge { lkey: foreign.lkey, ..good }),
        ("a READ into memory that is read-only", SendOpcode::RdmaRead, Sge { lkey: read_only.lkey, ..good }),
        (
            "an atomic into memory that is read-only",
            SendOpcode::FetchAdd,
            Sge { lkey: read_only.lkey, ..good },
        ),
    ];
    for (name, opcode, sge) in cases {
        let link = table.pair(QpType::Rc, PATIENT);
        table.post(link, &request(opcode, &[sge], rkey));
        table.judge(name, link, WcStatus::LocProtErr, [1, 0]);
    }
    let link = table.pair(QpType::Rc, PATIENT);
    let window = table.a.node.hca.alloc_mw(table.a.node.pd, WindowType::Type2).unwrap();
    let bind = WindowBind {
        window_rkey: window.rkey,
        new_rkey: window.rkey ^ 1,
        region_lkey: table.a.node.lkey,
        address: table.a.node.memory.address(),
        length: 1 << 40,
        access: Access::REMOTE_WRITE,
    };
    table.post(link, &SendRequest { bind: Some(bind), ..SendRequest::new(1, SendOpcode::BindWindow) });
    table.judge("a window that is too long", link, WcStatus::MwBindErr, [1, 0]);

    // Refused by the call: nothing completes, and the queue pair goes on.
    let link = table.pair(QpType::Rc, PATIENT);
    let (long, three) = ([0; 65], [good; 3]);
    let unaligned = RemoteTarget { address: IOVA + 4, rkey };
    let refused = [
        SendRequest {
            inline_data: &long,
            flags: SendFlags::SIGNALED | SendFlags::INLINE,
            ..request(SendOpcode::Send, &[], rkey)
        },
        request(SendOpcode::Send, &three, rkey),
        request(SendOpcode::FetchAdd, &[Sge { length: 4, ..good }], rkey),
        SendRequest { remote: unaligned, ..request(SendOpcode::FetchAdd, &[good], rkey) },
        SendRequest { remote: unaligned, ..request(SendOpcode::CompareSwap, &[good], rkey) },
    ]
    .map(|request| table.a.node.hca.post_send(link.here, &request).unwrap_err().to_string());
    // The number of the queue pair is in the sentence.
    let refused = refused.join("; ").replace(&link.here.to_string(), "QPN");
    table.post_receive(link, "length=8");
    table.post_to(link, SendOpcode::Send, rkey);
    let here = format!("{refused}; {}", told(&table.a.poll(1)));
    let there = table.b.ask("poll count=1");
    table.enter("what the call refuses", link, &here, &there);
}

/// Datagrams that are not heard. A good one behind them proves that they have been looked at.
fn datagrams(table: &mut Table) {
    // The last datagram of each case fits into the first receive, whose room is 99 bytes behind the header.
    let cases =
        [("a wrong Q_Key", [(QKEY ^ 1, 8), (QKEY, 8)]), ("too short a receive", [(QKEY, 100), (QKEY, 8)])];
    for (name, datagrams) in cases {
        let link = table.pair(QpType::Ud, PATIENT);
        table.post_receive(link, "length=139");
        for (qkey, length) in datagrams {
            let sges = [table.a.node.sge(0, length)];
            let ud = Some(destination(&table.a.node, table.b.ip, link.there, qkey));
            table.post(link, &SendRequest { ud, ..request(SendOpcode::Send, &sges, 0) });
        }
        table.judge(name, link, WcStatus::Success, [2, 1]);
    }
    let link = table.pair(QpType::Ud, PATIENT);
    let sges = [table.a.node.sge(0, 4097)];
    let ud = Some(destination(&table.a.node, table.b.ip, link.there, QKEY));
    table.post(link, &SendRequest { ud, ..request(SendOpcode::Send, &sges, 0) });
    table.judge("a datagram beyond the MTU", link, WcStatus::LocLenErr, [1, 0]);
    // A WRITE on UC with a wrong key is not told: a SEND behind it is.
    let link = table.pair(QpType::Uc, PATIENT);
    table.post_receive(link, "length=8");
    table.post_to(link, SendOpcode::RdmaWrite, 0xdead_0000);
    table.post_to(link, SendOpcode::Send, 0);
    table.judge("a WRITE on UC with no such R_Key", link, WcStatus::Success, [2, 1]);
}

/// Queue pairs in different partitions.
fn partitions(table: &mut Table) {
    let rkey = table.b.rkey;
    let link = table.pair(QpType::Rc, BRIEF);
    table.a.to_partition(link.here, 1);
    table.post_to(link, SendOpcode::RdmaWrite, rkey);
    table.judge("another partition", link, WcStatus::RetryExcErr, [1, 0]);

    let link = table.pair(QpType::Ud, PATIENT);
    let ud = Some(destination(&table.a.node, table.b.ip, link.there, QKEY));
    table.b.ask(&format!("receive qp={} id=5 length=48", link.there.value()));
    for pkey_index in [1, 0] {
        table.a.to_partition(link.here, pkey_index);
        table.post(link, &SendRequest { ud: ud.clone(), ..request(SendOpcode::Send, &[], 0) });
    }
    table.judge("a datagram of another partition", link, WcStatus::Success, [2, 1]);
}

/// XRC.
fn shared(table: &mut Table) {
    for opcode in [SendOpcode::Send, SendOpcode::RdmaWriteWithImm] {
        let link = table.pair(QpType::XrcInitiator, PATIENT);
        let sges = [table.a.node.sge(0, 8)];
        let rkey = table.b.rkey;
        table.post(link, &SendRequest { xrc_srqn: 0x4242, ..request(opcode, &sges, rkey) });
        let name = format!("{} to an XRC SRQ that does not exist", opcode.name());
        table.judge(&name, link, WcStatus::RemInvRdReqErr, [1, 0]);
    }
}

#[test]
fn every_error_is_the_same_over_udp_and_through_rings() {
    let mut tables = [Medium::Udp, Medium::Rings].map(Table::of);
    // The rings were used to the end: one that is closed stays so for ten seconds.
    let [_, rings] = &mut tables;
    let last = rings.pair(QpType::Rc, PATIENT);
    assert_eq!(rings.a.media(&mut rings.b, last), [RING, RING]);
    let [udp, rings] = tables;
    if std::env::var_os("PUMICE_MEDIA_SHOW").is_some() {
        udp.entries.iter().for_each(|entry| eprintln!("{entry}"));
    }
    assert!(udp.entries.len() > 70, "{}", udp.entries.len());
    assert_eq!(udp.entries.len(), rings.entries.len());
    for (by_udp, by_rings) in udp.entries.iter().zip(&rings.entries) {
        assert_eq!(by_udp, by_rings);
    }
}
