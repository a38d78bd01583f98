//! `pumice mrc` and the queue pairs of running processes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Output};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig, MrcAttributes, QpInit};
use pumice_device::platform::clock::Clock;
use pumice_device::port::UdpConfig;
use pumice_device::resources::CqSetup;
use pumice_device::sharing::{SharedPort, SharedPortConfig};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{
    Access, AddressVector, Gid, Mtu, QpCapacity, QpState, QpType, RemoteTarget, SendFlags, SendOpcode,
    SendRequest,
};
use pumice_transport::wire::Qpn;
use serde_json::Value;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 108, 6, 1));

/// A registry and a UDP port of their own, with a device on them.
struct TestProcess {
    folder: PathBuf,
    port: u16,
    hca: Option<Hca>,
}

impl TestProcess {
    fn new(name: &str, number: u16) -> TestProcess {
        let folder = std::env::temp_dir().join(format!("pumice-mrc-{name}-{}", std::process::id()));
        let port = 30_000 + number + (std::process::id() % 400) as u16 * 2;
        let udp = UdpConfig { port, ..UdpConfig::new(ADDRESS) };
        let config = SharedPortConfig { folder: Some(folder.clone()), ..SharedPortConfig::new(udp) };
        let shared = SharedPort::open(&config).expect("a port of our own");
        let gid = GidEntry::new(ADDRESS, "lo", 1, Mtu::Mtu4096);
        let config =
            HcaConfig { process: shared.process(), planes: 4, ..HcaConfig::new("pumice0", vec![gid]) };
        let hca = Hca::open(config, Box::new(shared), Clock::monotonic()).expect("a device");
        TestProcess { folder, port, hca: Some(hca) }
    }

    fn hca(&self) -> &Hca {
        self.hca.as_ref().expect("it is open")
    }

    fn mrc(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("mrc").arg("--registry").arg(&self.folder).arg("--port").arg(self.port.to_string());
        command.args(options).output().expect("the program runs")
    }

    /// A queue pair that is connected to itself.
    fn queue_pair(&self) -> Qpn {
        let hca = self.hca();
        let pd = hca.alloc_pd().expect("a PD");
        let cq = hca.create_cq(CqSetup { depth: 64, ..CqSetup::default() }).expect("a CQ").handle();
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            capacity: QpCapacity {
                max_send_wr: 16,
                max_recv_wr: 1,
                max_send_sge: 1,
                ..QpCapacity::default()
            },
            signal_all: false,
            cookie: 0,
        };
        let (qpn, _) = hca.create_mrc_qp(&init).expect("a queue pair");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let attributes = QpAttributes {
            path_mtu: Mtu::Mtu1024 as u32,
            dest_qp_num: qpn.value(),
            access: access.bits(),
            address_vector: AddressVector {
                is_global: true,
                dgid: Gid::from(ADDRESS),
                port_num: 1,
                ..AddressVector::default()
            },
            port_num: 1,
            ..QpAttributes::default()
        };
        let steps = [
            (QpState::Init, AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::ACCESS_FLAGS),
            (
                QpState::Rtr,
                AttributeMask::AV | AttributeMask::DEST_QPN | AttributeMask::RQ_PSN | AttributeMask::PATH_MTU,
            ),
            (QpState::Rts, AttributeMask::SQ_PSN),
        ];
        for (state, mask) in steps {
            let attributes = QpAttributes { qp_state: state as u32, ..attributes.clone() };
            hca.modify_mrc_qp(qpn, &attributes, mask | AttributeMask::STATE, &MrcAttributes::default())
                .unwrap_or_else(|error| panic!("{state:?}: {error}"));
        }
        qpn
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.hca = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn queue_pairs_are_shown_with_their_planes_and_paths() {
    let process = TestProcess::new("paths", 0);
    let output = process.mrc(&[]);
    assert!(output.status.success() && text(&output).contains("no process"), "{}", text(&output));
    let qpn = process.queue_pair();
    // A message of 0 bytes needs no memory, and is a packet of data.
    let request = SendRequest {
        flags: SendFlags::SIGNALED,
        remote: RemoteTarget { address: 0, rkey: 0 },
        ..SendRequest::new(7, SendOpcode::RdmaWrite)
    };
    process.hca().post_sends(qpn, &[request]).expect("it is posted");
    assert!(process.hca().enable_mrc_port(2, false));
    let output = process.mrc(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let schema = std::fs::read_to_string("docs/schemas/mrc.json").expect("the schema is there");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let judge = jsonschema::options().build(&schema).expect("it is a schema");
    let errors: Vec<String> = judge.iter_errors(&all).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let qp = &all[0]["queue_pairs"][0];
    assert_eq!((&qp["qpn"], &qp["state"]), (&qpn.value().into(), &"RTS".into()));
    let mrc = &qp["mrc"];
    assert_eq!((&mrc["planes"], &mrc["planes_up"]), (&4.into(), &0b1101.into()));
    let paths = mrc["paths"].as_array().expect("an array");
    assert_eq!(mrc["path_count"], paths.len());
    let sent: u64 = paths.iter().map(|path| path["sent"].as_u64().expect("a number")).sum();
    assert!(sent >= 1, "{mrc}");
    let shown = text(&process.mrc(&[]));
    assert!(shown.contains(&format!("queue pair {qpn}  RTS with {qpn} of {ADDRESS}")), "{shown}");
    assert!(shown.contains("PLANE") && shown.contains("1 down"), "{shown}");
    assert!(text(&process.mrc(&["--paths"])).contains(" of plane 3: GOOD"), "{shown}");
    assert_eq!(process.mrc(&["--pid", "1"]).status.code(), Some(1));
}
