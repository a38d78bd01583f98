//! Every example is run. Each is a module of this test, so that no build of the examples can be older.

#![allow(dead_code, reason = "the main functions of the examples print what is looked at here")]

#[path = "../examples/async_tokio.rs"]
mod async_tokio;
#[path = "../examples/course_1_memory.rs"]
mod course_1_memory;
#[path = "../examples/course_2_states.rs"]
mod course_2_states;
#[path = "../examples/course_3_messages.rs"]
mod course_3_messages;
#[path = "../examples/course_4_one_sided.rs"]
mod course_4_one_sided;
#[path = "../examples/course_5_events.rs"]
mod course_5_events;
#[path = "../examples/datagrams.rs"]
mod datagrams;
#[path = "../examples/rdma_cm.rs"]
mod rdma_cm;
#[path = "../examples/shared_receive_queue.rs"]
mod shared_receive_queue;
// Its tests are tests of this file, too.
#[path = "../examples/simulated_faults.rs"]
mod simulated_faults;
#[path = "../examples/xrc.rs"]
mod xrc;

#[test]
fn datagrams_are_answered() {
    assert_eq!(datagrams::run().unwrap(), "heard: who is there?");
}

#[test]
fn connections_share_a_stock_of_buffers() {
    let (was_low, received) = shared_receive_queue::run().unwrap();
    assert_eq!((was_low, received.len()), (1, 12));
    assert_eq!((received[0].as_str(), received[11].as_str()), ("client 0, round 0", "client 3, round 2"));
}

#[test]
fn receivers_are_named_by_their_queue() {
    assert_eq!(xrc::run().unwrap(), ["to receiver 0", "to receiver 1", "to receiver 2"]);
}

#[test]
fn a_greeting_goes_by_address() {
    assert_eq!(rdma_cm::run(&[]).unwrap(), "hello by address");
}

#[test]
fn clients_of_a_service_are_answered_by_tasks() {
    let answers = async_tokio::run().unwrap();
    for (number, answers) in answers.iter().enumerate() {
        assert_eq!(answers, &[String::new(), format!("stone{number}")]);
    }
    assert_eq!(answers.len(), 4);
}

#[test]
fn programs_of_the_course_do_what_its_pages_say() {
    assert!(course_1_memory::run(4096).unwrap().starts_with("4096 bytes: lkey 0x"));
    assert_eq!(course_2_states::run().unwrap(), ["Init", "Rts"]);
    assert_eq!(course_3_messages::run().unwrap(), ["message 0", "message 1", "message 2"]);
    let (back, before) = course_4_one_sided::run().unwrap();
    assert_eq!((back.as_str(), before.as_slice()), ("written by the asker", &[0, 10, 20][..]));
    assert_eq!(course_5_events::run().unwrap(), 125);
}
