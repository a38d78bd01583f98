//! Topologies as text: what they say, and what is wrong with them, in which line.

use super::Topology;

const STAR: &str = "kind = \"star\"\nhosts = 2\n[link]\nrate_mbps = 1000\ndelay_ns = 1\n";
const QUEUE: &str = "[switch]\nqueue_bytes = 100000\n";

fn star(hosts: &str) -> String {
    format!("{STAR}{QUEUE}").replace("hosts = 2", &format!("hosts = {hosts}"))
}

#[test]
fn what_is_wrong_with_a_topology_is_said_in_a_sentence_with_its_line() {
    assert_eq!(Topology::parse(&star("2")).unwrap().hosts, 2);
    let two_tier = |leaves: &str, spines: &str| {
        format!("leaves = {leaves}\nspines = {spines}\n{}", star("4").replace("star", "two-tier"))
    };
    let three_tier = |leaves: &str, pods: &str, spines: &str, cores: &str| {
        let inner = format!("leaves = {leaves}\npods = {pods}\nspines = {spines}\ncores = {cores}\n");
        inner + &star("8").replace("star", "three-tier")
    };
    assert_eq!(Topology::parse(&three_tier("4", "2", "4", "4")).unwrap().cores, 4);
    for (text, problem_sentence) in [
        (
            "kind = \"ring\"".to_owned(),
            "line 1: unknown variant `ring`, expected one of `star`, `two-tier`, `three-tier`",
        ),
        (format!("{STAR}speed = 1\n{QUEUE}"), "line 6: unknown field `speed`, expected"),
        (STAR.to_owned(), "missing field `switch`"),
        (format!("leaves = 1\n{}", star("2")), "line 1: a star has one switch: leave out leaves"),
        (format!("{}[uplink]\nrate_mbps = 1\ndelay_ns = 1\n", star("2")), "line 8: a star has one switch"),
        (star("0"), "line 2: hosts is 0, and must be from 1 to 1024"),
        (star("-1"), "line 2: hosts is -1, and must be from 1 to 1024"),
        (star("70000"), "line 2: hosts is 70000, and must be from 1 to 1024"),
        (star("[]"), "line 2: hosts is 0, and must be from 1 to 1024"),
        (star("\"two\""), "line 2: invalid type: string \"two\", expected a number of hosts, or a list"),
        (star("[\"127.0.0.1\", 7]"), "line 2: invalid type: integer `7`, expected the address of a host"),
        (star("[\"127.0.0.1\",\n\"host-b\"]"), "line 3: \"host-b\" is no address of a host: write one as"),
        (star("[\"0.0.0.0\"]"), "line 2: 0.0.0.0 is no address that a host can have"),
        (star("[\"224.0.0.1\"]"), "line 2: 224.0.0.1 is no address that a host can have"),
        (
            star("[\"127.0.0.1\",\n\"127.0.0.2\",\n{ address = \"127.0.0.1\" }]"),
            "line 4: 127.0.0.1 is the address of two hosts, number 0 and number 2",
        ),
        (
            star("[\"127.0.0.1\",\n{ address = \"127.0.0.2\", rate_mbps = 0 }]"),
            "line 3: hosts.1.rate_mbps is 0, and must be from 1 to 1600000",
        ),
        (star("[{ rate_mbps = 1 }]"), "line 2: missing field `address`"),
        (star("[{ address = \"::1\", speed = 1 }]"), "line 2: unknown field `speed`"),
        (
            star("[{ address = \"::1\", queue_bytes = 5 }]"),
            "line 2: hosts.0.queue_bytes is 5, and must be from 10000 to",
        ),
        (two_tier("0", "1"), "line 1: leaves is 0, and must be from 1 to 64"),
        (two_tier("2", "0"), "line 2: spines is 0, and must be from 1 to 64"),
        (two_tier("3", "1"), "line 1: 4 hosts cannot be shared out evenly among 3 leaves"),
        (
            format!("pods = 1\n{}", two_tier("2", "1")),
            "line 1: two tiers are leaves and spines: leave out pods",
        ),
        (format!("cores = 1\n{}", star("2")), "line 1: a star has one switch"),
        (three_tier("4", "0", "4", "4"), "line 2: pods is 0, and must be from 1 to 64"),
        (three_tier("4", "2", "4", "0"), "line 4: cores is 0, and must be from 1 to 64"),
        (three_tier("4", "3", "3", "1"), "line 1: 4 leaves cannot be shared out evenly among 3 pods"),
        (three_tier("4", "2", "3", "1"), "line 3: 3 spines cannot be shared out evenly among 2 pods"),
        (
            three_tier("4", "2", "4", "3"),
            "line 4: 3 cores cannot be shared out evenly among 2 spines of a pod",
        ),
        (star("2").replace("1000\n", "0\n"), "line 4: link.rate_mbps is 0, and must be from 1 to"),
        (star("2").replace("delay_ns = 1", "delay_ns = 2000000000"), "line 5: link.delay_ns is 2000000000"),
        (star("2").replace("100000", "9"), "line 7: switch.queue_bytes is 9, and must be from 10000"),
        (
            format!("{}[switch.ecn]\nmin_bytes = 9\nmax_bytes = 8\nmost_ppm = 1\n", star("2")),
            "line 9: switch.ecn: min_bytes 9 is above max_bytes 8",
        ),
        (
            format!("{}[switch.pause]\nxoff_bytes = 8\nxon_bytes = 8\n", star("2")),
            "line 10: switch.pause: xon_bytes 8 is not below xoff_bytes 8",
        ),
        (
            format!("{}[switch.pause]\nxoff_bytes = 100000\nxon_bytes = 8\n", star("2")),
            "line 9: switch.pause: a queue of 100000 bytes is full before 100000 bytes pause",
        ),
    ] {
        let sentence = Topology::parse(&text).unwrap_err();
        assert!(sentence.contains(problem_sentence) && !sentence.contains('\n'), "{text}\n{sentence}");
    }
}

#[test]
fn equal_topologies_have_one_fingerprint_and_others_another() {
    let of = |text: &str| Topology::parse(text).unwrap().fingerprint();
    let named = star("[\"127.0.0.1\", \"127.0.0.2\"]");
    assert_eq!(of(&named), of(&format!("# a comment\n{named}")));
    assert_ne!(of(&named), of(&named.replace("127.0.0.2", "127.0.0.3")));
    assert_ne!(of(&named), of(&star("2")));
    let silent = star("[\"127.0.0.1\", { address = \"127.0.0.2\", answers_arp = false }]");
    assert_ne!(of(&named), of(&silent));
    let answers = Topology::parse(&silent).unwrap().named.into_iter().map(|host| host.answers_arp);
    assert_eq!(answers.collect::<Vec<_>>(), [true, false]);
    let two_tier = format!("leaves = 1\nspines = 3\n{}", star("2").replace("star", "two-tier"));
    let links = [star("2"), two_tier].map(|text| Topology::parse(&text).unwrap().link_count());
    assert_eq!(links, [4, 10]);
}

#[test]
fn a_device_must_be_one_of_the_hosts() {
    let named = Topology::parse(&star("[\"127.0.0.1\", \"127.0.0.2\"]")).unwrap();
    let own = |text: &str| [text.parse().unwrap()];
    assert_eq!(named.check_device("pumice0", &own("127.0.0.2")), Ok(()));
    let sentence = named.check_device("pumice0", &own("127.0.0.9")).unwrap_err();
    assert_eq!(
        sentence,
        "no address of pumice0 (127.0.0.9) is one of its hosts (127.0.0.1, 127.0.0.2): give the device the \
         address of a host, with --addr"
    );
    let counted = Topology::parse(&star("2")).unwrap();
    let sentence = counted.check_device("pumice0", &own("127.0.0.2")).unwrap_err();
    assert!(sentence.contains("names no addresses of hosts: write hosts = ["), "{sentence}");
}
