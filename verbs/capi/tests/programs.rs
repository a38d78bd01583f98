//! C programs on the object.

mod kit;

fn run(name: &str) {
    let Some(program) = kit::compile(name) else { return };
    let output = kit::on(kit::address(), program).output().expect("timeout(1) runs");
    kit::succeeded(name, &output);
}

#[test]
fn wrong_arguments_are_refused_with_their_errno() {
    run("refusals");
}

#[test]
fn every_operation_arrives() {
    run("data_path");
}

#[test]
fn events_wake_programs() {
    run("events");
}

#[test]
fn xrc_domains_targets_and_their_openers_work_by_todays_calls() {
    run("xrc");
}

/// The sentences of OFED 1.x's manual page ibv_query_xrc_rcv_qp(3) are marked S1 to S8 in the program.
#[test]
fn xrc_receive_queue_pairs_work_by_the_calls_of_ofed() {
    run("ofed_xrc");
}
