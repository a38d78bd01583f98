//! Parse and emit are inverses, for all bytes and all values.

use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = [u8; MAD_BYTES]> {
    (proptest::collection::vec(any::<u8>(), MAD_BYTES), 0x10u16..=0x18).prop_map(|(bytes, attribute)| {
        let mut mad = [0; MAD_BYTES];
        mad.copy_from_slice(&bytes);
        let header = MadHeader::parse(&bytes).unwrap();
        MadHeader::communication(attribute, header.transaction, header.modifier).emit(&mut mad);
        mad
    })
}

proptest! {
    /// Emitting a parsed message changes reserved bits only, and keeps its meaning.
    #[test]
    fn what_was_parsed_is_written_again(bytes in bytes()) {
        let mad = Mad::parse(&bytes).unwrap();
        let message = CmMessage::parse(&mad).unwrap();
        let again = message.emit(mad.header().transaction);
        let second = Mad::parse(&again).unwrap();
        prop_assert_eq!(second.header().transaction, mad.header().transaction);
        prop_assert_eq!(CmMessage::parse(&second).unwrap(), message);
        prop_assert_eq!(CmMessage::parse(&second).unwrap().emit(mad.header().transaction), again);
        // Reserved bits become zero; no other bit is lost.
        for (index, (before, after)) in bytes.iter().zip(again).enumerate() {
            prop_assert_eq!(after & !before, 0, "byte {}", index);
        }
    }

    /// Arbitrary bytes are refused or parsed, without a panic.
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mad) = Mad::parse(&bytes) {
            let _ = CmMessage::parse(&mad);
            let _ = refuse(&mad);
        }
        let _ = IpHeader::parse(&bytes);
    }

    #[test]
    fn ip_headers(port: u16, source: [u8; 16], destination: [u8; 16], v4: bool) {
        let address = |octets: [u8; 16]| -> core::net::IpAddr {
            if v4 { [octets[0], octets[1], octets[2], octets[3]].into() } else { octets.into() }
        };
        let (source, destination) = (address(source), address(destination));
        let header = IpHeader { source_port: port, source, destination };
        prop_assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
    }
}

/// Checks how many bits of each message have a meaning: a field that is missing or read twice changes the
/// number.
#[test]
fn no_field_is_missing() {
    let expected = [
        // Each row has an attribute and the reserved bits of its body: REQ has 32 + 8 + (6 + 3 + 3) * 2; XRC
        // is its transport here.
        (attribute::REQ, 32 + 8 + 12 * 2 + 2),
        (attribute::MRA, 6 + 3),
        (attribute::REJ, 6 + 1),
        (attribute::REP, 4),
        (attribute::RTU, 0),
        (attribute::DREQ, 8),
        (attribute::DREP, 0),
        (attribute::SIDR_REQ, 16),
        (attribute::SIDR_REP, 16 + 8),
    ];
    for (attribute, reserved) in expected {
        let mut bytes = [0xff; MAD_BYTES];
        MadHeader::communication(attribute, 0, 0).emit(&mut bytes);
        if attribute == attribute::REQ {
            // The extended transport type 1, which is XRC.
            bytes[24 + 51] = 0b1111_1001;
        }
        let message = CmMessage::parse(&Mad::parse(&bytes).unwrap()).unwrap();
        let ones: u32 = message.emit(0)[24..].iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(232 * 8 - ones, reserved, "{attribute:#06x}");
    }
}

#[test]
fn foreign_classes_versions_and_methods_are_no_cm() {
    let parse = |header: MadHeader| {
        let mut bytes = [0; MAD_BYTES];
        header.emit(&mut bytes);
        CmMessage::parse(&Mad::parse(&bytes).unwrap()).unwrap_err()
    };
    let header = MadHeader::communication(attribute::REQ, 1, 0);
    assert_eq!(parse(MadHeader { class: 4, ..header }), MadError::Class(4));
    assert_eq!(parse(MadHeader { class_version: 1, ..header }), MadError::ClassVersion(1));
    assert_eq!(parse(MadHeader { method: 1, ..header }), MadError::Method(1));
    assert_eq!(parse(MadHeader { attribute: 0x19, ..header }), MadError::AlternatePath);
    assert_eq!(parse(MadHeader { attribute: 0x1a, ..header }), MadError::AlternatePath);
    assert_eq!(parse(MadHeader { attribute: 0x1b, ..header }), MadError::Attribute(0x1b));
}
