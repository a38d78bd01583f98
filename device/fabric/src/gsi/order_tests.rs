//! In which order MADs are read that have come by different ways.

use std::sync::Arc;

use pumice_transport::cm::CmConfig;
use pumice_transport::mad::{CmMessage, CommId, PrivateData, Rtu};
use pumice_transport::wire::ProcessIndex;

use super::agent::Gsi;
use super::envelope::InboundMad;

fn rtu(number: u32) -> InboundMad {
    let ids = (CommId(number), CommId::of(ProcessIndex::new(1), number));
    let rtu = Rtu { local_id: ids.0, remote_id: ids.1, private_data: PrivateData::default() };
    InboundMad::with(&CmMessage::Rtu(rtu))
}

#[test]
fn a_request_asks_for_one_more_look_and_is_read_after_what_is_about_connections() {
    let mut gsi = Gsi::new(CmConfig::new(7), ProcessIndex::new(1), 7, Arc::default());
    gsi.accept(rtu(1));
    assert!(!gsi.take_new_request());
    gsi.accept(InboundMad::blank());
    gsi.accept(rtu(2));
    assert!(gsi.take_new_request());
    assert!(!gsi.take_new_request(), "one look is enough");
    gsi.accept(InboundMad::blank());
    assert!(gsi.take_new_request(), "for each that comes later");
    let recipient = |mad: &InboundMad| mad.message().and_then(|message| message.recipient());
    let order: Vec<Option<CommId>> = gsi.in_order().iter().map(recipient).collect();
    let of = |number| Some(CommId::of(ProcessIndex::new(1), number));
    assert_eq!(order, [of(1), of(2), None, None]);
    assert!(!gsi.has_mads());
}
