//! Process indices whose process has gone while queue pairs with its numbers live on.

use super::*;

fn nth(number: u16) -> MemberIndex {
    MemberIndex::of_number(number).unwrap()
}

#[test]
fn a_reserved_index_is_not_given_out_and_its_packets_come_to_the_adopter() {
    let folder = Folder::new("adopt");
    let to = folder.address(1);
    let (mut low, owner, mut adopter) = (folder.open(to, 4791), folder.open(to, 4791), folder.open(to, 4791));
    let mut sender = folder.open(folder.address(2), 4791);
    adopter.reserve_index(ProcessIndex::new(2));
    assert!(!adopter.adopt_index(ProcessIndex::new(2)), "its process lives");
    drop(owner);
    let registry = Registry::open(&folder.0, 4791).unwrap();
    assert!(!registry.claim(nth(2)), "reserved");
    assert!(adopter.adopt_index(ProcessIndex::new(2)) && adopter.adopt_index(ProcessIndex::new(2)));
    low.reserve_index(ProcessIndex::new(2));
    assert!(!low.adopt_index(ProcessIndex::new(2)), "one is enough");
    // The program steers there, and a process that gets it all the same forwards it.
    send(&mut sender, to, 9, &[2, 2]);
    assert_eq!(received(&mut adopter, 0, 2), [(2, 9), (2, 10)]);
    assert_eq!(low.counters().stats().forwarded, 0);
    let bytes = [0, 0, 0, 0, 0, 2, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0];
    let flow = Flow { source: to, destination: to, source_port: 4791, destination_port: 4791 };
    let run = ReceivedBatch {
        flow,
        traffic_class: 0,
        hop_limit: 64,
        segment_bytes: 16,
        bytes: &bytes,
        has_icrc: true,
    };
    assert!(low.forward(ProcessIndex::new(2), &run));
    assert_eq!(received(&mut adopter, 0, 1), [(2, 7)]);
    // The registry says so.
    let loaded = registry.load(&[]).unwrap();
    assert_eq!((loaded.members.adopted(), loaded.unlisted), (&[(nth(2), nth(3))][..], vec![]));
    // The adopter goes: another one that reserved the process index takes over.
    drop(adopter);
    assert!(!registry.claim(nth(2)) && low.adopt_index(ProcessIndex::new(2)));
    send(&mut sender, to, 4, &[2]);
    assert_eq!(received(&mut low, 0, 1), [(2, 4)]);
    low.release_index(ProcessIndex::new(2));
    assert!(registry.claim(nth(2)), "free again");
}

#[test]
fn only_packets_for_an_srq_here_are_taken_from_others() {
    let folder = Folder::new("srq");
    let to = folder.address(1);
    let (mut a, mut b) = (folder.open(to, 4791), folder.open(to, 4791));
    let flow = Flow { source: to, destination: to, source_port: 4791, destination_port: 4791 };
    // An XRC SEND for a target of process index 1 and an SRQ of process index 2; one for an SRQ of process
    // index 1; an RC SEND.
    let packet = |opcode, srq_process| [opcode, 0, 0, 0, 0, 1, 0, 1, 7, 0, 0, 0, 0, srq_process, 0, 1];
    for (bytes, taken) in [(packet(0xa4, 2), true), (packet(0xa4, 1), false), (packet(0x04, 2), false)] {
        let run = ReceivedBatch {
            flow,
            traffic_class: 0,
            hop_limit: 64,
            segment_bytes: 16,
            bytes: &bytes,
            has_icrc: true,
        };
        let rejected = b.counters().stats().rejected;
        assert!(a.forward(ProcessIndex::new(2), &run));
        b.woken();
        let got = received(&mut b, 0, usize::from(taken));
        assert_eq!(got, if taken { vec![(1, 7)] } else { vec![] });
        assert_eq!(b.counters().stats().rejected - rejected, u64::from(!taken));
    }
}
