//! Messages there and back on every transport.

use pumice_verbs::{
    Gid, PathOptions, RecvRequest, SendList, SendRequest, UcQueuePair, UdEndpoint, UdQueuePair, WcFlags,
    WcOpcode,
};

use crate::kit::{TestSide, connected, on_both, simulated};

#[test]
fn rc_ping_pong() {
    on_both(1, |a, b| {
        let (ping, pong) = connected(&a, &b);
        for (round, length) in [0, 1, 1024, 4096, 4097, 100_000].into_iter().enumerate() {
            let round = round as u64;
            let there = a.pattern(0, length);
            pong.post_recv(&RecvRequest { wr_id: round, sges: &[b.memory.slice(..length).unwrap()] })
                .unwrap();
            ping.post_recv(&RecvRequest {
                wr_id: round + 100,
                sges: &[a.memory.slice(100_000..100_000 + length).unwrap()],
            })
            .unwrap();
            ping.post_send(&SendRequest::send(&[a.memory.slice(..length).unwrap()]).imm([1, 2, 3, 4]))
                .unwrap();
            let arrived = b.expect(round);
            assert_eq!((arrived.byte_len as usize, arrived.opcode), (length, WcOpcode::Recv));
            assert_eq!((arrived.imm_data, arrived.flags), ([1, 2, 3, 4], WcFlags::WITH_IMM));
            assert_eq!(b.memory.to_vec(0, length).unwrap(), there);
            let back = [b.memory.slice(..length / 2).unwrap(), b.memory.slice(length / 2..length).unwrap()];
            pong.post_send(&SendRequest::send(&back).wr_id(7).signaled()).unwrap();
            assert_eq!(a.expect(round + 100).byte_len as usize, length);
            assert_eq!(a.memory.to_vec(100_000, length).unwrap(), there);
            assert_eq!(b.expect(7).opcode, WcOpcode::Send);
        }
    });
}

#[test]
fn a_list_is_posted_in_one_call_and_may_be_posted_again() {
    on_both(2, |a, b| {
        let (ping, pong) = connected(&a, &b);
        let slices: Vec<_> = (0..32).map(|n| [a.memory.slice(n * 100..n * 100 + 100).unwrap()]).collect();
        let sent = a.pattern(0, 3200);
        let requests = slices.iter().enumerate().map(|(n, slices)| {
            let request = SendRequest::send(slices).wr_id(n as u64);
            if n == 31 { request.signaled() } else { request }
        });
        let list = SendList::of(requests).unwrap();
        for _ in 0..8 {
            b.memory.fill(0).unwrap();
            let room: Vec<_> = (0..32).map(|n| [b.memory.slice(n * 128..(n + 1) * 128).unwrap()]).collect();
            let receives: Vec<_> =
                (0..).zip(&room).map(|(wr_id, sges)| RecvRequest { wr_id, sges }).collect();
            pong.post_recvs(&receives).unwrap();
            ping.post_sends(&list).unwrap();
            for n in 0..32 {
                assert_eq!(b.expect(n).byte_len, 100);
                let (to, from) = (n as usize * 128, n as usize * 100);
                assert_eq!(b.memory.to_vec(to, 100).unwrap(), sent[from..from + 100]);
            }
            a.expect(31);
        }
        assert!(a.cq.is_empty());
    });
}

#[test]
fn uc_ping_pong() {
    on_both(3, |a, b| {
        let uc = |side: &TestSide| UcQueuePair::builder(&side.domain, &side.cq, &side.cq).build().unwrap();
        let (ping, pong) = (uc(&a), uc(&b));
        ping.connect(&pong.endpoint(), &Default::default()).unwrap();
        pong.connect(&ping.endpoint(), &Default::default()).unwrap();
        let sent = a.pattern(0, 10_000);
        pong.post_recv(&RecvRequest { wr_id: 5, sges: &[b.memory.slice(..).unwrap()] }).unwrap();
        ping.post_send(&SendRequest::send(&[a.memory.slice(..10_000).unwrap()]).wr_id(6).signaled()).unwrap();
        a.expect(6);
        assert_eq!(b.expect(5).byte_len, 10_000);
        assert_eq!(b.memory.to_vec(0, 10_000).unwrap(), sent);
        let target = a.memory.remote_slice(50_000..60_000).unwrap();
        ping.post_recv(&RecvRequest { wr_id: 8, sges: &[] }).unwrap();
        let back = [b.memory.slice(..10_000).unwrap()];
        pong.post_send(&SendRequest::write(&back, target).imm([0, 0, 0, 9])).unwrap();
        let arrived = a.expect(8);
        assert_eq!((arrived.opcode, arrived.imm_data), (WcOpcode::RecvRdmaWithImm, [0, 0, 0, 9]));
        assert_eq!(a.memory.to_vec(50_000, 10_000).unwrap(), sent);
    });
}

fn ud(side: &TestSide, qkey: u32) -> UdQueuePair {
    let qp = UdQueuePair::builder(&side.domain, &side.cq, &side.cq).build().unwrap();
    qp.activate(qkey).unwrap();
    qp
}

#[test]
fn ud_ping_pong() {
    on_both(4, |a, b| {
        let (ping, pong) = (ud(&a, 0x1111), ud(&b, 0x2222));
        let endpoint = pong.endpoint().unwrap();
        assert_eq!(endpoint.qkey, 0x2222);
        let endpoint = UdEndpoint::from_bytes(&endpoint.to_bytes());
        let to_pong = a.domain.ud_address(&endpoint).unwrap();
        pong.post_recv(&RecvRequest { wr_id: 1, sges: &[b.memory.slice(..1000).unwrap()] }).unwrap();
        let hello = a.pattern(0, 900);
        let local = [a.memory.slice(..900).unwrap()];
        // The wrong Q_Key first: dropped without a trace for either side.
        let stranger = a.domain.ud_address(&UdEndpoint { qkey: 1, ..endpoint }).unwrap();
        ping.post_send(&SendRequest::send_to(&stranger, &local).wr_id(2).signaled()).unwrap();
        a.expect(2);
        ping.post_send(&SendRequest::send_to(&to_pong, &local).imm([4, 3, 2, 1])).unwrap();
        let arrived = b.expect(1);
        assert_eq!((arrived.byte_len, arrived.src_qp), (940, ping.qpn().value()));
        assert_eq!(arrived.flags, WcFlags::GRH | WcFlags::WITH_IMM);
        assert_eq!(b.memory.to_vec(40, 900).unwrap(), hello);
        // The answer goes to who the completion says.
        let to_ping = b.domain.ud_address(&ping.endpoint().unwrap()).unwrap();
        ping.post_recv(&RecvRequest { wr_id: 3, sges: &[a.memory.slice(5000..6000).unwrap()] }).unwrap();
        pong.post_send(&SendRequest::send_to(&to_ping, &[]).inline(b"well")).unwrap();
        assert_eq!(a.expect(3).byte_len, 44);
        assert_eq!(a.memory.to_vec(5040, 4).unwrap(), b"well");
    });
}

#[test]
fn multicast_reaches_members_until_they_leave() {
    let (a, b) = simulated();
    let (sender, member) = (ud(&a, 7), ud(&b, 7));
    let group = Gid::from("239.1.2.3".parse::<std::net::IpAddr>().unwrap());
    let members = a.domain.address_handle(group, 0, &PathOptions::default()).unwrap().multicast(7);
    member.attach_multicast(group).unwrap();
    for wr_id in 0..2 {
        member.post_recv(&RecvRequest { wr_id, sges: &[b.memory.slice(..100).unwrap()] }).unwrap();
    }
    sender.post_send(&SendRequest::send_to(&members, &[]).inline(b"all")).unwrap();
    assert_eq!(b.expect(0).byte_len, 43);
    member.detach_multicast(group).unwrap();
    let error = member.detach_multicast(group).unwrap_err();
    assert_eq!(error.object(), "multicast group");
    sender.post_send(&SendRequest::send_to(&members, &[]).inline(b"all").wr_id(9).signaled()).unwrap();
    a.expect(9);
    a.device.simulation().unwrap().run_for(crate::kit::LIMIT);
    assert_eq!(b.cq.poll(&mut [Default::default()]), 0);
    member.attach_multicast(group).unwrap(); // dropping the queue pair leaves it
}
