//! The messages of rdma_cm programs over rdma_rxe (Linux 6.1 and 6.12): written from values, read and
//! written again, and a [`Cm`] in the role of either side, all byte for byte.

use std::net::IpAddr;

use pumice_transport::cm::{
    AcceptParams, Cm, CmConfig, CmEvent, CmPath, ConnectParams, IdSource, ListenParams, MadRoute,
    ResolveParams, SidrReply,
};
use pumice_transport::mad::{
    CmMessage, CommId, Drep, Dreq, Ece, GSI_Q_KEY, IpHeader, MAD_BYTES, Mad, PathFields, PortSpace,
    PrivateData, Rej, RejectReason, Rejected, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
    TransportType,
};
use pumice_transport::types::{Gid, Mtu};
use pumice_transport::wire::{Operation, Packet, Psn, Qpn, decapsulate};

use crate::capture::{frames, golden};

const KERNELS: [&str; 2] = ["6.1", "6.12"];
const CAPTURES: [(&str, usize); 5] = [
    ("cm-rping", 5),
    ("cm-ucmatose", 5),
    ("cm-udaddy", 2),
    ("cm-reject-no-listener", 2),
    ("cm-sidr-reject", 2),
];

/// A captured MAD and the addresses that it went between.
#[derive(Clone)]
struct Captured {
    source: Gid,
    destination: Gid,
    bytes: [u8; MAD_BYTES],
    message: CmMessage,
    transaction: u64,
}

impl Captured {
    /// Seen from the receiver.
    fn route(&self) -> MadRoute {
        MadRoute {
            local: self.destination,
            remote: self.source,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }
}

fn mads(kernel: &str, capture: &str) -> Vec<Captured> {
    let path = golden().join(kernel).join(format!("{capture}.pcap"));
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (link, frames) = frames(&file);
    let mut found = Vec::new();
    for frame in frames {
        let datagram = decapsulate(link, frame).unwrap();
        let packet = Packet::parse(datagram.payload).unwrap();
        let headers = packet.headers();
        if headers.bth.destination != Qpn::GSI {
            continue;
        }
        assert_eq!(packet.operation(), Operation::SendOnly);
        assert_eq!(headers.deth.map(|deth| (deth.qkey, deth.source)), Some((GSI_Q_KEY, Qpn::GSI)));
        let mad = Mad::parse(packet.payload()).unwrap();
        found.push(Captured {
            source: datagram.flow.source.into(),
            destination: datagram.flow.destination.into(),
            bytes: *mad.bytes(),
            message: CmMessage::parse(&mad).unwrap(),
            transaction: mad.header().transaction,
        });
    }
    found
}

#[test]
fn every_captured_message_is_written_again() {
    for kernel in KERNELS {
        for (capture, count) in CAPTURES {
            let mads = mads(kernel, capture);
            assert_eq!(mads.len(), count, "{kernel}/{capture}");
            for mad in mads {
                assert_eq!(mad.message.emit(mad.transaction), mad.bytes, "{:?}", mad.message);
            }
        }
    }
}

const CLIENT: [u8; 4] = [10, 9, 0, 2];
const SERVER: [u8; 4] = [10, 9, 0, 1];

fn gid(address: [u8; 4]) -> Gid {
    Gid::from(IpAddr::from(address))
}

fn header(source_port: u16) -> [u8; 36] {
    IpHeader { source_port, source: CLIENT.into(), destination: SERVER.into() }.emit()
}

/// The messages of 6.12 as values, written by hand: what the bytes mean, not what the parser thinks.
#[test]
fn every_kind_of_message_from_values() {
    let (client, server) = (CommId(0xc08a_e82b), CommId(0xc38a_e82b));
    let req = Req {
        local_id: client,
        service_id: ServiceId::rdma_cm(PortSpace::Tcp, 7174),
        local_ca_guid: 0xff_fe00_0002,
        ece: Ece::default(),
        local_q_key: 0,
        local_qpn: Qpn::new(0x37),
        responder_resources: 1,
        local_eecn: 0,
        initiator_depth: 1,
        remote_eecn: 0,
        remote_response_timeout: 20,
        transport: TransportType::Rc,
        flow_control: false,
        starting_psn: Psn::new(0xba_4722),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 5,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: PathFields {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(CLIENT),
            remote_gid: gid(SERVER),
            flow_label: 0x32552,
            packet_rate: 0,
            traffic_class: 0,
            hop_limit: 64,
            sl: 0,
            subnet_local: false,
            local_ack_timeout: 17,
        },
        alternate: PathFields::default(),
        private_data: PrivateData::new(&header(0x9d34)).unwrap(),
    };
    let rep = Rep {
        local_id: server,
        remote_id: client,
        local_q_key: 0,
        local_qpn: Qpn::new(0x37),
        ece: Ece::default(),
        local_eecn: 0,
        starting_psn: Psn::new(0x75_1df3),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover_accepted: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 0xff_fe00_0001,
        private_data: PrivateData::NONE,
    };
    let dreq = Dreq {
        local_id: client,
        remote_id: server,
        remote_qpn: Qpn::new(0x37),
        private_data: PrivateData::NONE,
    };
    let connection = [
        CmMessage::Req(req),
        CmMessage::Rep(rep),
        CmMessage::Rtu(Rtu { local_id: client, remote_id: server, private_data: PrivateData::NONE }),
        CmMessage::Dreq(dreq),
        CmMessage::Drep(Drep { local_id: server, remote_id: client, private_data: PrivateData::NONE }),
    ];
    compare("cm-rping", &connection, 0x4_2be8_8ac0);

    let rej = Rej {
        local_id: CommId::NONE,
        remote_id: CommId(0xc88a_e82b),
        rejected: Rejected::Req,
        info_length: 0,
        reason: RejectReason::INVALID_SERVICE_ID,
        info: PrivateData::NONE,
        private_data: PrivateData::NONE,
    };
    let captured = &mads("6.12", "cm-reject-no-listener")[1];
    assert_eq!(CmMessage::Rej(rej).emit(0x4_2be8_8ac8), captured.bytes);

    let service_id = ServiceId::rdma_cm(PortSpace::Udp, 7174);
    let question = |id, port| {
        let private_data = PrivateData::new(&header(port)).unwrap();
        CmMessage::SidrReq(SidrReq { request_id: CommId(id), pkey: 0xffff, service_id, private_data })
    };
    let answer = |id, status, qpn, q_key| {
        CmMessage::SidrRep(SidrRep {
            request_id: CommId(id),
            status,
            info_length: 0,
            qpn: Qpn::new(qpn),
            service_id,
            q_key,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        })
    };
    let id = 0xc68a_e82b;
    let answers = [question(id, 0xdfa6), answer(id, SidrStatus::SUCCESS, 0x39, 0x0123_4567)];
    compare("cm-udaddy", &answers, 0x4_2be8_8ac6);
    let id = 0xca8a_e82b;
    let refusal = [question(id, 0x8749), answer(id, SidrStatus::UNSUPPORTED, 0, 0)];
    compare("cm-sidr-reject", &refusal, 0x4_2be8_8aca);
}

fn compare(capture: &str, messages: &[CmMessage], transaction: u64) {
    let captured = mads("6.12", capture);
    assert_eq!(captured.len(), messages.len(), "{capture}");
    for (message, captured) in messages.iter().zip(captured) {
        assert_eq!(captured.message, *message, "{capture}");
        assert_eq!(message.emit(transaction), captured.bytes, "{capture}");
    }
}

/// A manager whose first id is that of the capture.
fn cm(guid: u64, first: CommId) -> Cm {
    Cm::new(CmConfig::new(guid), IdSource::new(first.process(), first.0))
}

/// The next MAD of a manager is the captured one. Transactions are the choice of who begins them: if
/// that is us, they are left out.
fn expect(cm: &mut Cm, captured: &Captured, our_transaction: bool) {
    let mut out = cm.poll_transmit().unwrap_or_else(|| panic!("no {:?}", captured.message));
    assert!(cm.poll_transmit().is_none());
    assert_eq!((out.route.local, out.route.remote), (captured.source, captured.destination));
    if our_transaction {
        out.mad[8..16].copy_from_slice(&captured.bytes[8..16]);
    }
    assert_eq!(out.mad, captured.bytes, "{:?}", captured.message);
}

fn receive(cm: &mut Cm, captured: &Captured) {
    cm.handle_mad(&captured.route(), &captured.bytes, 0).unwrap();
}

fn request(captured: &Captured) -> (Req, Cm, CommId) {
    let CmMessage::Req(req) = captured.message else { panic!("no REQ: {:?}", captured.message) };
    let mut cm = cm(req.local_ca_guid, req.local_id);
    let route = MadRoute {
        local: captured.source,
        remote: captured.destination,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: req.primary.flow_label,
    };
    // 18 in Linux 6.1, 16 in 6.12.
    let packet_life_time = req.primary.local_ack_timeout - 1;
    let params = ConnectParams {
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        private_data: &req.private_data,
        ..ConnectParams::new(
            req.service_id,
            CmPath { packet_life_time, ..CmPath::new(route, Mtu::Mtu4096) },
            req.local_qpn,
            req.starting_psn,
        )
    };
    let id = cm.connect(&params, 0).unwrap();
    assert_eq!(id, req.local_id);
    (req, cm, id)
}

#[test]
fn in_the_role_of_the_client() {
    for kernel in KERNELS {
        let [req, rep, rtu, dreq, drep] = &mads(kernel, "cm-rping")[..] else { panic!("five MADs") };
        let (_, mut cm, id) = request(req);
        expect(&mut cm, req, true);
        receive(&mut cm, rep);
        assert!(matches!(cm.poll_event(), Some(CmEvent::ConnectResponse { .. })));
        let qp = cm.qp_parameters(id).unwrap();
        let (CmMessage::Req(asked), CmMessage::Rep(replied)) = (req.message, rep.message) else { panic!() };
        assert_eq!((qp.rq_psn, qp.sq_psn), (Some(asked.starting_psn), replied.starting_psn));
        assert_eq!((qp.dest_qpn, qp.path_mtu), (replied.local_qpn, Mtu::Mtu4096));
        assert_eq!(qp.timeout, asked.primary.local_ack_timeout);
        cm.send_rtu(id, &[]).unwrap();
        expect(&mut cm, rtu, true);
        cm.disconnect(id, &[], 0).unwrap();
        expect(&mut cm, dreq, true);
        receive(&mut cm, drep);
        assert!(matches!(cm.poll_event(), Some(CmEvent::Disconnected { private_data: Some(_), .. })));

        // The server disconnects.
        let [req, rep, rtu, dreq, drep] = &mads(kernel, "cm-ucmatose")[..] else { panic!("five MADs") };
        let (_, mut cm, id) = request(req);
        expect(&mut cm, req, true);
        receive(&mut cm, rep);
        cm.send_rtu(id, &[]).unwrap();
        expect(&mut cm, rtu, true);
        receive(&mut cm, dreq);
        cm.disconnect(id, &[], 0).unwrap();
        expect(&mut cm, drep, false);

        let [req, rej] = &mads(kernel, "cm-reject-no-listener")[..] else { panic!("two MADs") };
        let (_, mut cm, _) = request(req);
        expect(&mut cm, req, true);
        receive(&mut cm, rej);
        let Some(CmEvent::Rejected { rejection, .. }) = cm.poll_event() else { panic!("rejected") };
        assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
    }
}

#[test]
fn in_the_role_of_the_server() {
    for kernel in KERNELS {
        for capture in ["cm-rping", "cm-ucmatose"] {
            let [req, rep, rtu, dreq, drep] = &mads(kernel, capture)[..] else { panic!("five MADs") };
            let (CmMessage::Req(asked), CmMessage::Rep(replied)) = (req.message, rep.message) else {
                panic!()
            };
            let mut cm = cm(replied.local_ca_guid, replied.local_id);
            cm.listen(&ListenParams::new(asked.service_id, 1)).unwrap();
            receive(&mut cm, req);
            let Some(CmEvent::ConnectRequest { id, .. }) = cm.poll_event() else { panic!("a request") };
            let accept = AcceptParams {
                rnr_retry_count: replied.rnr_retry_count,
                ..AcceptParams::new(replied.local_qpn, replied.starting_psn)
            };
            cm.accept(id, &accept, 0).unwrap();
            expect(&mut cm, rep, false);
            receive(&mut cm, rtu);
            assert!(matches!(cm.poll_event(), Some(CmEvent::Established { .. })));
            let qp = cm.qp_parameters(id).unwrap();
            assert_eq!((qp.rq_psn, qp.sq_psn), (Some(replied.starting_psn), asked.starting_psn));
            assert_eq!((qp.dest_qpn, qp.retry_count), (asked.local_qpn, asked.retry_count));
            assert_eq!(qp.timeout, asked.primary.local_ack_timeout);
            if dreq.source == rep.source {
                cm.disconnect(id, &[], 0).unwrap();
                expect(&mut cm, dreq, true);
                receive(&mut cm, drep);
                assert!(matches!(cm.poll_event(), Some(CmEvent::Disconnected { .. })));
            } else {
                receive(&mut cm, dreq);
                assert!(matches!(cm.poll_event(), Some(CmEvent::DisconnectRequest { .. })));
                cm.disconnect(id, &[], 0).unwrap();
                expect(&mut cm, drep, false);
            }
        }
        let [req, rej] = &mads(kernel, "cm-reject-no-listener")[..] else { panic!("two MADs") };
        let mut cm = cm(0, CommId(1));
        assert!(cm.handle_mad(&req.route(), &req.bytes, 0).is_err());
        expect(&mut cm, rej, false);
        assert!(cm.is_empty());
    }
}

#[test]
fn datagrams_in_the_role_of_both_sides() {
    for kernel in KERNELS {
        for capture in ["cm-udaddy", "cm-sidr-reject"] {
            let [req, rep] = &mads(kernel, capture)[..] else { panic!("two MADs") };
            let (CmMessage::SidrReq(asked), CmMessage::SidrRep(answered)) = (req.message, rep.message) else {
                panic!()
            };
            let mut client = cm(1, asked.request_id);
            let route = MadRoute { local: req.source, remote: req.destination, ..req.route() };
            client.resolve(&ResolveParams::new(asked.service_id, route, &asked.private_data), 0).unwrap();
            expect(&mut client, req, true);
            receive(&mut client, rep);
            let Some(CmEvent::SidrResolved { reply, .. }) = client.poll_event() else { panic!("an answer") };
            assert_eq!(*reply, answered);

            let mut server = cm(2, CommId(5));
            if answered.status == SidrStatus::SUCCESS {
                server.listen(&ListenParams::new(asked.service_id, 1)).unwrap();
                receive(&mut server, req);
                let Some(CmEvent::SidrRequest { id, .. }) = server.poll_event() else { panic!("a question") };
                server.sidr_reply(id, &SidrReply::queue_pair(answered.qpn, answered.q_key, &[])).unwrap();
            } else {
                assert!(server.handle_mad(&req.route(), &req.bytes, 0).is_err());
            }
            expect(&mut server, rep, false);
        }
    }
}
