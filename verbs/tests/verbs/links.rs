//! Links in real time: what a message takes at least, on both media.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use pumice_verbs::{Counter, Device, DeviceOptions, Link, LinkDirection, SendRequest, Wire};

use crate::kit::{TestSide, connected};

fn sides(net: u8, wire: Wire, link: Link) -> (TestSide, TestSide) {
    let side = |last| {
        let address = IpAddr::V4(Ipv4Addr::new(127, 89, net, last));
        let options = DeviceOptions::new().addresses([address]).wire(wire).link(link);
        TestSide::new(Device::open(options).unwrap())
    };
    (side(1), side(2))
}

/// How long a WRITE of so many bytes takes, in ns.
fn write_takes_ns(a: &TestSide, b: &TestSide, qp: &pumice_verbs::RcQueuePair, length: usize) -> u128 {
    let begun = Instant::now();
    let (from, to) = (a.memory.slice(..length).unwrap(), b.memory.remote().slice(..length).unwrap());
    qp.post_send(&SendRequest::write(&[from], to).wr_id(1).signaled()).unwrap();
    a.expect(1);
    begun.elapsed().as_nanos()
}

#[test]
fn a_message_takes_four_delays_at_least() {
    let link = Link::both(LinkDirection { delay_ns: 2_000_000, ..LinkDirection::NONE });
    for (net, wire) in [(131, Wire::Auto), (132, Wire::Udp)] {
        let (a, b) = sides(net, wire, link);
        let (qp, _peer) = connected(&a, &b);
        for _ in 0..5 {
            let took_ns = write_takes_ns(&a, &b, &qp, 64);
            assert!(took_ns >= 8_000_000, "{wire:?}: {took_ns}");
        }
    }
}

#[test]
fn a_long_message_goes_no_faster_than_the_rate() {
    const LENGTH: usize = 1 << 18;
    let way = LinkDirection { rate_bits_per_second: Some(100_000_000), ..LinkDirection::NONE };
    for (net, wire) in [(133, Wire::Auto), (134, Wire::Udp)] {
        let (a, b) = sides(net, wire, Link::both(way));
        let (qp, _peer) = connected(&a, &b);
        let sent = a.pattern(0, LENGTH);
        for _ in 0..2 {
            let took_ns = write_takes_ns(&a, &b, &qp, LENGTH);
            // Payload alone, at 10 ns a bit.
            assert!(took_ns >= LENGTH as u128 * 80, "{wire:?}: {took_ns}");
        }
        assert_eq!(b.memory.to_vec(0, LENGTH).unwrap(), sent);
        assert!(a.device.counters().value(Counter::LinkQueued) > 0);
        assert_eq!(b.device.counters().value(Counter::LinkDropped), 0, "without a queue nothing is lost");
    }
}
