//! Keys of the wrong kind, as a device tells of them.

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{RemoteRange, Sge};
use pumice_transport::wire::OperationClass;

use super::tests::{KEY, MEMORY, Rung, at, range, sge};

#[test]
fn keys_of_the_wrong_kind_are_found_and_right_ones_are_not() {
    const RKEY: u32 = KEY ^ 0x80;
    let mut rung = Rung::new();
    at(30);
    rung.device(&Event::RegionRegistered {
        lkey: KEY,
        rkey: RKEY,
        address: MEMORY,
        length: 0x10000,
        iova: 0,
        stays_mapped: true,
        relaxed: false,
    });
    let accesses = |rung: &mut Rung, rkey, class| {
        let range = RemoteRange { rkey, ..range(0, 8) };
        rung.qp(&QpEvent::RemoteAccess { class, range, ends: true });
    };
    for class in [OperationClass::Write, OperationClass::Read, OperationClass::Atomic] {
        accesses(&mut rung, RKEY, class);
    }
    rung.receive(1, &[sge(64, 64)]);
    assert_eq!(rung.found(), []);
    accesses(&mut rung, KEY, OperationClass::Read);
    accesses(&mut rung, KEY, OperationClass::Write);
    assert_eq!(rung.found(), [("keys-crossed", 30, 2)]);
    let said = rung.numbers();
    assert!(said.contains("with the rkey 0x1203, which is the lkey of memory region 0x1203"), "{said}");
    assert!(said.contains("its rkey is 0x1283"), "{said}");
    at(31);
    rung.receive(2, &[Sge { lkey: RKEY, ..sge(256, 64) }]);
    assert_eq!(rung.found(), [("keys-crossed", 30, 2), ("keys-crossed", 31, 1)]);
}
