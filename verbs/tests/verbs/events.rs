//! Sleeping instead of polling.

use std::time::Duration;

use pumice_verbs::{
    AsyncElement, AsyncEventType, Notify, RcQueuePair, RecvRequest, SendRequest, VerbsError, WorkCompletion,
};

use crate::kit::{LIMIT, connected, on_both};

#[test]
fn a_channel_wakes_for_what_it_was_armed_for() {
    on_both(60, |a, b| {
        let channel = b.device.completion_channel().unwrap();
        let cq = channel.completion_queue(16, 77).unwrap();
        let (one, other) = (a.rc(), RcQueuePair::builder(&b.domain, &cq, &cq).build().unwrap());
        one.connect(&other.endpoint(), &Default::default()).unwrap();
        other.connect(&one.endpoint(), &Default::default()).unwrap();
        for wr_id in 0..3 {
            other.post_recv(&RecvRequest { wr_id, sges: &[] }).unwrap();
        }
        cq.arm(Notify::Solicited).unwrap();
        // Not solicited: it arrives, and no thread is woken.
        one.post_send(&SendRequest::send(&[]).wr_id(1).signaled()).unwrap();
        a.expect(1);
        let error = channel.wait(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, VerbsError::TimedOut { awaited: "completion event", .. }), "{error}");
        assert_eq!(cq.wait_success(LIMIT).unwrap().wr_id, 0);
        one.post_send(&SendRequest::send(&[]).solicited()).unwrap();
        let event = channel.wait(LIMIT).unwrap();
        assert_eq!((event.queue, event.cookie), (cq.handle(), 77));
        let mut completions = [WorkCompletion::default(); 4];
        assert_eq!((cq.poll(&mut completions), completions[0].wr_id), (1, 1));
        // Armed for one event: the next needs arming again.
        one.post_send(&SendRequest::send(&[]).wr_id(2).signaled().solicited()).unwrap();
        a.expect(2);
        channel.wait(Duration::from_millis(20)).unwrap_err();
        assert_eq!(cq.wait_success(LIMIT).unwrap().wr_id, 2);
        cq.arm(Notify::Any).unwrap();
        other.post_recv(&RecvRequest { wr_id: 3, sges: &[] }).unwrap();
        one.post_send(&SendRequest::send(&[])).unwrap();
        assert_eq!(channel.wait(LIMIT).unwrap().cookie, 77);
        assert_eq!(cq.poll(&mut completions), 1);
    });
}

#[test]
fn sleepers_are_woken_by_failures() {
    on_both(61, |a, b| {
        let channel = a.device.completion_channel().unwrap();
        let cq = channel.completion_queue(16, 1).unwrap();
        let qp = RcQueuePair::builder(&a.domain, &cq, &cq).build().unwrap();
        let peer = b.rc();
        qp.connect(&peer.endpoint(), &Default::default()).unwrap();
        qp.post_recv(&RecvRequest { wr_id: 9, sges: &[] }).unwrap();
        cq.arm(Notify::Solicited).unwrap();
        qp.fail().unwrap();
        channel.wait(LIMIT).unwrap();
        let error = cq.wait_success(LIMIT).unwrap_err();
        assert!(error.to_string().contains("WR_FLUSH_ERR"), "{error}");
    });
}

#[test]
fn the_first_packet_is_an_event() {
    on_both(62, |a, b| {
        let (one, other) = (a.rc(), b.rc());
        one.connect(&other.endpoint(), &Default::default()).unwrap();
        // RTR is reached on the way to RTS; access violations are events too.
        other.connect(&one.endpoint(), &Default::default()).unwrap();
        let nowhere = pumice_verbs::RemoteSlice { address: 0x1000, rkey: 0x77, length: 8 };
        one.post_send(&SendRequest::write(&[], nowhere).inline(b"x").signaled()).unwrap();
        let error = a.cq.wait_success(LIMIT).unwrap_err();
        assert!(error.to_string().contains("REM_ACCESS_ERR"), "{error}");
        let event = b.device.async_event(LIMIT).unwrap();
        assert_eq!(event.event, AsyncEventType::QpAccessErr);
        assert_eq!(event.element, AsyncElement::Qp { qpn: other.qpn().value(), cookie: 0 });
        let error = a.device.async_event(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.object(), "asynchronous event");
    });
}

#[test]
fn waiting_ends_in_time() {
    on_both(63, |a, b| {
        let _pair = connected(&a, &b);
        let error = a.cq.wait_one(Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.to_string(), format!("no completion within 5ms; {}", error.remedy()));
        assert_eq!(a.cq.wait(&mut [], LIMIT).unwrap_err().attribute().as_deref(), Some("out"));
        assert_eq!(a.cq.arm(Notify::Any).unwrap_err().attribute().as_deref(), Some("channel"));
    });
}
