//! Forked children: what they inherited does nothing in them, and its end neither waits for threads that are
//! not there nor touches what is the parent's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_verbs::{Access, RecvRequest, SendRequest, WorkCompletion};

use crate::kit::{LIMIT, TestSide, connected, udp};

const LENGTH: usize = 4096;

/// Runs `child` in a fork, which is ended after a minute if it hangs; its number.
fn forked(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the C library puts its allocator in order in the child, which runs no test but `child`, and
    // ends without the handlers of exit(3).
    unsafe {
        let number = libc::fork();
        if number == 0 {
            libc::alarm(60);
            let ended = catch_unwind(AssertUnwindSafe(child));
            libc::_exit(if ended.is_ok() { 0 } else { 1 });
        }
        number
    }
}

fn ended_well(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: our own child, and a live variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "a child panicked, or hung");
}

fn exchange(a: &TestSide, b: &TestSide) {
    let (qp, peer) = connected(a, b);
    peer.post_recv(&RecvRequest { wr_id: 1, sges: &[b.memory.slice(..8).unwrap()] }).unwrap();
    qp.post_send(&SendRequest::send(&[a.memory.slice(..8).unwrap()]).signaled().wr_id(2)).unwrap();
    a.expect(2);
    b.expect(1);
}

#[test]
fn a_child_leaves_its_parents_device_alone_and_opens_its_own() {
    let (a, b) = udp(187);
    let (qp, peer) = connected(&a, &b);
    for round in 0..6 {
        let bytes = a.pattern(round, LENGTH);
        let slice = a.memory.slice(round..round + LENGTH).unwrap();
        qp.post_send(&SendRequest::write(&[slice], b.memory.remote()).signaled().wr_id(round as u64))
            .unwrap();
        let child = forked(|| {
            let error = qp.post_send(&SendRequest::send(&[]).wr_id(1)).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL);
            assert!(error.to_string().contains("belongs to the parent process"), "{error}");
            assert_eq!(
                peer.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap_err().errno(),
                libc::EINVAL
            );
            assert_eq!(a.cq.poll(&mut [WorkCompletion::default()]), 0);
            assert!(a.cq.wait_one(LIMIT).is_err() && a.domain.allocate(64, Access::empty()).is_err());
            assert!(a.device.completion_queue(8).is_err());
            if round % 3 == 0 {
                let (own, other) = udp(188);
                exchange(&own, &other);
            }
        });
        a.expect(round as u64);
        assert_eq!(b.memory.to_vec(0, LENGTH).unwrap(), bytes);
        ended_well(child);
    }
}

#[test]
fn what_a_child_drops_ends_nothing() {
    let (a, b) = udp(189);
    let (qp, peer) = connected(&a, &b);
    let mut all = Some((a, b, qp, peer));
    let child = forked(|| drop(all.take()));
    ended_well(child);
    let (a, b, qp, peer) = all.unwrap();
    drop((qp, peer));
    exchange(&a, &b);
}
