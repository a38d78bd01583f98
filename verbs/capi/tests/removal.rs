//! What a fault plan makes of the link and of the device, met by a C program on both media.

mod kit;

/// What `removal.c` expects.
const RULES: &str = "
    event name=cable kind=cable-pull qp=0 message=1
    event name=in kind=port-up after=\"call ibv_query_port 1\"
    event name=rate kind=speed-change speed=edr width=4 after=\"call ibv_query_port 2\"
    event name=out kind=unplug time=300ms qp=0 message=2";

#[test]
fn a_removed_device_is_replaced_by_another() {
    let Some(program) = kit::compile("removal") else { return };
    for wire in ["udp", "auto"] {
        let mut command = kit::on(kit::address(), &program);
        command.env("PUMICE_FAULT", RULES).env("PUMICE_WIRE", wire);
        kit::succeeded("removal", &command.output().expect("timeout(1) runs"));
    }
}
