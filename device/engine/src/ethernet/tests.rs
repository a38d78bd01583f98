use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use pumice_transport::wire::Qpn;

use super::*;
use pumice_platform::packet_socket::{FrameWire, SendFrameError};

/// A cable whose ends are one.
#[derive(Default)]
struct Cable {
    frames: VecDeque<Vec<u8>>,
    listens: bool,
    returns: bool,
}

#[derive(Clone, Default)]
struct CableEnd(Arc<Mutex<Cable>>);

impl FrameWire for CableEnd {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendFrameError> {
        if frame.len() > 1514 {
            return Err(SendFrameError::TooLong);
        }
        let mut cable = self.0.lock().unwrap();
        if cable.returns {
            cable.frames.push_back(frame.to_vec());
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        let frame = self.0.lock().unwrap().frames.pop_front()?;
        into[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }

    fn listen(&mut self, listens: bool) {
        self.0.lock().unwrap().listens = listens;
    }

    fn returns_own_frames(&self) -> bool {
        self.0.lock().unwrap().returns
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

fn rule(kind: FlowKind, priority: u16, matches: Vec<FlowMatch>) -> FlowRule {
    let action = FlowAction::Deliver;
    FlowRule { kind, priority, port_num: 1, matches, action, lets_through: false }
}

/// A rule about the first byte of the destination.
fn to(first: u8, priority: u16) -> FlowRule {
    let of = |byte| Box::from([byte, 0, 0, 0, 0, 0]);
    let compared = FlowMatch { header: Header::Ethernet, value: of(first), mask: of(0xff) };
    rule(FlowKind::Normal, priority, vec![compared])
}

fn frame(first: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[0] = first;
    frame
}

const A: Qpn = Qpn::new(0x21);
const B: Qpn = Qpn::new(0x22);

struct Fixture {
    ethernet: Ethernet,
    cable: CableEnd,
}

fn fixture(returns: bool) -> Fixture {
    let cable = CableEnd::default();
    cable.0.lock().unwrap().returns = returns;
    let mut ethernet = Ethernet::new(vec![(1, Box::new(cable.clone()))]);
    ethernet.put(A, 1);
    ethernet.put(B, 1);
    Fixture { ethernet, cable }
}

impl Fixture {
    fn arrives(&mut self, frame: Vec<u8>) -> Vec<Qpn> {
        self.cable.0.lock().unwrap().frames.push_back(frame.clone());
        let (takers, received) = self.ethernet.receive().expect("a frame waits");
        assert_eq!(received, frame);
        takers
    }

    fn sends(&mut self, from: Qpn, frame: &[u8]) -> bool {
        self.ethernet.begin(frame.len()).unwrap().copy_from_slice(frame);
        self.ethernet.send(from)
    }
}

#[test]
fn the_rule_of_the_smallest_number_takes_a_frame_and_equal_ones_share_it() {
    let mut f = fixture(true);
    assert!(f.arrives(frame(2)).is_empty(), "no rule, no receiver");
    let late = f.ethernet.add(B, to(2, 7)).unwrap();
    assert_eq!(f.arrives(frame(2)), [B]);
    let early = f.ethernet.add(A, to(2, 1)).unwrap();
    assert_eq!(f.arrives(frame(2)), [A]);
    assert!(f.arrives(frame(4)).is_empty());
    f.ethernet.add(B, to(2, 1)).unwrap();
    f.ethernet.add(B, to(2, 1)).unwrap();
    assert_eq!(f.arrives(frame(2)), [A, B], "each once");
    f.ethernet.remove(early).unwrap();
    f.ethernet.remove(late).unwrap();
    assert_eq!(f.arrives(frame(2)), [B]);
    assert_eq!(f.ethernet.remove(early).unwrap_err().errno(), libc::EINVAL);
    assert_eq!((f.ethernet.rules_of(A), f.ethernet.rules_of(B)), (0, 2));
}

#[test]
fn defaults_take_what_is_left_and_sniffers_everything() {
    let mut f = fixture(true);
    f.ethernet.add(A, rule(FlowKind::AllDefault, 0, Vec::new())).unwrap();
    f.ethernet.add(B, rule(FlowKind::MulticastDefault, 0, Vec::new())).unwrap();
    assert_eq!((f.arrives(frame(2)), f.arrives(frame(1))), (vec![A], vec![B]));
    f.ethernet.add(B, to(2, 9)).unwrap();
    assert_eq!(f.arrives(frame(2)), [B]);
    f.ethernet.add(A, rule(FlowKind::Sniffer, 9, Vec::new())).unwrap();
    assert_eq!(f.arrives(frame(2)), [A, B]);
}

#[test]
fn a_rule_drops_frames_or_lets_them_through() {
    let mut f = fixture(true);
    f.ethernet.add(A, to(2, 5)).unwrap();
    f.ethernet.add(B, FlowRule { lets_through: true, ..to(2, 4) }).unwrap();
    assert_eq!(f.arrives(frame(2)), [B, A]);
    f.ethernet.add(B, FlowRule { action: FlowAction::Drop, ..to(2, 1) }).unwrap();
    assert!(f.arrives(frame(2)).is_empty());
}

#[test]
fn a_rule_about_a_header_fits_no_frame_without_it() {
    let mut f = fixture(true);
    let any = |header| FlowMatch { header, value: Box::default(), mask: Box::default() };
    for header in [Header::Ipv4, Header::Ipv6, Header::Tcp, Header::Udp] {
        f.ethernet.add(A, rule(FlowKind::Normal, 0, vec![any(header)])).unwrap();
    }
    assert!(f.arrives(frame(2)).is_empty());
    f.ethernet.add(B, rule(FlowKind::Normal, 0, vec![any(Header::Ethernet)])).unwrap();
    assert_eq!(f.arrives(frame(2)), [B]);
}

#[test]
fn an_interface_that_does_not_return_frames_is_made_up_for_and_no_more_wait_than_may() {
    let mut f = fixture(false);
    assert!(f.sends(A, &frame(2)));
    assert!(!f.ethernet.has_looped(), "no rule takes it");
    f.ethernet.add(B, to(2, 0)).unwrap();
    assert!(f.cable.0.lock().unwrap().listens);
    for _ in 0..1000 {
        assert!(f.sends(A, &frame(2)) && f.sends(A, &frame(4)));
    }
    let received = std::iter::from_fn(|| f.ethernet.receive().map(|(takers, _)| takers)).count();
    assert_eq!(received, 256);
    let mut f = fixture(true);
    f.ethernet.add(B, to(2, 0)).unwrap();
    assert!(f.sends(A, &frame(2)));
    assert_eq!(f.ethernet.receive().unwrap().0, [B]);
    assert!(f.ethernet.receive().is_none(), "once");
}

#[test]
fn what_is_no_frame_is_not_sent() {
    let mut f = fixture(true);
    assert!(f.ethernet.begin(13).is_none() && f.ethernet.begin(usize::MAX).is_none());
    assert!(!f.sends(A, &[0; 1515]));
    f.ethernet.put(A, 0);
    assert!(f.sends(A, &frame(2)), "without a port it goes nowhere");
    assert!(f.ethernet.receive().is_none());
    assert!(!f.ethernet.forget(A) && f.ethernet.forget(B));
}
