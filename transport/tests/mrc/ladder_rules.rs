//! What a queue pair tells of rules of MRC that the program or the peer breaks, each once.

use pumice_transport::mrc::entropy::Entropy;
use pumice_transport::mrc::wire::NackReason;
use pumice_transport::types::{MrcBreach, SendOpcode, SendRequest};

use crate::kit::End;
use crate::packets::{nack, sack, take, write};

/// A sender with a message of three packets under way, and the entropy value of the first one.
fn sender(is_dynamic: bool) -> (End, Entropy) {
    let mut end = End::with(|settings, _, _| settings.has_dynamic_mpr = is_dynamic);
    end.post(1, SendOpcode::RdmaWrite, 600);
    let sent = end.sent();
    assert_eq!(sent.len(), 3);
    let entropy = sent[0].0.entropy;
    (end, entropy)
}

#[test]
fn what_is_no_write_is_told_of_and_refused() {
    let mut end = End::new();
    let request = SendRequest::new(1, SendOpcode::Send);
    assert!(end.qp.post_send(&request, &mut end.device).is_err());
    assert_eq!(end.device.breaches, [MrcBreach::Operation { opcode: SendOpcode::Send }]);
}

#[test]
fn a_receive_that_is_missing_and_surplus_immediates_are_told_of() {
    let mut end = End::new();
    let _ = take(&mut end, write(0, 0, 8, Some(1)));
    assert_eq!(end.device.breaches, [MrcBreach::NoReceive]);
    let mut full = End::with(|_, responder, _| responder.max_wimm_dest = 2);
    (1..4).for_each(|number| drop(take(&mut full, write(number, 0, 8, Some(1)))));
    assert_eq!(full.device.breaches, [MrcBreach::Immediates { granted: 2 }]);
}

#[test]
fn a_peer_that_sends_beyond_the_window_is_told_of_once_data_has_come() {
    let mut end = End::new();
    let _ = take(&mut end, write(1024, 0, 8, None));
    assert!(end.device.breaches.is_empty(), "the first PSN may be wrong");
    let _ = take(&mut end, write(1, 0, 8, None));
    (1030..1032).for_each(|number| drop(take(&mut end, write(number, 0, 8, None))));
    assert_eq!(end.device.breaches, [MrcBreach::BeyondWindow { granted: 8 }]);
}

#[test]
fn limits_that_the_peer_does_not_have_are_told_of() {
    let (mut end, entropy) = sender(false);
    (0..2).for_each(|number| end.take(&nack(number, NackReason::PsnOutOfWindow, entropy), &[]));
    assert_eq!(end.device.breaches, [MrcBreach::WindowRefused { used: 8 }]);
    let (mut end, entropy) = sender(true);
    (0..2).for_each(|number| end.take(&sack(number, number, 0, entropy), &[]));
    assert_eq!(end.device.breaches, [MrcBreach::DynamicWindow { here: true }]);
}
