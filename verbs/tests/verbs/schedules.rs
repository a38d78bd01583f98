//! Shuffled schedules in simulations: what completions promise holds, and a seed is a schedule.

use std::net::{IpAddr, Ipv4Addr};

use pumice_verbs::{
    DeviceOptions, FabricConfig, RecvRequest, SendRequest, Simulation, UdEndpoint, UdQueuePair,
};

use crate::kit::{TestSide, connected};

const SEEDS: u64 = 40;
const LENGTH: usize = 20_000;

fn shuffled(seed: u64) -> (Simulation, TestSide, TestSide) {
    let simulation = Simulation::new(FabricConfig::default());
    let device = |last: u8| {
        let options = DeviceOptions::new().shuffle(seed).tag(&format!("side {last}"));
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        simulation.device_with(options.addresses([address])).unwrap()
    };
    let (one, other) = (device(1), device(2));
    (simulation, TestSide::new(one), TestSide::new(other))
}

/// What a program that does not wait for completions sees of a WRITE, moment by moment: virtual time in ns,
/// and how many of its bytes are there; whether the last byte was there before another one.
fn watch(seed: u64) -> (Vec<(u64, usize)>, bool) {
    let (simulation, a, b) = shuffled(seed);
    let (qp, _peer) = connected(&a, &b);
    a.memory.write(0, &[7; LENGTH]).unwrap();
    let target = b.memory.remote().slice(..LENGTH).unwrap();
    let (mut seen, mut end_first) = (Vec::new(), false);
    for wr_id in 0..4 {
        b.memory.write(0, &[0; LENGTH]).unwrap();
        let local = [a.memory.slice(..LENGTH).unwrap()];
        qp.post_send(&SendRequest::write(&local, target).wr_id(wr_id).signaled()).unwrap();
        loop {
            let bytes = b.memory.to_vec(0, LENGTH).unwrap();
            let count = bytes.iter().filter(|byte| **byte == 7).count();
            end_first |= bytes.last() == Some(&7) && count < LENGTH;
            seen.push((simulation.now_ns(), count));
            if count == LENGTH || !simulation.step() {
                break;
            }
        }
        a.expect(wr_id);
        assert_eq!(b.memory.to_vec(0, LENGTH).unwrap(), [7; LENGTH], "seed {seed}");
    }
    (seen, end_first)
}

#[test]
fn a_seed_is_a_schedule_and_with_some_the_end_of_a_message_arrives_first() {
    let mut end_first = 0;
    for seed in 0..SEEDS {
        let first = watch(seed);
        assert_eq!(first, watch(seed), "seed {seed}");
        end_first += usize::from(first.1);
    }
    assert!(end_first > 5, "{end_first} of {SEEDS} seeds");
}

#[test]
fn everything_has_arrived_at_its_completion_with_every_seed() {
    for seed in 0..SEEDS {
        let (_simulation, a, b) = shuffled(seed);
        let (qp, peer) = connected(&a, &b);
        let remote = b.memory.remote();
        for round in 0..6_u64 {
            let at = 1000 * round as usize;
            let sent = a.pattern(at, LENGTH);
            let local = [a.memory.slice(at..at + LENGTH).unwrap()];
            // Two WRITEs to one address, the second one last; the message tells of both.
            let zeros = [a.memory.slice(200_000..200_000 + LENGTH).unwrap()];
            let target = remote.slice(at..at + LENGTH).unwrap();
            qp.post_send(&SendRequest::write(&zeros, target)).unwrap();
            peer.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap();
            qp.post_send(&SendRequest::write(&local, target).imm([1; 4]).wr_id(2).signaled()).unwrap();
            b.expect(1);
            assert_eq!(b.memory.to_vec(at, LENGTH).unwrap(), sent, "WRITE, seed {seed}, round {round}");
            a.expect(2);
            let into = [b.memory.slice(100_000..100_000 + LENGTH).unwrap()];
            peer.post_recv(&RecvRequest { wr_id: 3, sges: &into }).unwrap();
            qp.post_send(&SendRequest::send(&local).wr_id(4).signaled()).unwrap();
            b.expect(3);
            assert_eq!(b.memory.to_vec(100_000, LENGTH).unwrap(), sent, "SEND, seed {seed}, round {round}");
            a.expect(4);
            // A READ right behind a WRITE sees it.
            let back = [a.memory.slice(150_000..150_000 + LENGTH).unwrap()];
            qp.post_send(&SendRequest::write(&local, target)).unwrap();
            qp.post_send(&SendRequest::read(&back, target).wr_id(5).signaled()).unwrap();
            a.expect(5);
            assert_eq!(a.memory.to_vec(150_000, LENGTH).unwrap(), sent, "READ, seed {seed}, round {round}");
        }
    }
}

/// A datagram completes when it has left. Programs make a queue smaller right after they have posted, and
/// expect that the call fails.
#[test]
fn a_queue_that_is_resized_has_the_completions_of_what_was_posted_with_every_seed() {
    for seed in 0..SEEDS {
        let (_simulation, a, b) = shuffled(seed);
        let qp = UdQueuePair::builder(&a.domain, &a.cq, &a.cq).build().unwrap();
        qp.activate(7).unwrap();
        let peer = UdEndpoint { gid: b.device.gids()[0].1.gid, ..qp.endpoint().unwrap() };
        let address = a.domain.ud_address(&peer).unwrap();
        for wr_id in 0..6 {
            let request = SendRequest::send_to(&address, &[]).inline(b"datagram").wr_id(wr_id).signaled();
            qp.post_send(&request).unwrap();
        }
        let refused = a.cq.resize(5).unwrap_err().to_string();
        assert!(refused.contains("less than the 6 completions that wait in it"), "seed {seed}: {refused}");
        a.cq.resize(6).unwrap();
        for wr_id in 0..6 {
            a.expect(wr_id);
        }
    }
}
