//! Incasts in worlds beside the same ones in the simulated network: processes on hosts, whose packets pass
//! the switches that processes share, and hosts of one test in virtual time.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../device/tests/kit/mod.rs"]
mod kit;
#[allow(dead_code, reason = "the tests of networks use all of it")]
#[path = "../device/tests/networks/transfers.rs"]
mod transfers;
#[path = "world/kit.rs"]
mod worlds;

use pumice_device::port::Topology;
use pumice_transport::qp::{Congestion, DcqcnParameters, NotificationParameters};
use pumice_transport::types::Mtu;
use transfers::Start;
use worlds::{Scratch, text};

/// What each sender of an incast sends: at most sixteen messages of 256 KiB.
#[derive(Clone, Copy)]
struct Incast {
    senders: u16,
    messages: u32,
    bytes: u32,
    mtu: Mtu,
    /// What the receiver does meanwhile.
    receiver: Receiver,
}

/// What a receiver does while others write to it.
#[derive(Clone, Copy)]
enum Receiver {
    Polls,
    Sleeps,
}

/// Of three and of seven senders.
const INCASTS: [Incast; 2] = [
    Incast { senders: 3, messages: 2, bytes: 1 << 18, mtu: Mtu::Mtu1024, receiver: Receiver::Polls },
    Incast { senders: 7, messages: 2, bytes: 1 << 18, mtu: Mtu::Mtu1024, receiver: Receiver::Polls },
];

/// Starts all on their hosts, the receiver on the first one, in a folder of their own.
const SCRIPT: &str = "\
mkdir \"$1\" && cd \"$1\" || exit 1
k=0
while [ $k -lt $2 ]; do
  ssh host$((k + 2)) \"$0\" send $k $3 $4 $5 &
  k=$((k + 1))
done
\"$0\" $6 $2 $5
wait
";

/// The most that two adapters of the model take for a message and its acknowledgement, beside the links.
const ADAPTERS_NS: u64 = 3_000;

/// What a packet of each sender takes on a link: of packets that come at one nanosecond, the networks may let
/// another one go first.
const PACKETS_NS: u64 = 7 * 88;

const PAUSES: &str = "[switch.pause]\nxoff_bytes = 50000\nxon_bytes = 40000\n";
const MARKS: &str = "[switch.ecn]\nmin_bytes = 5000\nmax_bytes = 200000\nmost_ppm = 10000\n";
/// The parameters of `DcqcnParameters::PAPER` at this rate, as a profile.
const DCQCN: &str = "\
[congestion]
algorithm = \"dcqcn\"
preset = \"paper\"
line_rate = 100000
max_burst_bytes = 0
";

/// A star of links of 100 Gbit/s and 1 us, as both networks read it.
fn star(senders: u16, switch: &str) -> String {
    let hosts: Vec<String> = (1..=senders + 1).map(|host| format!("\"127.1.0.{host}\"")).collect();
    format!(
        "kind = \"star\"\nhosts = [{}]\n[link]\nrate_mbps = 100000\ndelay_ns = 1000\n\
         [switch]\nqueue_bytes = 16000000\n{switch}",
        hosts.join(", ")
    )
}

/// When each sender has ended in a world, in ns, in the order of their ends. The folder of the run has this
/// name.
fn in_world(scratch: &Scratch, name: &str, model: &str, incast: Incast, options: &[&str]) -> Vec<u64> {
    let Incast { senders, messages, bytes, mtu, receiver } = incast;
    let receives = match receiver {
        Receiver::Polls => "receive",
        Receiver::Sleeps => "rest",
    };
    let [hosts, senders_text] = [senders + 1, senders].map(|number| number.to_string());
    let [messages, bytes, mtu] = [messages, bytes, mtu.bytes() as u32].map(|number| number.to_string());
    let world = ["--model", model, "--topology", "star.toml", "--hosts", &hosts];
    let script = [
        "--",
        "sh",
        "-c",
        SCRIPT,
        "../incast_libverbs",
        name,
        &senders_text,
        &messages,
        &bytes,
        &mtu,
        receives,
    ];
    let ran = scratch.world(&[&world[..], options, &script].concat());
    let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success() && errors.contains("pumice: certified"), "{output}{errors}");
    let ns_of = |line: &str| line.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    let mut ends: Vec<u64> = output.lines().filter_map(ns_of).collect();
    ends.sort_unstable();
    assert_eq!(ends.len(), usize::from(senders), "{output}");
    ends
}

/// The same in the simulated network.
fn simulated(incast: Incast, switch: &str, congestion: &Congestion) -> Vec<u64> {
    let Incast { senders, messages, bytes, mtu, .. } = incast;
    // A number of hosts, and not their addresses: those of the test are others.
    let text = star(senders, switch);
    let hosts = text.lines().find(|line| line.starts_with("hosts")).expect("the list of hosts");
    let topology = Topology::parse(&text.replace(hosts, &format!("hosts = {}", senders + 1)));
    let start = Start {
        topology: topology.expect("a topology"),
        congestion: congestion.clone(),
        mtu,
        queue_pairs: 1,
        transfers: transfers::incast(senders, messages * bytes),
    };
    let mut ends = start.run().ends_ns;
    ends.sort_unstable();
    ends
}

/// The ends of an incast in a world of links alone, in one with adapters, and in the simulated network.
struct Ends {
    links: Vec<u64>,
    adapters: Vec<u64>,
    simulated: Vec<u64>,
}

/// Runs the incasts in each network. Nothing if there is no compiler.
fn compare(name: &str, switch: &str, congestion: &Congestion) -> Vec<Ends> {
    let scratch = Scratch::new(name);
    if scratch.program("incast", &["-libverbs"]).is_none() {
        return Vec::new();
    }
    let profile: &[&str] =
        if *congestion == Congestion::default() { &[] } else { &["--profile", "dcqcn.toml"] };
    std::fs::write(scratch.0.join("dcqcn.toml"), DCQCN).expect("a file can be written");
    let of_incast = |incast: Incast| {
        let senders = incast.senders;
        std::fs::write(scratch.0.join("star.toml"), star(senders, switch)).expect("a file can be written");
        let by_model = |model| in_world(&scratch, &format!("{model}-{senders}"), model, incast, profile);
        let [links, adapters] = ["wire", "connectx-7"].map(by_model);
        let simulated = simulated(incast, switch, congestion);
        eprintln!(
            "{name}, {senders} to 1, in ns:\n  simulated  {simulated:?}\n  wire       {links:?}\n  \
             connectx-7 {adapters:?}"
        );
        Ends { links, adapters, simulated }
    };
    INCASTS.into_iter().map(of_incast).collect()
}

/// Asserts that the last sender of a world of links alone ends at the very time of the simulated network, and
/// with adapters as much later as these take for one message and its acknowledgement.
fn assert_last(compared: &[Ends]) {
    for Ends { links, adapters, simulated } in compared {
        let [links, adapters, simulated] = [links, adapters, simulated].map(|ends| ends.last().copied());
        assert_eq!(links, simulated);
        let late_ns =
            adapters.zip(simulated).and_then(|(adapters, simulated)| adapters.checked_sub(simulated));
        assert!(late_ns.is_some_and(|ns| ns <= ADAPTERS_NS), "{late_ns:?}");
    }
}

#[test]
fn an_incast_ends_as_in_the_simulated_network() {
    let compared = compare("incast-plain", "", &Congestion::default());
    assert_last(&compared);
    for Ends { links, adapters, simulated } in compared {
        let pairs = links.iter().zip(&simulated);
        assert!(pairs.clone().all(|(links, simulated)| links.abs_diff(*simulated) <= PACKETS_NS));
        // What adapters take is the same for each sender.
        let late_ns: Vec<u64> =
            adapters.iter().zip(&links).map(|(adapters, links)| adapters - links).collect();
        assert!(late_ns.windows(2).all(|two| two[0] == two[1]), "{late_ns:?}");
    }
}

#[test]
fn a_receiver_that_sleeps_holds_no_packet() {
    let scratch = Scratch::new("incast-sleeps");
    if scratch.program("incast", &["-libverbs"]).is_none() {
        return;
    }
    std::fs::write(scratch.0.join("dcqcn.toml"), DCQCN).expect("a file can be written");
    std::fs::write(scratch.0.join("star.toml"), star(3, MARKS)).expect("a file can be written");
    let [polls, sleeps] = [Receiver::Polls, Receiver::Sleeps].map(|receiver| {
        let (incast, options) = (Incast { receiver, ..INCASTS[0] }, ["--profile", "dcqcn.toml"]);
        in_world(&scratch, &format!("of-{}", receiver as u8), "connectx-7", incast, &options)
    });
    assert_eq!(polls, sleeps);
}

#[test]
fn an_incast_with_pauses_ends_as_in_the_simulated_network() {
    assert_last(&compare("incast-pauses", PAUSES, &Congestion::default()));
}

#[test]
fn an_incast_by_dcqcn_is_that_of_the_simulated_network() {
    let parameters = DcqcnParameters { line_rate: 100_000, ..DcqcnParameters::PAPER };
    let dcqcn = Congestion::dcqcn(parameters, NotificationParameters::default());
    let compared = compare("incast-dcqcn", MARKS, &dcqcn);
    assert_last(&compared);
    for Ends { links, adapters, simulated } in compared {
        for ((links, adapters), simulated) in links.iter().zip(&adapters).zip(&simulated) {
            assert!(links.abs_diff(*simulated) <= PACKETS_NS, "each sender: {links} {simulated}");
            let latest = simulated + ADAPTERS_NS + PACKETS_NS;
            assert!((*simulated..=latest).contains(adapters), "{adapters} {simulated}");
        }
    }
}

#[test]
fn incasts_of_htsim_end_before_their_bounds() {
    let scratch = Scratch::new("incast-htsim");
    if scratch.program("incast", &["-libverbs"]).is_none() {
        return;
    }
    for (senders, least_ns, most_ns) in [(1, 160_000, 180_000), (15, 2_400_000, 2_500_000)] {
        let receiver = Receiver::Polls;
        let incast = Incast { senders, messages: 8, bytes: 250_000, mtu: Mtu::Mtu4096, receiver };
        std::fs::write(scratch.0.join("star.toml"), star(senders, PAUSES)).expect("a file can be written");
        let ends = in_world(&scratch, &format!("of-{senders}"), "connectx-7", incast, &[]);
        eprintln!("{senders} to 1, in ns: {ends:?}");
        assert!((least_ns..=most_ns).contains(ends.last().expect("a sender")), "{ends:?}");
    }
}
