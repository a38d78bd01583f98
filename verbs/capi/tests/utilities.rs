//! Debian's ibverbs-utils, unmodified: a server and a client on two addresses of this host, or on one.

mod kit;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};

fn installed(program: &str) -> bool {
    let there = kit::exists(program);
    if !there {
        kit::skip(&format!("no {program}: apt-get install ibverbs-utils"));
    }
    there
}

/// A TCP port for a pair, of this process or one beside it.
fn tcp_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    (20_000 + (std::process::id() as u16 % 1000) * 16 + number).to_string()
}

fn pair(program: &str, arguments: &[&str]) {
    pair_on([kit::address(), kit::address()], program, arguments);
}

fn pair_on(addresses: [Ipv4Addr; 2], program: &str, arguments: &[&str]) {
    pair_with(addresses, program, arguments, None, &[]);
}

/// `fault`: a rule for the server; `settings`: variables of both. What the client prints.
fn pair_with(
    [one, other]: [Ipv4Addr; 2],
    program: &str,
    arguments: &[&str],
    fault: Option<&str>,
    settings: &[(&str, &str)],
) -> Option<String> {
    if !installed(program) {
        return None;
    }
    let port = tcp_port();
    let common = |address| {
        let mut command = kit::on(address, program);
        command
            .args(["-d", "pumice0", "-g", "0", "-p", &port])
            .args(arguments)
            .envs(settings.iter().copied());
        command
    };
    let mut serve = common(one);
    serve.envs(fault.map(|rule| ("PUMICE_FAULT", rule)));
    let mut server = kit::start(&mut serve);
    // It does not say when it listens: the client's first tries may be too early.
    let client = loop {
        let client = common(other).arg("127.0.0.1").output().expect("timeout(1) runs");
        let early = String::from_utf8_lossy(&client.stderr).contains("Couldn't connect");
        if !early || server.try_wait().expect("a child of ours").is_some() {
            break client;
        }
    };
    let text = kit::succeeded(program, &client);
    assert!(text.contains("iters in") || text.contains("success"), "{text}");
    let server = server.wait_with_output().expect("a child of ours");
    kit::succeeded(program, &server);
    Some(text)
}

#[test]
fn the_device_is_listed_and_described() {
    if !installed("ibv_devinfo") {
        return;
    }
    let list = kit::succeeded("ibv_devices", &kit::on(kit::address(), "ibv_devices").output().unwrap());
    assert!(list.contains("pumice0"), "{list}");
    let address = kit::address();
    let output = kit::on(address, "ibv_devinfo").arg("-v").output().unwrap();
    let text = kit::succeeded("ibv_devinfo", &output);
    for part in ["PORT_ACTIVE (4)", "Ethernet", "RoCE v2", &address.to_string(), "max_qp_wr:\t\t\t16384"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn rc_pingpong() {
    pair("ibv_rc_pingpong", &["-c", "-n", "300"]);
}

#[test]
fn rc_pingpong_sleeping() {
    pair("ibv_rc_pingpong", &["-e", "-n", "300"]);
}

#[test]
fn rc_pingpong_with_extended_calls() {
    pair("ibv_rc_pingpong", &["-N", "-n", "300"]);
}

#[test]
fn uc_pingpong() {
    pair("ibv_uc_pingpong", &["-n", "300"]);
}

/// A ping and its pong pass two links each, with a delay of 2 ms: polling and sleeping, on both media.
#[test]
fn pingpong_over_links_takes_their_delays() {
    for wire in ["auto", "udp"] {
        for waits in [&[][..], &["-e"]] {
            let settings = [("PUMICE_LINK", "delay=2ms,rate=10Gbit"), ("PUMICE_WIRE", wire)];
            let arguments = [&["-n", "20"], waits].concat();
            let addresses = [kit::address(), kit::address()];
            let Some(text) = pair_with(addresses, "ibv_rc_pingpong", &arguments, None, &settings) else {
                return;
            };
            let per_iteration =
                text.lines().find_map(|line| line.strip_suffix(" usec/iter")?.rsplit(' ').next());
            let us: f64 = per_iteration.and_then(|number| number.parse().ok()).expect("it says so");
            // The first ping leaves before the program looks at its clock.
            assert!(us >= 19.0 * 8_000.0 / 20.0, "{wire} {waits:?}: {text}");
        }
    }
}

/// Four processes: two clients on hosts of their own, and two servers that share the third host and the port
/// of the switch that leads to it. Each client's pings take their time there, and all processes count in one
/// place.
#[test]
fn pingpong_of_two_clients_over_one_switch() {
    const BYTES: u64 = 1 << 16;
    const ROUNDS: u64 = 20;
    for wire in ["auto", "udp"] {
        let hosts = [kit::address(), kit::address(), kit::address()];
        let list = hosts.map(|host| format!("\"{host}\"")).join(", ");
        let text = format!(
            "kind = \"star\"\nhosts = [{list}]\n[link]\nrate_mbps = 100\ndelay_ns = 10000\n[switch]\n\
             queue_bytes = 4000000\n"
        );
        let file = kit::scratch("topology").join("star.toml");
        std::fs::write(&file, &text).unwrap();
        let settings = [("PUMICE_TOPOLOGY", file.to_str().unwrap()), ("PUMICE_WIRE", wire)];
        let (bytes, rounds) = (BYTES.to_string(), ROUNDS.to_string());
        let arguments = ["-s", &bytes, "-n", &rounds];
        let texts: Vec<Option<String>> = std::thread::scope(|scope| {
            let run = |client| {
                let addresses = [hosts[2], hosts[client]];
                pair_with(addresses, "ibv_rc_pingpong", &arguments, None, &settings)
            };
            let both: Vec<_> = [0, 1].map(|client| scope.spawn(move || run(client))).into_iter().collect();
            both.into_iter().map(|one| one.join().expect("it runs to its end")).collect()
        });
        let topology = std::sync::Arc::new(pumice_device::port::Topology::parse(&text).unwrap());
        let ports = pumice_device::sharing::switches(&topology).unwrap().queues();
        for text in texts {
            let Some(text) = text else { return };
            let per_iteration =
                text.lines().find_map(|line| line.strip_suffix(" usec/iter")?.rsplit(' ').next());
            let us: f64 = per_iteration.and_then(|number| number.parse().ok()).expect("it says so");
            // Ping and pong, 80 ns a byte. The first ping leaves before the program looks at its clock.
            let least = 2.0 * BYTES as f64 * 0.08 * (ROUNDS - 1) as f64 / ROUNDS as f64;
            assert!(us >= least, "{wire}: {text}");
        }
        for (port, pairs) in [(0, 1), (1, 1), (2, 2), (3, 1), (4, 1), (5, 2)] {
            assert!(ports[port].sent_bytes >= pairs * ROUNDS * BYTES, "{wire}: {ports:?}");
            assert_eq!(ports[port].dropped, 0, "{wire}: {ports:?}");
        }
    }
}

/// The server's last message is delayed for longer than the server lives; the client waits for it.
#[test]
fn a_delayed_packet_outlives_the_process_that_sent_it() {
    let addresses = [kit::address(), kit::address()];
    let rule = "delay time=50s side=requester message=9";
    pair_with(addresses, "ibv_uc_pingpong", &["-n", "10"], Some(rule), &[]);
    pair_with(addresses, "ibv_ud_pingpong", &["-n", "10", "-s", "1024"], Some(rule), &[]);
}

#[test]
fn ud_pingpong() {
    pair("ibv_ud_pingpong", &["-n", "300", "-s", "1024"]);
}

#[test]
fn srq_pingpong() {
    pair("ibv_srq_pingpong", &["-n", "300", "-q", "4"]);
}

#[test]
fn xsrq_pingpong() {
    pair("ibv_xsrq_pingpong", &["-n", "300"]);
}

#[test]
fn processes_that_share_an_address() {
    let address = kit::address();
    pair_on([address; 2], "ibv_rc_pingpong", &["-c", "-n", "300"]);
    pair_on([address; 2], "ibv_ud_pingpong", &["-e", "-n", "300", "-s", "1024"]);
    pair_on([address; 2], "ibv_xsrq_pingpong", &["-n", "300"]);
}
