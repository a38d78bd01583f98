//! Anything at all for a connection manager with listeners and connections, and any calls of its consumer in
//! between. Fuzzing (`fuzz/`) finds the inputs, a test makes them from seeds.

use pumice_transport::cm::{
    AcceptParams, Cm, CmConfig, CmEvent, CmPath, ConnectParams, IdSource, ListenParams, MadRoute,
    RejectParams, ResolveParams, SidrReply, time_code_ns,
};
use pumice_transport::mad::{
    CmMessage, CommId, IpHeader, MAD_BYTES, Mad, MadHeader, PortSpace, ServiceId, refuse,
};
use pumice_transport::types::{Gid, Mtu};
use pumice_transport::wire::{ProcessIndex, Psn, Qpn};

/// What [`converse`] allows.
const MAX_CONNECTIONS: usize = 16;

/// Nothing panics, tables stay within their limits, and after the consumer has gone, time removes everything.
pub(crate) fn survive(bytes: &[u8]) {
    round_trip(bytes);
    let _ = IpHeader::parse(bytes);
    converse(bytes);
}

/// What was parsed survives being written and read again.
fn round_trip(bytes: &[u8]) {
    let Ok(mad) = Mad::parse(bytes) else { return };
    let _ = refuse(&mad);
    let Ok(message) = CmMessage::parse(&mad) else { return };
    let again = message.emit(mad.header().transaction);
    let again = Mad::parse(&again).expect("what was emitted is a MAD");
    assert_eq!(CmMessage::parse(&again), Ok(message));
}

/// The input is a script: a byte says what to do, and takes what it needs from the rest.
fn converse(mut script: &[u8]) {
    let address = |last: u8| Gid::from(std::net::Ipv4Addr::new(10, 0, 0, last));
    let config = CmConfig { max_connections: MAX_CONNECTIONS, max_listeners: 2, ..CmConfig::new(1) };
    let mut cm = Cm::new(config, IdSource::new(ProcessIndex::new(1), 0));
    let mut now_ns = 0u64;
    let tcp = ServiceId::rdma_cm(PortSpace::Tcp, 1);
    let udp = ServiceId::rdma_cm(PortSpace::Udp, 1);
    let _ = cm.listen(&ListenParams::new(tcp, 4));
    let _ = cm.listen(&ListenParams { mask: ServiceId::PORT_SPACE_MASK, ..ListenParams::new(udp, 4) });
    while let Some((&what, rest)) = script.split_first() {
        let (&argument, rest) = rest.split_first().unwrap_or((&0, rest));
        script = rest;
        let id = CommId(1 << 24 | u32::from(argument));
        let route = MadRoute { local: address(1), remote: address(argument & 1), ..MadRoute::default() };
        match what % 16 {
            0..=5 => {
                // A message: the kind from the argument, the first fields from the script.
                let mut mad = [0; MAD_BYTES];
                let taken = usize::from(what).min(script.len());
                mad[24..24 + taken.min(232)].copy_from_slice(&script[..taken.min(232)]);
                script = &script[taken..];
                MadHeader::communication(0x10 + u16::from(argument >> 1) % 11, 1, 0).emit(&mut mad);
                let _ = cm.handle_mad(&route, &mad, now_ns);
            }
            6 => {
                let path = CmPath::new(route, Mtu::Mtu1024);
                let params = ConnectParams::new(tcp, path, Qpn::new(argument.into()), Psn::new(0));
                let _ = cm.connect(&params, now_ns);
            }
            7 => {
                let accept = AcceptParams::new(Qpn::new(argument.into()), Psn::new(0));
                let _ = cm.accept(id, &accept, now_ns);
            }
            8 => drop(cm.send_rtu(id, script.get(..3).unwrap_or(&[]))),
            9 => drop(cm.reject(id, &RejectParams::consumer(&[]), now_ns)),
            10 => drop(cm.disconnect(id, &[], now_ns)),
            11 => drop(cm.destroy(id, now_ns)),
            12 => drop(cm.resolve(&ResolveParams::new(udp, route, &[]), now_ns)),
            13 => drop(cm.sidr_reply(id, &SidrReply::queue_pair(Qpn::new(2), 3, &[]))),
            14 => {
                now_ns += time_code_ns(argument);
                cm.handle_timeout(now_ns);
            }
            _ => match argument % 3 {
                0 => drop(cm.establish(id)),
                1 if argument > 128 => cm.peer_died(id),
                1 => drop(cm.mra(id, argument, &[])),
                _ => cm.take_request(id),
            },
        }
        while cm.poll_transmit().is_some() {}
        // Unlike an application, leave some events lying.
        if argument & 4 == 0 {
            let _: Option<CmEvent> = cm.poll_event();
        }
        assert!(cm.connection_count() <= MAX_CONNECTIONS);
    }
    for number in 0..1024 {
        let _ = cm.destroy(CommId(1 << 24 | number), now_ns);
    }
    assert_eq!(cm.poll_event(), None);
    while let Some(due_ns) = cm.poll_timeout() {
        cm.handle_timeout(due_ns);
        while cm.poll_transmit().is_some() {}
    }
    assert_eq!(cm.connection_count(), 0);
}
