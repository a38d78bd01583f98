//! Two queue pairs through a network: each message arrives once, though much happens on the way.

use pumice_transport::mrc::MrcStatistics;
use pumice_transport::mrc::constants::DEFAULT_TIMEOUT;

use crate::simulation::{Connection, Simulation, Told, Weather};

/// Messages that a run sends, where [`MESSAGES`] does not say another number.
const USUAL_MESSAGES: u64 = 50_000;
/// The variable by which `scripts/nightly` asks for more.
const MESSAGES: &str = "PUMICE_EXACTLY_ONCE";

const TRIMS: Connection =
    Connection { has_trimming: true, has_nscc: true, is_ipv4: false, timeout: DEFAULT_TIMEOUT };
const DROPS: Connection = Connection { has_trimming: false, is_ipv4: true, ..TRIMS };
const FREE: Connection = Connection { has_nscc: false, ..DROPS };

/// One packet in a hundred each is lost, trimmed, marked, repeated and late.
const ROUGH: Weather = Weather {
    lost: 10,
    trimmed: 10,
    marked: 10,
    twice: 10,
    late: 20,
    longest_ns: 20_000,
    dead_paths: 0,
    dies: None,
    has_blackouts: false,
    work_ns: 0,
    pause_ns: None,
};

#[test]
fn without_loss_nothing_is_sent_twice() {
    for connection in [TRIMS, DROPS, FREE] {
        let mut simulation = Simulation::new(Weather::default(), connection, 1);
        simulation.run([3000, 500]);
        for side in &simulation.sides {
            let statistics = side.qp.statistics();
            assert_eq!(
                (statistics.timeouts, statistics.holes, statistics.nacks, statistics.dropped),
                (0, 0, 0, 0)
            );
            assert_eq!((statistics.retransmitted, statistics.duplicates), (0, 0));
        }
    }
}

#[expect(clippy::print_stdout, reason = "what a night has measured")]
fn exactly_once(name: &str, weather: Weather, connection: Connection, seed: u64) -> MrcStatistics {
    let messages = std::env::var(MESSAGES).map_or(USUAL_MESSAGES, |number| number.parse().unwrap());
    let mut simulation = Simulation::new(weather, connection, seed);
    simulation.run([messages * 2 / 3, messages - messages * 2 / 3]);
    let statistics = simulation.sides[0].qp.statistics();
    println!(
        "{name}: {messages} messages once each, {} packets arrived, {} ms of virtual time, {statistics:?}",
        simulation.packets,
        simulation.now_ns / 1_000_000
    );
    assert!(statistics.retransmitted > 0 && statistics.data_placed > 0);
    statistics
}

#[test]
fn exactly_once_with_trimming_switches() {
    exactly_once("trim", ROUGH, TRIMS, 1);
}

#[test]
fn exactly_once_with_dropping_switches() {
    exactly_once("drop", Weather { lost: 20, ..ROUGH }, DROPS, 2);
}

#[test]
fn exactly_once_without_congestion_control() {
    exactly_once("free", Weather { longest_ns: 200_000, ..ROUGH }, FREE, 3);
}

#[test]
fn exactly_once_while_paths_and_planes_die() {
    let silent = Weather { dead_paths: 50, dies: Some(Told::No), ..ROUGH };
    exactly_once("silent planes", silent, TRIMS, 4);
    let dark = Weather { has_blackouts: true, ..ROUGH };
    assert!(exactly_once("blackouts", dark, DROPS, 6).timeouts > 0);
    exactly_once("told planes", Weather { dies: Some(Told::Yes), ..silent }, DROPS, 5);
}

/// Any weather that a seed draws.
#[test]
fn exactly_once_in_any_weather() {
    for seed in 0..30 {
        let mut random = crate::simulation::Random(seed);
        let mut drawn = |most: u64| random.below(most) * random.below(2);
        let weather = Weather {
            lost: drawn(150),
            trimmed: drawn(300),
            marked: drawn(300),
            twice: drawn(100),
            late: drawn(300),
            longest_ns: 1 + drawn(100_000),
            dead_paths: drawn(150),
            has_blackouts: drawn(8) > 5,
            dies: [None, Some(Told::Yes), Some(Told::No)][drawn(3) as usize],
            ..Weather::default()
        };
        let connection = [TRIMS, DROPS, FREE][seed as usize % 3];
        Simulation::new(weather, connection, seed).run([400, 400]);
    }
}

/// A peer has so many packets to take that the round trip is longer than the timeout, which is 262 µs, and is
/// without a processor for a time. What the sender then sends again is more work for the peer.
#[test]
fn a_busy_peer_is_not_buried_under_retransmissions() {
    for connection in [TRIMS, DROPS, FREE] {
        let connection = Connection { timeout: 8, ..connection };
        let busy =
            Weather { work_ns: 12_000, pause_ns: Some([20_000_000, 25_000_000]), ..Weather::default() };
        let mut simulation = Simulation::new(busy, connection, 1);
        simulation.run([10_000, 0]);
        let statistics = simulation.sides[0].qp.statistics();
        assert!(statistics.timeouts > 0 && statistics.retransmitted < 128, "{statistics:?}");
    }
}

#[test]
fn a_run_repeats() {
    let run = || {
        let mut simulation = Simulation::new(ROUGH, TRIMS, 9);
        simulation.run([500, 500]);
        (simulation.now_ns, simulation.packets, simulation.sides[0].qp.statistics())
    };
    assert_eq!(run(), run());
}
